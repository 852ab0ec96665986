"""Makes documents: PDF by hand, DOCX from XML; good ones and hostile ones."""

import io
import zipfile
from collections.abc import Mapping, Sequence

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CONTENT_TYPES = "[Content_Types].xml"
FIRST = 10  # objects below are the same in all files
HELVETICA = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
# A font of glyph numbers without /ToUnicode.
GLYPHS = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /AAAAAA+Glyphs /Encoding /Identity-H /DescendantFonts [<< /Type /Font "
    "/Subtype /CIDFontType2 /BaseFont /AAAAAA+Glyphs /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) "
    "/Supplement 0 >> /FontDescriptor << /Type /FontDescriptor /FontName /AAAAAA+Glyphs /Flags 4 >> >>] >>"
)
MAPPED = "<< /Type /Font /Subtype /Type1 /BaseFont /Odd /ToUnicode 7 0 R >>"
TO_UNICODE = (
    "begincmap 1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <41> <D83DDE00> <42> <00660069> "
    "endbfchar endcmap"
)


def pdf(pages: Sequence[str]) -> bytes:
    """A page for each text, a line for each of its lines."""
    return drawn_pdf([lines_at(*page.split("\n")) if page else "" for page in pages])


def drawn_pdf(
    pages: Sequence[str],
    *,
    on_first: Sequence[str] = (),
    form: str | None = None,
    more: Sequence[str] = (),
    catalog: str = "",
    title: str = "(A title)",
    page: str = "",
) -> bytes:
    """A PDF of content streams with the fonts F1 (Helvetica), F2 (without a map), F3 (with one).

    `on_first`: annotations of the first page, which are fields of the form too if there is one, from object 10 on.
    `more`: objects behind them. `form`, `catalog` and `page` are entries of their dictionaries.
    """
    annotations = " ".join(f"{FIRST + n} 0 R" for n in range(len(on_first)))
    first_page = FIRST + len(on_first) + len(more)
    kids = " ".join(f"{first_page + 2 * n} 0 R" for n in range(len(pages)))
    fields = "" if form is None else f"/AcroForm << /Fields [{annotations}] /DA (/F1 0 Tf) {form} >>"
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {fields} {catalog} >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        HELVETICA,
        f"<< /Title {title} >>",
        GLYPHS,
        MAPPED,
        _content(TO_UNICODE),
        "null",
        "null",
        *on_first,
        *more,
    ]
    fonts = "/Resources << /Font << /F1 3 0 R /F2 5 0 R /F3 6 0 R >> >>"
    for number, drawn in enumerate(pages):
        annots = f"/Annots [{annotations}]" if annotations and not number else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {fonts} {annots} {page} "
            f"/Contents {first_page + 2 * number + 1} 0 R >>"
        )
        objects.append(_content(drawn))
    out, offsets = bytearray(b"%PDF-1.7\n"), list[int]()
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R "
    return bytes(out) + f"{end}/Info 4 0 R >>\nstartxref\n{len(out)}\n%%EOF\n".encode()


def lines_at(*lines: str) -> str:
    return "BT /F1 12 Tf 14 TL 72 720 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET "


def _content(text: str) -> str:
    return f"<< /Length {len(text)} >>\nstream\n{text}\nendstream"


def docx(body: str, parts: Mapping[str, str | bytes] | None = None, *, before: str = "") -> bytes:
    """A document of WordprocessingML; `parts` are further entries, `before` stands in front of its root."""
    document = f"{before}<w:document {W}><w:body>{body}</w:body></w:document>"
    return archive({CONTENT_TYPES: "<Types/>", "word/document.xml": document, **(parts or {})})


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return out.getvalue()


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'
