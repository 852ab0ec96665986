"""E-mail (RFC 5322, MIME), archives of it (mbox) and web pages saved as such (MHTML), read as Markdown.

Our own walk rather than the package `email`: its parser of structured headers is quadratic, its parser of parts tries
every line against every open boundary, and both raise what they do not promise. Here every byte is looked at once for
each level of nesting.

What is read: subject, sender, recipients, date; of `multipart/alternative` the plain text, or the HTML where that says
much more; all other text that is not attached; messages within the message, with a head of their own. Lines stay as they
were sent (`format=flowed` too). Left out and counted: attachments, calendars, what is encrypted among what is not.
"""

import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.html import html_to_markdown
from tasks.ingestion.parsing.refusals import no_text, refused, too_large
from tasks.ingestion.parsing.text_encoding import decode

_MAX_FIELD_BYTES = 10_000
_MAX_DEPTH = 30
_MAX_PARTS = 5_000  # of one message
_SHORT_CHARS = 300  # of plain text: less may be "please view this in HTML"
_TIMES_LONGER = 3

_FIELD = re.compile(rb"([!-9;-~]{1,80}+)[ \t]*+:([^\n]*+(?:\n[ \t][^\n]*+)*+)(?:\n|\Z)")
_FROM_LINE = re.compile(rb"(?:^|(?<=\n))From [^\n]{0,300}?\d\d:\d\d[^\n]{0,100}\n(?=>?From[ :]|[!-9;-~]{1,80}+:)")
_ESCAPED_FROM = re.compile(rb"^>(>*+From )", re.MULTILINE)
_ENCODED_WORD = re.compile(rb"=\?([^?\s*]{1,60})(?:\*[\w-]{0,20})?\?([bBqQ])\?((?:[^?]|\?(?!=)){0,1000}+)\?=")
_CHARSET = re.compile(rb"charset\*?\s*=\s*[\"']?(?:[\w-]*'[\w-]*')?([\w.:+-]+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
_META_WITHIN = 2048
_BOUNDARY = re.compile(rb"boundary\s*=\s*(?:\"([^\"]+)\"|([^\s;]+))", re.IGNORECASE)
_FIRST_BOUNDARY = re.compile(rb"\s*--([^\s-][^\n]{0,200})\n")
_NO_BASE64 = re.compile(rb"[^\s]{1,80} [^\s]{1,80}")
_PGP_SIGNATURE = re.compile(r"-----BEGIN PGP SIGNATURE-----[^-]*+-----END PGP SIGNATURE-----")
_PGP_MESSAGE = "-----BEGIN PGP MESSAGE-----"
# What Markdown takes for a heading, a line under one, or a fence.
_MARKS = re.compile(r"^( {0,3}+)(?=#{1,6}+(?:[ \t]|$)|`{3}|~{3}|(?:=++|-++)[ \t]*+$)", re.MULTILINE)

_STATEFUL = ("iso-2022-", "iso2022", "utf-7", "hz")  # of bytes below 128: they would pass as UTF-8
# Names of the mail world that Python lacks, and names that in truth mean the larger encoding.
_REALLY = {
    "iso-8859-8-i": "iso-8859-8", "iso-8859-8-e": "iso-8859-8", "iso-8859-6-i": "iso-8859-6", "gb2312": "gb18030",
    "gbk": "gb18030", "x-gbk": "gb18030", "shift_jis": "cp932", "x-sjis": "cp932", "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949", "x-mac-roman": "mac_roman", "unicode-1-1-utf-7": "utf-7", "x-euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp_ext",
}  # fmt: skip
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
_KEPT = {
    b"subject", b"from", b"to", b"date", b"content-type", b"content-transfer-encoding", b"content-disposition",
    b"content-id", b"content-location",
}  # fmt: skip
_Fields = Mapping[bytes, bytes]


@dataclass(slots=True)
class _Seen:
    """Of one message: parts so far, those that were left out, and whether it is encrypted."""

    parts: int = 0
    left_out: int = 0
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class _Body:
    """A part that is text, or a message within the message, which is Markdown already."""

    media_type: str
    data: bytes = field(repr=False)
    charset: str | None = None
    message: str | None = field(default=None, repr=False)

    def read(self) -> tuple[str, str | None]:
        """As Markdown, and the title of a page."""
        if self.message is not None:
            return self.message, None
        if self.media_type in _HTML:
            meta = _META_CHARSET.search(self.data, 0, _META_WITHIN)
            return html_to_markdown(_decoded(self.data, self.charset or (meta and meta[1].decode()) or None))
        text = _decoded(self.data, self.charset)
        return _MARKS.sub(r"\1\\", _PGP_SIGNATURE.sub("", text)).strip("\n"), None


def is_mail(head: bytes) -> bool:
    """Whether what begins so is a message, from its header alone: files of a Maildir have names without an ending."""
    head = _bare(head)
    fields, end = list[tuple[bytes, bytes]](), 0
    while match := _FIELD.match(head, end):
        fields.append((match[1], match[2]))
        end = match.end()
    if len(fields) < 2 or not (end == len(head) or head[end:].startswith((b"\n", b"\r"))):  # noqa: PLR2004
        return False
    sure = any(name.lower() in _SURE or _is_hop(name, value) for name, value in fields)
    often = len({name for name, _ in fields} & _OFTEN)
    return sure or (often > 1 and any(b"@" in value for name, value in fields if name in _OFTEN))


def is_mbox(head: bytes) -> bool:
    """Whether what begins so is an archive of messages: a line `From … 10:00:00 …`, then the header of one."""
    return _FROM_LINE.match(_bare(head)) is not None


def read_mail(data: bytes) -> Extracted:
    """A message: its subject as heading, sender, recipients and date, its text. A saved page is the page alone.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, `unknown_encoding`, `document_too_large`, `missing_parser`, and
            what `html_to_markdown` raises.
    """
    if is_mbox(data[:_MAX_FIELD_BYTES]):
        return read_mbox(data)
    bare, seen = _bare(data), _Seen()
    text, title = _message(bare, 0, len(bare), seen, 1)
    check_chars(len(text))
    return Extracted(clean(text), "markdown", title_of(title), warnings=list(_warnings(seen.left_out, 0)))


def read_mbox(data: bytes) -> Extracted:
    """The messages of an archive, one behind the other, each under a heading.

    Raises:
        DocumentFailed: as `read_mail`, if no message can be read; `document_too_large`.
    """
    bare = _bare(data)
    starts = list(_FROM_LINE.finditer(bare))
    texts, chars, left_out, failed = list[str](), 0, 0, list[DocumentFailed]()
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(bare)
        message, seen = _ESCAPED_FROM.sub(rb"\1", bare[match.end() : end]), _Seen()
        try:
            text, title = _message(message, 0, len(message), seen, 1)
        except DocumentFailed as failure:
            failed.append(failure)
            continue
        texts.append(text if title else f"# (no subject)\n\n{text}")
        left_out += seen.left_out
        chars += len(texts[-1])
        check_chars(chars)
    if not texts:
        raise failed[0] if failed else no_text()
    warnings = list(_warnings(left_out, len(failed)))
    return Extracted(clean("\n\n".join(texts)), "markdown", warnings=warnings)


def _bare(data: bytes) -> bytes:
    """With one kind of line end, without what may stand before the header."""
    unmarked = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
    return unmarked.replace(b"\r", b"\n").lstrip(b" \t\n")


def _is_hop(name: bytes, value: bytes) -> bool:
    return name.lower() == b"received" and value.lstrip().startswith((b"from ", b"by ", b"("))


def _warnings(left_out: int, messages: int) -> Iterator[DocumentWarning]:
    if left_out:
        message = f"{left_out:,} attachments were left out; save those that matter and ingest them as well."
        yield DocumentWarning("attachments_left_out", message)
    if messages:
        message = f"{messages:,} messages of the archive were left out: they are encrypted, or no text was found."
        yield DocumentWarning("messages_left_out", message)


def _message(data: bytes, start: int, end: int, seen: _Seen, level: int) -> tuple[str, str | None]:
    """Its Markdown and its subject.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, and what reading a part raises.
    """
    fields, _ = _fields(data, start, end)
    charset = _charset_of(fields)
    shown = {name: _header(fields.get(name.lower().encode(), b""), charset) for name in ("From", "To", "Date")}
    subject = title_of(_header(fields.get(b"subject", b""), charset))
    bodies = [body.read() for body in _bodies(data, start, end, seen, level)]
    texts = [text for text, _ in bodies if text.strip()]
    if seen.encrypted and not texts:
        raise refused(
            "password_protected",
            "The message is encrypted, or packed into an S/MIME signature. Save a copy of what your mail program shows, "
            "and ingest that.",
        )
    if not texts and not subject:
        raise no_text()
    if texts and level == 1 and _media_type(fields) in {"multipart/related", *_HTML} and "@" not in shown["From"]:
        return "\n\n".join(texts), bodies[0][1] or subject  # MHTML: browsers write no address
    head = "\n".join(f"{name}: {value}" for name, value in shown.items() if value)
    heading = f"{'#' * min(level, 6)} {subject}" if subject else ""
    return "\n\n".join(filter(None, (heading, head, *texts))), subject


def _fields(data: bytes, start: int, end: int) -> tuple[_Fields, int]:
    """What the header says, each field unfolded and cut to a reasonable length; and where the body begins."""
    fields = dict[bytes, bytes]()
    while match := _FIELD.match(data, start, end):
        name = match[1].lower()
        if name in _KEPT:
            fields.setdefault(name, match[2][:_MAX_FIELD_BYTES].replace(b"\n", b"").strip())
        start = match.end()
    return fields, min(start + data.startswith(b"\n", start, end), end)


def _media_type(fields: _Fields, default: str = "text/plain") -> str:
    words = fields.get(b"content-type", b"").partition(b";")[0].split()
    return words[0].decode("latin-1").lower() if words else default


def _charset_of(fields: _Fields) -> str | None:
    match = _CHARSET.search(fields.get(b"content-type", b""))
    return match[1].decode() if match else None


def _bodies(data: bytes, start: int, end: int, seen: _Seen, depth: int, default: str = "text/plain") -> list[_Body]:
    """The parts that are read, in their order."""
    seen.parts += 1
    if seen.parts > _MAX_PARTS:
        raise too_large(f"has more than {_MAX_PARTS:,} parts in one message")
    fields, body = _fields(data, start, end)
    kind = _media_type(fields, default)
    attached = seen.parts > 1 and fields.get(b"content-disposition", b"").lower().startswith(b"attachment")
    seen.encrypted = seen.encrypted or kind in _ENCRYPTED
    if kind in _SILENT:
        return []
    if depth <= _MAX_DEPTH and kind not in _ENCRYPTED:
        if kind.startswith("multipart/") and (parts := _parts(data, body, end, fields)):
            return _of_parts(data, parts, kind, seen, depth)
        if kind == "message/rfc822":
            message = _unpacked(data[body:end], fields)
            try:
                text, _ = _message(_bare(message), 0, len(_bare(message)), seen, depth + 1)
            except DocumentFailed:
                text = ""
            return [_Body(kind, b"", message=text)]
        if not attached and (kind in _PLAIN or kind in _HTML or kind.startswith("multipart/")):
            text = _unpacked(data[body:end], fields)
            if not text.lstrip().startswith(_PGP_MESSAGE.encode()):
                return [_Body(kind, text, _charset_of(fields))]
            seen.encrypted = True
    seen.left_out += 1
    return []


def _parts(data: bytes, start: int, end: int, fields: _Fields) -> list[tuple[int, int]]:
    """Where the parts of a multipart body begin and end; none if no boundary is found."""
    declared = _BOUNDARY.search(fields.get(b"content-type", b""))
    names = [(declared[1] or declared[2]).rstrip()] if declared else []
    if guess := _FIRST_BOUNDARY.match(data, start, end):
        names.append(guess[1].rstrip())
    for name in names:
        found = list[tuple[int, int]]()
        opened = None
        line = re.compile(rb"\n--" + re.escape(name) + rb"(--)?[ \t]*+(?:(?=\n)|\Z)")
        for match in line.finditer(data, max(start - 1, 0), end):
            if opened is not None:
                found.append((opened, match.start()))
            opened = min(match.end() + 1, end)
            if match[1]:
                return found
        if opened is not None:
            return [*found, (opened, end)]
    return []


def _of_parts(data: bytes, parts: list[tuple[int, int]], kind: str, seen: _Seen, depth: int) -> list[_Body]:
    default = "message/rfc822" if kind == "multipart/digest" else "text/plain"
    before = seen.left_out
    if kind == "multipart/related":
        root, *others = parts
        bodies = _bodies(data, *root, seen, depth + 1)
        for part in others:  # pictures, styles and frames of the root have a name by which it calls them
            if not {b"content-id", b"content-location"} & _fields(data, *part)[0].keys():
                bodies += _bodies(data, *part, seen, depth + 1)
        return bodies
    found = [_bodies(data, *part, seen, depth + 1, default) for part in parts]
    if kind != "multipart/alternative":
        return [body for bodies in found for body in bodies]
    texts = [bodies for bodies in found if bodies]
    if len(texts) > 0:
        seen.left_out = before + sum(False for _ in texts)
    return _best(texts)


def _best(versions: list[list[_Body]]) -> list[_Body]:
    """Of versions of the same text the first one that is plain, or the last one, if that says much more."""
    plain = next((bodies for bodies in versions if all(body.media_type not in _HTML for body in bodies)), None)
    length = _length(plain) if plain else 0
    if plain and length > _SHORT_CHARS:
        return plain
    for bodies in reversed(versions):
        if bodies is not plain and _length(bodies) > _TIMES_LONGER * length:
            return bodies
    return plain or []


def _length(bodies: list[_Body]) -> int:
    try:
        return sum(len(body.read()[0].strip()) for body in bodies)
    except DocumentFailed:
        return 0


def _unpacked(body: bytes, fields: _Fields) -> bytes:
    """Without base64 or quoted-printable. What is declared as base64 and has words in it is not."""
    match fields.get(b"content-transfer-encoding", b"").lower():
        case b"quoted-printable":
            return binascii.a2b_qp(body)
        case b"base64" if not _NO_BASE64.search(body, 0, _META_WITHIN):
            return _from_base64(body)
    return body


def _from_base64(text: bytes) -> bytes:
    for cut in (text, text.rstrip(b"= \n")[:-1]):  # broken off, or a letter too many
        try:
            return binascii.a2b_base64(cut + b"===")
        except binascii.Error:
            continue
    return b""


def _header(value: bytes, charset: str | None) -> str:
    """A field as text: encoded words (RFC 2047) decoded, other bytes as the body of the message."""
    out, waiting, waiting_charset, end = list[str](), b"", "", 0
    for match in _ENCODED_WORD.finditer(value):
        between, name = value[end : match.start()], match[1].decode("latin-1").lower()
        if between.strip() or name != waiting_charset:  # a character may be divided between two words
            out.append(_decoded(waiting, waiting_charset))
            waiting = b""
            if between.strip() or not end:
                out.append(_decoded(between, charset))
        waiting_charset, end = name, match.end()
        waiting += _from_base64(match[3]) if match[2] in b"bB" else binascii.a2b_qp(match[3], header=True)
    return " ".join("".join((*out, _decoded(waiting, waiting_charset), _decoded(value[end:], charset))).split())


def _decoded(data: bytes, charset: str | None) -> str:
    name = (charset or "").lower()
    name = _REALLY.get(name, name)
    if name.startswith(_STATEFUL):
        try:
            return clean(data.decode(name))
        except (LookupError, ValueError):
            name = ""
    return decode(data, name or None)
