"""E-mail (RFC 5322, MIME), archives of it (mbox) and web pages saved as such (MHTML), read as Markdown.

What is read: subject, sender, recipients, date; of `multipart/alternative` the plain text, or the HTML where that says
much more; all other text that is not attached; messages within the message, with a head of their own. Lines stay as
they were sent (`format=flowed` too). Left out and counted: attachments, calendars, what is encrypted beside other text.
"""

import io
import re
from collections import Counter
from dataclasses import dataclass, field
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser, BytesParser
from email.policy import Compat32
from typing import Any

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, clean, joined, title_of
from tasks.ingestion.parsing.html import declared_charset, html_to_markdown
from tasks.ingestion.parsing.html_to_markdown import without_marks
from tasks.ingestion.parsing.refusals import corrupt, no_text, refused, too_large
from tasks.ingestion.parsing.text_encoding import as_declared, table_encoding

_NAME = "an e-mail"
_HEAD_BYTES = 10_000
_MAX_FIELD_CHARS = 10_000
_MAX_PARTS = 5_000  # of one message
_MAX_GUESSES = 100  # of encodings in one file, each some 20 ms; what follows is taken for what was found most
_TIMES_LONGER = 3
_ODD = (LookupError, ValueError, TypeError, AttributeError, RecursionError, MessageError)  # raised by the library

_FROM_LINE = re.compile(rb"(?:^|(?<=\n))From [^\n]{0,300}?\d\d:\d\d[^\n]{0,100}\n(?=>?From[ :]|[!-9;-~]{1,80}+:)")
_ESCAPED_FROM = re.compile(rb"^>(>*+From )", re.MULTILINE)
_PGP_SIGNATURE = re.compile(r"-----BEGIN PGP SIGNATURE-----(?:[^-]|-(?!-))*+-----END PGP SIGNATURE-----")
_PGP_MESSAGE = b"-----BEGIN PGP MESSAGE-----"

# Beginnings of media types: what follows may lack its semicolon.
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = (
    *_HTML, "text/plain", "text/enriched", "text/richtext", "text/markdown", "text/x-markdown", "text/x-patch",
    "text/x-diff",
)  # fmt: skip
_ENCRYPTED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
_MESSAGE = ("message/rfc822", "message/news")
# Parts without words of anybody. Signatures belong to what they sign; reports are said in words beside.
_SILENT = ("application/pgp-", "application/pkcs7-sig", "application/x-pkcs7-sig", "message/", "text/rfc822-headers")
_SURE = {"message-id", "mime-version", "return-path", "delivered-to"}
_OFTEN = {"From", "To", "Subject", "Date", "Cc", "Sender", "Reply-To"}


class _Policy(Compat32):
    """Fields unfolded, as they stand, and cut: the library reads their parameters in time by the square of a length."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value.replace("\n", "").strip()[:_MAX_FIELD_CHARS]

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002
        return value


@dataclass(slots=True)
class _Seen:
    """Of a file: parts that were left out, the encodings that were guessed; of a message: why parts failed."""

    left_out: int = 0
    guesses: Counter[str] = field(default_factory=Counter)
    failed: list[DocumentFailed] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Text:
    """A part as Markdown, and the title of a page."""

    text: str = field(repr=False)
    title: str | None = field(default=None, repr=False)
    is_html: bool = False


def is_mail(head: bytes) -> bool:
    """Whether what begins so is a message, from its header alone: files of a Maildir have names without an ending."""
    whole_lines = head[: head.rfind(b"\n") + 1]
    message = BytesHeaderParser(policy=_Policy()).parsebytes(_bare(whole_lines))
    fields = message.items()
    if message.defects:  # a line of the header is no field
        return False
    hops = [value.startswith(("from ", "by ", "(")) for name, value in fields if name.lower() == "received"]
    if not _SURE.isdisjoint(name.lower() for name, _ in fields) or any(hops):
        return len(fields) > 1
    often = dict(field for field in fields if field[0] in _OFTEN)
    return len(often) > 1 and any("@" in value for value in often.values())


def is_mbox(head: bytes) -> bool:
    """Whether what begins so is an archive of messages: a line `From … 10:00:00 …`, then the header of one."""
    return _FROM_LINE.match(_bare(head)) is not None


def read_mail(data: bytes) -> Extracted:
    """A message: its subject as heading, sender, recipients and date, its text. A saved page is the page alone.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, `corrupt_document`, `document_too_large`, `missing_parser`, and
            what `html_to_markdown` raises.
    """
    if is_mbox(data[:_HEAD_BYTES]):
        return read_mbox(data)
    seen = _Seen()
    text, title = _message(_parsed(_bare(data)), seen)
    return joined([text], title, _warnings(seen.left_out, 0))


def read_mbox(data: bytes) -> Extracted:
    """The messages of an archive, one behind the other, each under a heading.

    Raises:
        DocumentFailed: as `read_mail`, if no message can be read; `document_too_large`.
    """
    archive, seen = _bare(data), _Seen()
    begins = list(_FROM_LINE.finditer(archive))
    ends = [*(match.start() for match in begins[1:]), len(archive)]
    texts, failed = list[str](), list[DocumentFailed]()
    for match, end in zip(begins, ends, strict=False):
        try:
            text, title = _message(_parsed(_ESCAPED_FROM.sub(rb"\1", archive[match.end() : end])), seen)
        except DocumentFailed as failure:
            failed.append(failure)
        else:
            texts.append(text if title else f"# (no subject)\n\n{text}")
    if failed and not texts:
        raise failed[0]
    return joined(texts, warnings=_warnings(seen.left_out, len(failed)))


def _bare(data: bytes) -> bytes:
    """With one kind of line end, without what may stand before the header."""
    unmarked = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
    return unmarked.replace(b"\r", b"\n").lstrip(b" \t\n")


def _parsed(data: bytes) -> Message:
    """As the library reads it, within limits.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`.
    """
    try:
        message = BytesParser(policy=_Policy()).parse(io.BytesIO(data))  # `parsebytes` holds 4 bytes a letter
        parts = sum(1 for _ in message.walk())
    except _ODD:
        raise corrupt(_NAME) from None
    if parts > _MAX_PARTS:
        raise too_large(f"has {parts:,} parts in one message, more than {_MAX_PARTS:,}")
    return message


def _inner(part: Message) -> list[Message]:
    parts: Any = part.get_payload() if part.is_multipart() else []
    return list(parts)


def _warnings(left_out: int, messages: int) -> list[DocumentWarning]:
    attached = f"{left_out:,} attachments were left out; save those that matter and ingest them as well."
    unread = f"{messages:,} messages of the archive were left out: they are encrypted, or no text was found."
    said = [(left_out, "attachments_left_out", attached), (messages, "unread_parts", unread)]
    return [DocumentWarning(code, message) for number, code, message in said if number]


def _message(message: Message, seen: _Seen, mark: str = "#") -> tuple[str, str | None]:
    """Its Markdown and its title.

    Raises:
        DocumentFailed: `no_text`, and what reading a part raises if there is no other text.
    """
    del message["Content-Disposition"]  # of the whole says nothing
    shown = {name: _header(message, name, seen) for name in ("From", "To", "Date")}
    subject = title_of(_header(message, "Subject", seen))
    seen.failed.clear()
    texts = [found for found in _texts(message, seen) if found.text.strip()]
    if not texts and (seen.failed or not subject):
        raise (*seen.failed, no_text())[0]
    body = "\n\n".join(found.text for found in texts)
    is_page = message.get_content_type() == "multipart/related" or "content-location" in message
    if mark == "#" and is_page and body and "@" not in shown["From"]:  # MHTML: browsers write no address
        return body, next((found.title for found in texts if found.title), subject)
    head = "\n".join(f"{name}: {value}" for name, value in shown.items() if value)
    return "\n\n".join(filter(None, (f"{mark} {subject}" if subject else "", head, body))), subject


def _texts(part: Message, seen: _Seen) -> list[_Text]:
    """What is read of the part, in its order."""
    kind = part.get_content_type()
    if kind.startswith("multipart/") and not kind.startswith(_ENCRYPTED) and (parts := _inner(part)):
        return _of_parts(parts, kind, seen)
    attached = part.get_content_disposition() == "attachment"
    if kind.startswith(_MESSAGE + _ENCRYPTED) or (kind.startswith(("multipart/", *_TEXT)) and not attached):
        try:
            return [_read(part, kind, seen)]
        except DocumentFailed as failure:
            seen.failed.append(failure)
        except RecursionError:  # a message within a message within a message
            seen.failed.append(corrupt(_NAME))
    elif kind.startswith(_SILENT):
        return []
    seen.left_out += 1
    return []


def _of_parts(parts: list[Message], kind: str, seen: _Seen) -> list[_Text]:
    if kind == "multipart/related":  # pictures, styles and frames of the root have a name by which it calls them
        root = _texts(parts[0], seen)
        kinds = () if _length(root) else _HTML  # a root without a word is a frameset
        named = [part for part in parts[1:] if "content-id" in part or "content-location" in part]
        rest = [part for part in parts[1:] if part not in named or part.get_content_type().startswith(kinds)]
        return [*root, *(text for part in rest for text in _texts(part, seen))]
    if kind != "multipart/alternative":
        return [text for part in parts for text in _texts(part, seen)]
    # Of versions of the same text the first one that is plain; or the last one, if that says much more.
    plain, richer = list[_Text](), list[_Text]()
    for part in sorted(parts, key=lambda part: part.get_content_type() != "text/plain"):
        if part.get_content_type().startswith(("multipart/", *_TEXT)):  # calendars and the like say the same once more
            version = _texts(part, seen)
            if not plain and not any(text.is_html for text in version):
                plain = version
            elif _length(version) > _TIMES_LONGER * _length(plain):
                richer = version
    return richer or plain


def _length(texts: list[_Text]) -> int:
    return sum(len(found.text.strip()) for found in texts)


def _read(part: Message, kind: str, seen: _Seen) -> _Text:
    if kind.startswith(_MESSAGE):
        (message,) = _inner(part)
        if part.get("content-transfer-encoding", "").lower() == "base64":
            message["Content-Transfer-Encoding"] = "base64"  # the library looks for no such thing, and finds no header
            message = _parsed(_bare(_unpacked(message)[0]))
        return _Text(_message(message, seen, "##")[0])
    data, charset = _unpacked(part)
    if kind.startswith(_HTML):
        text, title = html_to_markdown(_decoded(data, charset or declared_charset(data), seen))
        seen.failed += [] if text else [no_text()]  # a picture says nothing of what it shows
        return _Text(text, title, is_html=True)
    if kind.startswith(_ENCRYPTED) or data.lstrip().startswith(_PGP_MESSAGE):
        raise refused(
            "password_protected",
            "The message is encrypted, or packed into an S/MIME signature. Save a copy of what your mail program "
            "shows, and ingest that.",
        )
    return _Text(without_marks(_PGP_SIGNATURE.sub("", _decoded(data, charset, seen))).strip("\n"))


def _unpacked(part: Message) -> tuple[bytes, str]:
    """Without base64 or quoted-printable, and the charset as declared."""
    try:
        data: Any = part.get_payload(decode=True)
        return data or b"", part.get_content_charset("")
    except _ODD:
        raise corrupt(_NAME) from None


def _header(message: Message, name: str, seen: _Seen) -> str:
    """A field as text: encoded words (RFC 2047) decoded, other bytes as the body of the message."""
    value = message.get(name, "").encode("ascii", "surrogateescape").decode("latin-1")  # a letter for each byte
    try:
        charset, words = message.get_content_charset(""), decode_header(value)
    except _ODD:
        charset, words = "", [(value, None)]
    if charset.startswith("utf"):
        charset = ""  # UTF-8 is found, and no header is of the wider ones
    texts = []
    for word, declared in words:
        data = word.encode("latin-1") if isinstance(word, str) else word
        texts.append(_decoded(data, declared.partition("*")[0] if declared else charset, seen))
    return " ".join("".join(texts).split())


def _decoded(data: bytes, charset: str, seen: _Seen) -> str:
    """As declared unless UTF-8 itself says otherwise, else as guessed."""
    name = as_declared(data, charset)
    if name is None and seen.guesses.total() < _MAX_GUESSES:
        name, _ = table_encoding(data)
        seen.guesses[name] += 1
    return clean(data.decode(name or seen.guesses.most_common(1)[0][0], errors="replace"))
