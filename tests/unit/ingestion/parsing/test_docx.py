"""DOCX, of WordprocessingML written by hand and by python-docx, -> Markdown."""

import io

import docx as python_docx
import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.archive import MAX_MEMBERS
from tasks.ingestion.parsing.docx import read_docx
from tests.document_files import CONTENT_TYPES, W, archive, docx, paragraph

M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
RELATIONSHIPS = "word/_rels/document.xml.rels"
REFUNDS = "Refunds are paid within three days."


def text(data: bytes) -> str:
    return read_docx(data).text


def code(data: bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        read_docx(data)
    return failed.value.error.code


def run(words: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{words}</w:t></w:r>'


def related(**targets: str) -> str:
    """Relationships of the document; a part is of the kind that its id begins with."""
    kinds = {name: name.rstrip("0123456789") for name in targets}
    each = (f'<Relationship Id="{name}" Type="http://x/{kinds[name]}" Target="{targets[name]}"/>' for name in targets)
    return f'<Relationships xmlns="http://x">{"".join(each)}</Relationships>'


def letter(name: str, words: str) -> str:
    return f"<m:{name}><m:r><m:t>{words}</m:t></m:r></m:{name}>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(content: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"


def test_a_document_as_word_writes_it() -> None:
    document = python_docx.Document()
    document.core_properties.title = "A title"
    document.add_heading("Top", 0)
    document.add_heading("Section", 2)
    document.add_paragraph("Words\tand\nmore.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Number")
    made = document.add_table(2, 2)
    for number, each in enumerate(one for row in made.rows for one in row.cells):
        each.text = f"c{number}|"
    document.add_paragraph("end")
    out = io.BytesIO()
    document.save(out)
    extracted = read_docx(out.getvalue())
    assert (extracted.title, extracted.structure, extracted.warnings) == ("A title", "markdown", [])
    assert extracted.text == (
        "# Top\n\n## Section\n\nWords\tand\nmore.\n\n- one\n1. two\n\n"
        "| c0\\| | c1\\| |\n| --- | --- |\n| c2\\| | c3\\| |\n\nend"
    )


def test_headings_by_the_names_of_their_styles_and_of_what_these_are_based_on() -> None:
    styles = f"""<w:styles {W}><w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>
      <w:style w:styleId="Mine"><w:name w:val="mine"/><w:basedOn w:val="berschrift2"/></w:style>
      <w:style w:styleId="Round"><w:name w:val="round"/><w:basedOn w:val="Round"/></w:style></w:styles>"""
    body = paragraph("a", "berschrift2") + paragraph("b", "Mine") + paragraph("c", "Round") + paragraph("d", "Gone")
    assert text(docx(body, {"word/styles.xml": styles})) == "## a\n\n## b\n\nc\n\nd"


# ---- numbers ---------------------------------------------------------------------------------------------------------


def level(depth: int, form: str, label: str, more: str = "") -> str:
    shown = f'<w:start w:val="1"/><w:numFmt w:val="{form}"/>{more}<w:lvlText w:val="{label}"/>'
    return f'<w:lvl w:ilvl="{depth}">{shown}</w:lvl>'


def numbered(body: str, levels: str, *, lists: str = "", styles: str = "") -> str:
    numbering = f"""<w:numbering {W}><w:abstractNum w:abstractNumId="0">{levels}</w:abstractNum>
      <w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>{lists}</w:numbering>"""
    return text(docx(body, {"word/numbering.xml": numbering, "word/styles.xml": f"<w:styles {W}>{styles}</w:styles>"}))


def item(words: str, depth: int = 0, number: int = 1) -> str:
    properties = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
    return f"<w:p><w:pPr>{properties}</w:pPr>{run(words)}</w:p>"


HEADING = (
    '<w:style w:styleId="H1"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
    "</w:style>"
    '<w:style w:styleId="H2"><w:name w:val="heading 2"/><w:basedOn w:val="H1"/></w:style>'
)


def test_headings_and_items_have_their_numbers() -> None:
    levels = (
        level(0, "decimal", "%1.", '<w:pStyle w:val="H1"/>')
        + level(1, "decimal", "%1.%2", '<w:pStyle w:val="H2"/>')
        + level(2, "lowerLetter", "(%3)")
    )
    body = (
        *(paragraph("Definitions", "H1"), paragraph("Words", "H2"), paragraph("Term", "H2")),
        *(paragraph("Payment", "H1"), item("Fees", 1), item("Late fees", 1), item("except in May", 2), item("June", 2)),
        *(item("Third", 1), item("again", 2)),
    )
    assert numbered("".join(body), levels, styles=HEADING) == (
        "# 1. Definitions\n\n## 1.1 Words\n\n## 1.2 Term\n\n# 2. Payment\n\n"
        "- 2.1 Fees\n- 2.2 Late fees\n  - (a) except in May\n  - (b) June\n- 2.3 Third\n  - (a) again"
    )


@pytest.mark.parametrize(
    ("form", "label", "expected"),
    [
        ("decimal", "%1.", ["1. x", "2. x", "3. x"]),
        ("decimal", "Article %1", ["- Article 1 x", "- Article 2 x", "- Article 3 x"]),
        ("upperLetter", "%1.", ["- A. x", "- B. x", "- C. x"]),
        ("bullet", "\uf0b7", ["- x", "- x", "- x"]),
    ],
)
def test_kinds_of_numbers(form: str, label: str, expected: list[str]) -> None:
    assert numbered(item("x") * 3, level(0, form, label)).split("\n") == expected


# ---- files within the file -------------------------------------------------------------------------------------------

MHTML = f"""MIME-Version: 1.0
Content-Type: multipart/related; boundary="b"; type="text/html"

--b
Content-Type: text/html; charset="utf-8"
Content-Transfer-Encoding: quoted-printable

<html><body><h1>Returns</h1><p class=3Dx>{REFUNDS}</p></body></html>
--b--
"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.html", f"<html><h1>Returns</h1><p>{REFUNDS}</html>", f"# Returns\n\n{REFUNDS}"),
        ("a.xhtml", f'<?xml version="1.0"?><html xmlns="http://x"><title/><p>{REFUNDS}</p></html>', REFUNDS),
        ("a.mht", MHTML, f"# Returns\n\n{REFUNDS}"),
        (
            "a.docx",
            docx(paragraph(REFUNDS) + table(cell(paragraph("a")) + cell(paragraph("b")))),
            f"{REFUNDS}\n\n| a | b |\n| --- | --- |",
        ),
        ("a.rtf", f"{{\\rtf1\\ansi {REFUNDS}\\par}}", REFUNDS),
    ],
)
def test_inserted_files_are_read_in_their_place(name: str, content: str | bytes, expected: str) -> None:
    parts = {f"word/{name}": content, RELATIONSHIPS: related(aFChunk=f"/word/{name}")}
    alone = read_docx(docx(f'<w:altChunk {R} r:id="aFChunk"/>', parts))
    assert (alone.text, alone.warnings) == (expected, [])
    chunk = f'<w:sdt><w:sdtContent><w:altChunk {R} r:id="aFChunk"/></w:sdtContent></w:sdt>'
    assert (
        text(docx(paragraph("Introduction") + chunk + paragraph("End"), parts)) == f"Introduction\n\n{expected}\n\nEnd"
    )


# ---- what else stands in paragraphs ----------------------------------------------------------------------------------


def test_text_in_controls_insertions_boxes_and_notes_is_read_and_deleted_text_is_not() -> None:
    box = f"<w:txbxContent>{paragraph('box')}</w:txbxContent>"
    body = f"""<w:sdt><w:sdtPr><w:alias w:val="no"/></w:sdtPr>
      <w:sdtContent>{paragraph("control")}</w:sdtContent></w:sdt>
      <w:p><w:ins>{run("inserted")}</w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>
      <w:moveFrom>{run("moved away")}</w:moveFrom><w:moveTo>{run(" moved here")}</w:moveTo></w:p>
      <w:p {MC}><w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice>
      <mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r>{run("beside")}</w:p>
      <w:p><w:hyperlink>{run("link")}</w:hyperlink><w:r><w:instrText>PAGE</w:instrText></w:r>
      <w:fldSimple w:instr="DATE">{run(" today")}</w:fldSimple></w:p>"""
    notes = f"""<w:footnotes {W}><w:footnote w:type="separator">{paragraph("-")}</w:footnote>
      <w:footnote>{paragraph("note")}</w:footnote></w:footnotes>"""
    comments = f"<w:comments {W}><w:comment>{paragraph('remark')}</w:comment></w:comments>"
    parts = {
        "word/footnotes.xml": notes,
        "word/comments9.xml": comments,
        RELATIONSHIPS: related(comments="comments9.xml"),
    }
    assert text(docx(body, parts)).split("\n\n") == [
        *("control", "inserted moved here", "beside", "box", "link today", "note", "remark"),
    ]


def math(markup: str) -> str:
    return text(docx(f"<w:p {M}>{run('Let ')}<m:oMath>{markup}</m:oMath></w:p>")).removeprefix("Let ")


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (f"<m:f>{letter('num', 'a+b')}{letter('den', 'c')}</m:f>", "(a+b)/c"),
        (f"<m:sSubSup>{letter('e', 'x')}{letter('sub', 'i')}{letter('sup', 'n+1')}</m:sSubSup>", "x_i^(n+1)"),
        (f"<m:r><m:t>f</m:t></m:r><m:d>{letter('e', 'x')}{letter('e', 'y')}</m:d>", "f(x, y)"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{letter("sub", "i")}{letter("e", "k")}</m:nary>',
            "∑_ik",
        ),
        (f"<m:rad>{letter('deg', '3')}{letter('e', 'x+1')}</m:rad>", "√[3](x+1)"),
    ],
)
def test_an_equation_is_a_line(markup: str, expected: str) -> None:
    assert math(markup) == expected


def test_tables() -> None:
    body = table(
        cell(paragraph("a"), '<w:gridSpan w:val="2"/>') + cell(paragraph("b")),
        cell(paragraph("c"), '<w:vMerge w:val="restart"/>')
        + f"<w:sdt><w:sdtContent>{cell(paragraph('d') + paragraph('dd'))}</w:sdtContent></w:sdt>"
        + cell(paragraph("o") + table(cell(paragraph("i")) + cell(paragraph("j")))),
        "<w:trPr><w:del/></w:trPr>" + cell(paragraph("gone")),
        cell(paragraph(""), "<w:vMerge/>") + cell(paragraph("e|")) + cell(paragraph("")),
    )
    assert text(docx(body)) == "| a |  | b |\n| --- | --- | --- |\n| c | d dd | o i j |\n| c | e\\| |"
    assert text(docx(table(cell(paragraph("alone"))))) == "alone"


# ---- what cannot be read ---------------------------------------------------------------------------------------------


def warned(body: str, parts: dict[str, str | bytes] | None = None) -> tuple[str, dict[str, str]]:
    extracted = read_docx(docx(body, parts))
    return extracted.text, {warning.code: warning.message for warning in extracted.warnings}


def test_parts_without_text_are_named() -> None:
    chart = '<c:chart xmlns:c="http://c" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
    body = f"""{paragraph("words " * 100)}<w:p><w:r><w:object><OLEObject ProgID="Excel.Sheet.12"/></w:object></w:r>
      <w:r><w:drawing><blip/></w:drawing></w:r><w:r><w:drawing>{chart} r:id="chart1"/></w:drawing></w:r>
      <w:r><w:sym w:font="Odd" w:char="F021"/><w:sym/></w:r></w:p><w:subDoc/>"""
    parts: dict[str, str | bytes] = {"word/charts/c.xml": "<c/>", RELATIONSHIPS: related(chart1="charts/c.xml")}
    warnings = warned(body, parts)[1]
    assert {code: message.partition("(")[2].partition(")")[0] for code, message in warnings.items()} == {
        "charts_left_out": "1 chart",
        "objects_left_out": "1 embedded object",
        "unread_parts": "1 linked document, 2 symbols",
    }


# ---- damaged and hostile files ---------------------------------------------------------------------------------------


def test_damaged_and_empty_documents() -> None:
    good = docx(paragraph("words " * 500))
    assert code(good[: len(good) // 2]) == "corrupt_document"
    assert code(good.replace(b"PK\x01\x02", b"PK\x01\x03", 1)) == "corrupt_document"
    assert code(docx("<w:p>")) == "corrupt_document"
    assert code(archive({CONTENT_TYPES: "", "word/styles.xml": "<x/>"})) == "corrupt_document"
    assert code(docx(paragraph(" "))) == "no_text"


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = docx(f"<w:p><w:r><w:t>{' ' * 8_000_000}x</w:t></w:r></w:p>")
    assert len(bomb) < 100_000
    assert code(bomb) == "document_too_large"
    assert code(docx(paragraph("x"), {str(n): "" for n in range(MAX_MEMBERS)})) == "document_too_large"


def test_entities_are_neither_multiplied_nor_fetched() -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    before = f'<!DOCTYPE w:document [<!ENTITY l0 "ha">{laughs}]>'
    assert code(docx(paragraph("&l9;"), before=before)) == "corrupt_document"
    before = '<!DOCTYPE w:document [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
    assert code(docx(paragraph("&x;"), before=before)) == "corrupt_document"


def test_depth_is_bounded() -> None:
    assert code(docx("<w:sdt>" * 5000 + paragraph("x") + "</w:sdt>" * 5000)) == "corrupt_document"
    assert text(docx("<w:sdt>" * 200 + paragraph("x") + "</w:sdt>" * 200)) == "x"
    inner = paragraph("x")
    for _ in range(50):
        inner = table(cell(paragraph("a") + inner) + cell(paragraph("b")))
    assert "x" in text(docx(inner))


def test_what_is_said_once_is_not_written_a_thousand_times() -> None:
    long = "word " * 20_000
    rows = cell(paragraph(long), '<w:vMerge w:val="restart"/>') + cell(paragraph("a"))
    below = cell(paragraph(""), "<w:vMerge/>") + cell(paragraph("b"))
    assert len(text(docx(table(rows, *[below] * 2000)))) < 2 * len(long)
    assert len(numbered(item("x") * 2000, level(0, "decimal", "long " * 20_000))) < 20_000 * 20
