"""Messages of Outlook (MSG): subject, sender, recipients, date and the message. Attachments are counted.

By olefile alone: python-oxmsg, which stands on it, reads all attachments into memory, and fails at the first byte that
is not in the encoding that the message names.
"""

import datetime as dt
import io
import struct
from typing import TYPE_CHECKING

from tasks.document_error import DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, clean, joined
from tasks.ingestion.parsing.html import html_to_markdown
from tasks.ingestion.parsing.refusals import corrupt, missing, no_text
from tasks.ingestion.parsing.text_encoding import decode

if TYPE_CHECKING:
    from olefile import OleFileIO

_NAME = "an Outlook message"
# Tags of properties ([MS-OXPROPS]).
_CLASS, _SUBJECT, _BODY, _HTML, _RTF = "001A", "0037", "1000", "1013", "1009"
_SENDER, _ADDRESSES, _TO, _CC = "0C1A", ("5D01", "0C1F"), "0E04", "0E03"
_ATTACHED_TYPE, _CONTENT_ID = "370E", "3712"
_SENT, _RECEIVED, _CODEPAGES = 0x00390040, 0x0E060040, (0x3FFD0003, 0x3FDE0003)
_HEADER_BYTES = 32
_EPOCH = dt.datetime(1601, 1, 1, tzinfo=dt.UTC)
_CODECS = {20127: "ascii", 20866: "koi8_r", 21866: "koi8_u", 50220: "iso2022_jp", 51932: "euc_jp", 51949: "euc_kr",
           54936: "gb18030", 10000: "mac_roman"}  # fmt: skip
_ISO_8859 = 28590  # and the number of its part


def read_msg(data: bytes) -> Extracted:
    """Markdown: the subject as a heading, then the plain text of the message, or where there is none its HTML.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `no_text`, `missing_parser`, and what `decode` raises.
    """
    try:
        import olefile  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("olefile") from None
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as ole:
            return _read(ole)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, struct.error):
        raise corrupt(_NAME) from None  # the library raises all of these for one kind of damage or another


def _read(ole: "OleFileIO") -> Extracted:
    properties = _properties(ole)
    subject, body = _text(ole, properties, _SUBJECT).strip(), _text(ole, properties, _BODY).strip()
    if not body and (markup := _text(ole, properties, _HTML)):
        body = html_to_markdown(markup)[0].strip()
    sender = _text(ole, properties, _SENDER)
    address = next((found for tag in _ADDRESSES if "@" in (found := _text(ole, properties, tag))), "")
    shown = {
        "From": sender if address in sender else f"{sender} <{address}>".strip(),
        "To": _text(ole, properties, _TO),
        "Cc": _text(ole, properties, _CC),
        "Date": _date(properties),
    }
    head = "\n".join(f"{name}: {' '.join(value.split())}" for name, value in shown.items() if value.strip())
    if not subject and not body:
        raise no_text()
    heading = f"# {' '.join(subject.split())}" if subject else ""
    return joined([heading, head, body], subject, _warnings(ole, properties, body))


def _warnings(ole: "OleFileIO", properties: dict[int, bytes], body: str) -> list[DocumentWarning]:
    warnings = []
    if not body and (_exists(ole, _RTF) or "SMIME" in _text(ole, properties, _CLASS).upper()):
        message = "The message is encrypted, signed or rich text only, and was not read: save it as HTML or plain text."
        warnings.append(DocumentWarning("unread_parts", message))
    attached = {path[0] for path in ole.listdir(streams=True) if path[0].startswith("__attach")}
    # Pictures within the text, such as a logo under it, are named by it.
    attached = {
        name
        for name in attached
        if not (_exists(ole, _CONTENT_ID, name) and _text(ole, properties, _ATTACHED_TYPE, name).startswith("image/"))
    }
    if attached:
        message = f"Attachments were left out ({len(attached)}): save them and ingest them as files of their own."
        warnings.append(DocumentWarning("attachments_left_out", message))
    return warnings


def _properties(ole: "OleFileIO") -> dict[int, bytes]:
    """Tag and type -> the eight bytes of a value of fixed size."""
    stream = ole.openstream("__properties_version1.0").read()[_HEADER_BYTES:]
    return dict(struct.iter_unpack("<I4x8s", stream[: len(stream) // 16 * 16]))


def _stream(tag: str, kind: str, folder: str) -> list[str]:
    return [*([folder] if folder else []), f"__substg1.0_{tag}{kind}"]


def _exists(ole: "OleFileIO", tag: str, folder: str = "") -> bool:
    return any(ole.exists(_stream(tag, kind, folder)) for kind in ("001F", "001E", "0102"))


def _text(ole: "OleFileIO", properties: dict[int, bytes], tag: str, folder: str = "") -> str:
    """Of a property: as UTF-16, as bytes in the code page of the message, or of its body; "" if there is none."""
    for kind in ("001F", "001E", "0102"):
        if ole.exists(_stream(tag, kind, folder)):
            raw = ole.openstream(_stream(tag, kind, folder)).read()
            return clean(raw.decode("utf-16-le", "replace")) if kind == "001F" else decode(raw, _codec(properties, tag))
    return ""


def _codec(properties: dict[int, bytes], tag: str) -> str | None:
    order = reversed(_CODEPAGES) if tag in {_BODY, _HTML} else _CODEPAGES
    page = next((struct.unpack("<I4x", properties[name])[0] for name in order if name in properties), 0)
    if _ISO_8859 < page < _ISO_8859 + 17:
        return f"iso8859_{page - _ISO_8859}"
    return _CODECS.get(page, f"cp{page}") if page else None


def _date(properties: dict[int, bytes]) -> str:
    times = [int.from_bytes(properties.get(tag, b""), "little") for tag in (_SENT, _RECEIVED)]
    if not any(times):
        return ""
    sent = _EPOCH + dt.timedelta(microseconds=(times[0] or times[1]) // 10)
    return sent.isoformat(" ", "minutes").replace("+00:00", " UTC")
