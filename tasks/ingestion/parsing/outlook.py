"""Messages of Outlook (MSG): subject, sender, recipients, date and the message. Attachments are counted.

By olefile alone: python-oxmsg, which stands on it, reads all attachments into memory, and fails at the first byte that
is not in the encoding that the message names.
"""

import datetime as dt
import io
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import Extracted, clean, joined
from tasks.ingestion.parsing.html import html_to_markdown
from tasks.ingestion.parsing.html_to_markdown import without_marks
from tasks.ingestion.parsing.refusals import corrupt, missing, refused
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
_TIMES_LONGER = 3  # than the plain text, which then only says where to read the message


def read_msg(data: bytes) -> Extracted:
    """Markdown: the subject as a heading, then the plain text of the message, or its HTML where that says much more.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `no_text`, `password_protected`, `missing_parser`, and
            what `decode` raises.
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
    subject, body = _text(ole, properties, _SUBJECT).strip(), _body(ole, properties)
    sender = _text(ole, properties, _SENDER)
    address = next((found for tag in _ADDRESSES if "@" in (found := _text(ole, properties, tag))), "")
    shown = {
        "From": sender if address in sender else f"{sender} <{address}>".strip(),
        "To": _text(ole, properties, _TO),
        "Cc": _text(ole, properties, _CC),
        "Date": _date(properties),
    }
    head = "\n".join(f"{name}: {' '.join(value.split())}" for name, value in shown.items() if value.strip())
    heading = f"# {' '.join(subject.split())}" if subject else ""
    blocks = [heading, head, body] if subject or body else []
    return joined(blocks, subject, unread={"attachment": sum(_attached(ole, properties))})


def _body(ole: "OleFileIO", properties: dict[int, bytes]) -> str:
    plain = without_marks(_text(ole, properties, _BODY).strip())
    try:
        html = html_to_markdown(_text(ole, properties, _HTML))[0].strip()
    except DocumentFailed:
        if not plain:
            raise
        html = ""
    encrypted = "SMIME" in _text(ole, properties, _CLASS).upper()
    if not (plain or html) and (encrypted or _raw(ole, _RTF)[1]):
        message = "The message is encrypted, signed or rich text only: save it as HTML or plain text, and ingest that."
        raise refused("password_protected" if encrypted else "no_text", message)
    return html if len(html) >= _TIMES_LONGER * len(plain) else plain


def _attached(ole: "OleFileIO", properties: dict[int, bytes]) -> Iterator[bool]:
    """True for each attachment; pictures within the text, such as a logo under it, are named by it."""
    for name in {path[0] for path in ole.listdir(streams=True) if path[0].startswith("__attach")}:
        pictured = _text(ole, properties, _ATTACHED_TYPE, name).startswith("image/")
        yield not (pictured and _raw(ole, _CONTENT_ID, name)[1])


def _properties(ole: "OleFileIO") -> dict[int, bytes]:
    """Tag and type -> the eight bytes of a value of fixed size."""
    stream = ole.openstream("__properties_version1.0").read()[_HEADER_BYTES:]
    return dict(struct.iter_unpack("<I4x8s", stream[: len(stream) // 16 * 16]))


def _raw(ole: "OleFileIO", tag: str, folder: str = "") -> tuple[str, bytes]:
    """The type and the value of a property; empty if there is none."""
    for kind in ("001F", "001E", "0102"):
        path = f"{folder}/__substg1.0_{tag}{kind}".lstrip("/")
        if ole.exists(path):
            return kind, ole.openstream(path).read()
    return "", b""


def _text(ole: "OleFileIO", properties: dict[int, bytes], tag: str, folder: str = "") -> str:
    """Of a property: as UTF-16, as bytes in the code page of the message, or of its body; "" if there is none."""
    kind, raw = _raw(ole, tag, folder)
    return clean(raw.decode("utf-16-le", "replace")) if kind == "001F" else decode(raw, _codec(properties, tag))


def _codec(properties: dict[int, bytes], tag: str) -> str:
    order = reversed(_CODEPAGES) if tag in {_BODY, _HTML} else _CODEPAGES
    page = next((struct.unpack("<I4x", properties[name])[0] for name in order if name in properties), 0)
    return f"cp{page}"


def _date(properties: dict[int, bytes]) -> str:
    times = [int.from_bytes(properties.get(tag, b""), "little") for tag in (_SENT, _RECEIVED)]
    if not any(times):
        return ""
    sent = _EPOCH + dt.timedelta(microseconds=(times[0] or times[1]) // 10)
    return sent.isoformat(" ", "minutes").replace("+00:00", " UTC")
