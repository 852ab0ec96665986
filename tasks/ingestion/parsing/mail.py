"""E-mail (RFC 5322, MIME), archives of it (mbox) and web pages saved as such (MHTML), read as Markdown.

What is read: subject, sender, recipients, date; of `multipart/alternative` the plain text, or the HTML where that says
much more; all other text that is not attached; messages within the message, with a head of their own. Lines stay as
they were sent (`format=flowed` too). Left out and counted: attachments, calendars, what is encrypted beside other text.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.html import declared_charset, html_to_markdown
from tasks.ingestion.parsing.html_to_markdown import without_marks
from tasks.ingestion.parsing.mime import FIELD, MimePart, bare, decoded, header, part_of, parts_of
from tasks.ingestion.parsing.refusals import no_text, refused, too_large

_HEAD_BYTES = 10_000
_MAX_DEPTH = 30
_MAX_PARTS = 5_000  # of one message
_SHORT_CHARS = 300  # of plain text: less may be "please view this in HTML"
_TIMES_LONGER = 3

_FROM_LINE = re.compile(rb"(?:^|(?<=\n))From [^\n]{0,300}?\d\d:\d\d[^\n]{0,100}\n(?=>?From[ :]|[!-9;-~]{1,80}+:)")
_ESCAPED_FROM = re.compile(rb"^>(>*+From )", re.MULTILINE)
_BEFORE_HEADER = re.compile(rb"[ \t\n]*+(?:>?From [^\n]*+\n)?")
_CUT_OFF = re.compile(rb"[!-9;-~]{0,80}|\n.*+", re.DOTALL)  # behind a header: nothing, half a name, or a blank line
_PGP_SIGNATURE = re.compile(r"-----BEGIN PGP SIGNATURE-----(?:[^-]|-(?!-))*+-----END PGP SIGNATURE-----")
_PGP_MESSAGE = b"-----BEGIN PGP MESSAGE-----"

_PLAIN = {
    "text", "text/plain", "text/enriched", "text/richtext", "text/markdown", "text/x-markdown", "text/x-patch",
    "text/x-diff",
}  # fmt: skip
_HTML = {"text/html", "application/xhtml+xml"}
_ENCRYPTED = {"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"}
# Parts without words of anybody. Signatures belong to what they sign; reports are said in words beside.
_SILENT = {
    "application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-keys",
    "message/delivery-status", "message/disposition-notification", "message/feedback-report", "text/rfc822-headers",
}  # fmt: skip
_SURE = {b"message-id", b"mime-version", b"return-path", b"delivered-to"}
_OFTEN = {b"From", b"To", b"Subject", b"Date", b"Cc", b"Sender", b"Reply-To"}


@dataclass(slots=True)
class _Seen:
    """Of a file: parts that were left out, and the encodings that were guessed; of a message: parts, and a secret."""

    left_out: int = 0
    guesses: Counter[str] = field(default_factory=Counter)
    parts: int = 0
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class _Body:
    """A part that is text; or a message within the message, which is Markdown already and of no media type."""

    media_type: str
    data: bytes = field(repr=False)
    charset: str = ""
    message: str = field(default="", repr=False)

    def read(self, seen: _Seen) -> tuple[str, str | None]:
        """As Markdown, and the title of a page."""
        if self.media_type in _HTML:
            charset = self.charset or declared_charset(self.data)
            return html_to_markdown(decoded(self.data, charset, seen.guesses))
        text = _PGP_SIGNATURE.sub("", decoded(self.data, self.charset, seen.guesses))
        return self.message or without_marks(text).strip("\n"), None


def is_mail(head: bytes) -> bool:
    """Whether what begins so is a message, from its header alone: files of a Maildir have names without an ending."""
    head = bare(head)
    fields, end = list[tuple[bytes, bytes]](), 0
    while match := FIELD.match(head, end):
        fields.append((match[1], match[2]))
        end = match.end()
    if not _CUT_OFF.fullmatch(head, end):
        return False
    if any(name.lower() in _SURE or _is_hop(name, value) for name, value in fields):
        return len(fields) > 1
    often = [(name, value) for name, value in fields if name in _OFTEN]
    return len({name for name, _ in often}) > 1 and any(b"@" in value for _, value in often)


def is_mbox(head: bytes) -> bool:
    """Whether what begins so is an archive of messages: a line `From … 10:00:00 …`, then the header of one."""
    return _FROM_LINE.match(bare(head)) is not None


def read_mail(data: bytes) -> Extracted:
    """A message: its subject as heading, sender, recipients and date, its text. A saved page is the page alone.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, `document_too_large`, `missing_parser`, and what
            `html_to_markdown` raises.
    """
    if is_mbox(data[:_HEAD_BYTES]):
        return read_mbox(data)
    message, seen = bare(data), _Seen()
    text, title = _message(part_of(message, 0, len(message)), seen, 1)
    check_chars(len(text))
    return Extracted(clean(text), "markdown", title_of(title), warnings=list(_warnings(seen.left_out, 0)))


def read_mbox(data: bytes) -> Extracted:
    """The messages of an archive, one behind the other, each under a heading.

    Raises:
        DocumentFailed: as `read_mail`, if no message can be read; `document_too_large`.
    """
    archive, seen = bare(data), _Seen()
    begins = list(_FROM_LINE.finditer(archive))
    ends = [*(match.start() for match in begins[1:]), len(archive)]
    texts, chars, failed = list[str](), 0, list[DocumentFailed]()
    for match, end in zip(begins, ends, strict=False):
        message = _ESCAPED_FROM.sub(rb"\1", archive[match.end() : end])
        seen.parts, seen.encrypted = 0, False
        try:
            text, title = _message(part_of(message, 0, len(message)), seen, 1)
        except DocumentFailed as failure:
            failed.append(failure)
            continue
        texts.append(text if title else f"# (no subject)\n\n{text}")
        chars += len(texts[-1])
        check_chars(chars)
    if not texts:
        raise failed[0] if failed else no_text()
    warnings = list(_warnings(seen.left_out, len(failed)))
    return Extracted(clean("\n\n".join(texts)), "markdown", warnings=warnings)


def _is_hop(name: bytes, value: bytes) -> bool:
    return name.lower() == b"received" and value.lstrip().startswith((b"from ", b"by ", b"("))


def _warnings(left_out: int, messages: int) -> Iterator[DocumentWarning]:
    if left_out:
        message = f"{left_out:,} attachments were left out; save those that matter and ingest them as well."
        yield DocumentWarning("attachments_left_out", message)
    if messages:
        message = f"{messages:,} messages of the archive were left out: they are encrypted, or no text was found."
        yield DocumentWarning("unread_parts", message)


def _message(part: MimePart, seen: _Seen, depth: int) -> tuple[str, str | None]:
    """Its Markdown and its title.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, and what reading a part raises if there is no other text.
    """
    shown = {name: header(part, name.encode(), seen.guesses) for name in ("From", "To", "Date")}
    subject = title_of(header(part, b"Subject", seen.guesses))
    texts, page_title = _texts(_bodies(part, seen, depth), seen)
    if seen.encrypted and not texts:
        raise refused(
            "password_protected",
            "The message is encrypted, or packed into an S/MIME signature. Save a copy of what your mail program "
            "shows, and ingest that.",
        )
    if not texts and not subject:
        raise no_text()
    is_page = part.media_type == "multipart/related" or b"content-location" in part.fields
    if depth == 1 and is_page and texts and "@" not in shown["From"]:  # MHTML: browsers write no address
        return "\n\n".join(texts), page_title or subject
    head = "\n".join(f"{name}: {value}" for name, value in shown.items() if value)
    heading = f"{'#' if depth == 1 else '##'} {subject}" if subject else ""
    return "\n\n".join(filter(None, (heading, head, *texts))), subject


def _texts(bodies: list[_Body], seen: _Seen) -> tuple[list[str], str | None]:
    """Those that have text, as Markdown, and the title of the first page."""
    texts, title, failed = list[str](), None, list[DocumentFailed]()
    for body in bodies:
        try:
            text, title_here = body.read(seen)
        except DocumentFailed as failure:
            failed.append(failure)
            continue
        title = title or title_here
        if text.strip():
            texts.append(text)
    if failed and not texts:
        raise failed[0]
    seen.left_out += len(failed)
    return texts, title


def _bodies(part: MimePart, seen: _Seen, depth: int, default: str = "text/plain") -> list[_Body]:
    """What is read of the part, in its order."""
    seen.parts += 1
    if seen.parts > _MAX_PARTS:
        raise too_large(f"has more than {_MAX_PARTS:,} parts in one message")
    kind = part.media_type or default
    attached = seen.parts > 1 and part.says(b"content-disposition").lower().startswith(b"attachment")
    seen.encrypted = seen.encrypted or kind in _ENCRYPTED
    if kind in _SILENT:
        return []
    if depth <= _MAX_DEPTH and kind not in _ENCRYPTED:
        if kind.startswith("multipart/") and (parts := parts_of(part)):
            return _of_parts(parts, kind, seen, depth)
        if kind == "message/rfc822":
            return _forwarded(part, seen, depth)
        if not attached and (kind in _PLAIN or kind in _HTML or kind.startswith("multipart/")):
            text = part.unpacked()
            if not text.lstrip().startswith(_PGP_MESSAGE):
                return [_Body(kind, text, part.charset)]
            seen.encrypted = True
    seen.left_out += 1
    return []


def _forwarded(part: MimePart, seen: _Seen, depth: int) -> list[_Body]:
    """A message within the message, with its own head."""
    data, start, end = part.data, part.body, part.end
    if part.encoding in {b"base64", b"quoted-printable"}:
        data = bare(part.unpacked())
        start, end = 0, len(data)
    begin = _BEFORE_HEADER.match(data, start, end)
    try:
        text, _ = _message(part_of(data, begin.end() if begin else start, end), seen, depth + 1)
    except DocumentFailed:
        seen.left_out += 1
        return []
    return [_Body("", b"", message=text)]


def _of_parts(parts: list[MimePart], kind: str, seen: _Seen, depth: int) -> list[_Body]:
    if kind == "multipart/related":  # pictures, styles and frames of the root have a name by which it calls them
        named = {b"content-id", b"content-location"}
        parts = [parts[0], *(part for part in parts[1:] if not named & part.fields.keys())]
    default = "message/rfc822" if kind == "multipart/digest" else "text/plain"
    before = seen.left_out
    found = [_bodies(part, seen, depth + 1, default) for part in parts]
    if kind != "multipart/alternative" or not any(found):
        return [body for bodies in found for body in bodies]
    seen.left_out = max(before, seen.left_out - found.count([]))  # calendars and the like say the same once more
    return _best([bodies for bodies in found if bodies], seen)


def _best(versions: list[list[_Body]], seen: _Seen) -> list[_Body]:
    """Of versions of the same text the first one that is plain; or the last one, if that says much more."""
    plain = next((bodies for bodies in versions if all(body.media_type not in _HTML for body in bodies)), [])
    length = _length(plain, seen)
    if length <= _SHORT_CHARS:
        for bodies in reversed(versions):
            if _length(bodies, seen) > _TIMES_LONGER * length:
                return bodies
    return plain


def _length(bodies: list[_Body], seen: _Seen) -> int:
    try:
        return sum(len(body.read(seen)[0].strip()) for body in bodies)
    except DocumentFailed:
        return 0
