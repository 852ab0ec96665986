"""Makes documents: PDF by hand, DOCX from XML; good ones and hostile ones."""

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CONTENT_TYPES = "[Content_Types].xml"
_PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")  # PDF 1.7, 7.6.3.3
_ID = b"0123456789abcdef"
_PERMISSIONS = -4


def pdf(pages: Sequence[str], *, title: str = "", password: str = "", drawn: bool = False) -> bytes:
    """A page for each text, a line for each of its lines. With a password, of the oldest kind (RC4, 40 bits).

    `drawn`: pages are content streams already, with the font /F1.
    """
    first = 5
    kids = " ".join(f"{first + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    for number, page in enumerate(pages):
        lines = " ".join(f"({line}) Tj T*" for line in page.split("\n")) if page else ""
        content = page if drawn else f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        objects += [
            (
                f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
                f"/Contents {first + 2 * number + 1} 0 R >>"
            ),
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    if password:
        objects.append(_encryption(password.encode()))
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    encrypt = f"/Encrypt {len(objects)} 0 R /ID [<{_ID.hex()}> <{_ID.hex()}>]" if password else ""
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R {encrypt} >>\n".encode()
    return bytes(out + f"startxref\n{start}\n%%EOF\n".encode())


def docx(body: str, parts: Mapping[str, str | bytes] | None = None, *, before: str = "") -> bytes:
    """A document of WordprocessingML; `parts` are further entries, `before` stands in front of its root."""
    document = f"{before}<w:document {W}><w:body>{body}</w:body></w:document>"
    return archive({CONTENT_TYPES: "<Types/>", "word/document.xml": document, **(parts or {})})


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return out.getvalue()


def paragraph(text: str, style: str = "") -> str:
    """Of WordprocessingML."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def _encryption(password: bytes) -> str:
    padded = (password + _PAD)[:32]
    owner = _rc4(hashlib.md5(padded, usedforsecurity=False).digest()[:5], padded)
    permissions = _PERMISSIONS.to_bytes(4, "little", signed=True)
    key = hashlib.md5(padded + owner + permissions + _ID, usedforsecurity=False).digest()[:5]
    user = _rc4(key, _PAD)
    return f"<< /Filter /Standard /V 1 /R 2 /O <{owner.hex()}> /U <{user.hex()}> /P {_PERMISSIONS} >>"


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)
