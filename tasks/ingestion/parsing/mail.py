"""E-mail (RFC 5322, MIME), archives of it (mbox) and web pages saved as such (MHTML), read as Markdown.

Our own walk rather than the package `email`: its parser of structured headers is quadratic, its parser of parts tries
every line against every open boundary, and both raise what they do not promise. Here every byte is looked at once for
each level of nesting.

What is read: subject, sender, recipients, date; of `multipart/alternative` the plain text, or the HTML where that says
much more; all other text that is not attached; messages within the message, with a head of their own. Lines stay as
they were sent (`format=flowed` too). Left out and counted: attachments, calendars, what is encrypted beside other text.
"""

import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.html import html_to_markdown
from tasks.ingestion.parsing.refusals import no_text, refused, too_large
from tasks.ingestion.parsing.text_encoding import table_encoding

_MAX_FIELD_BYTES = 10_000
_MAX_DEPTH = 30
_MAX_PARTS = 5_000  # of one message
_SHORT_CHARS = 300  # of plain text: less may be "please view this in HTML"
_TIMES_LONGER = 3
_MAX_GUESSES = 100  # of encodings in one file, each some 20 ms; what follows is taken for what was found most

_FIELD = re.compile(rb"([!-9;-~]{1,80}+)[ \t]*+:([^\n]*+(?:\n[ \t][^\n]*+)*+)(?:\n|\Z)")
_FROM_LINE = re.compile(rb"(?:^|(?<=\n))From [^\n]{0,300}?\d\d:\d\d[^\n]{0,100}\n(?=>?From[ :]|[!-9;-~]{1,80}+:)")
_ESCAPED_FROM = re.compile(rb"^>(>*+From )", re.MULTILINE)
_ENCODED_WORD = re.compile(rb"=\?([^?\s*]{1,60})(?:\*[\w-]{0,20})?\?([bBqQ])\?((?:[^?]|\?(?!=)){0,1000}+)\?=")
_CHARSET = re.compile(rb"charset\*?\s*=\s*[\"']?(?:[\w-]*'[\w-]*')?([\w.:+-]+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
_META_WITHIN = 2048
_BOUNDARY = re.compile(rb"boundary\s*=\s*(?:\"([^\"]+)\"|([^\s;]+))", re.IGNORECASE)
_FIRST_BOUNDARY = re.compile(rb"\s*--([^\s-][^\n]{0,200})\n")
_BEFORE_HEADER = re.compile(rb"[ \t\n]*+(?:>?From [^\n]*+\n)?")
_CUT_OFF = re.compile(rb"[!-9;-~]{0,80}|\n.*+", re.DOTALL)  # behind a header: nothing, half a name, or a blank line
_WORDS = re.compile(rb"\S \S")
_PGP_SIGNATURE = re.compile(r"-----BEGIN PGP SIGNATURE-----[^-]*+-----END PGP SIGNATURE-----")
_PGP_MESSAGE = b"-----BEGIN PGP MESSAGE-----"
# What Markdown takes for a heading, a line under one, or a fence.
_MARKS = re.compile(r"^( {0,3}+)(?=#{1,6}+(?:[ \t]|$)|`{3}|~{3}|(?:=++|-++)[ \t]*+$)", re.MULTILINE)

_LIKE_UTF8 = ("iso-2022-", "iso2022", "utf-7", "hz", "utf-16", "utf-32")  # bytes of these may pass as UTF-8
# Names of the mail world that Python lacks, and names that in truth mean the larger encoding.
_REALLY = {
    "iso-8859-8-i": "iso-8859-8", "iso-8859-8-e": "iso-8859-8", "iso-8859-6-i": "iso-8859-6", "gb2312": "gb18030",
    "gbk": "gb18030", "x-gbk": "gb18030", "shift_jis": "cp932", "x-sjis": "cp932", "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949", "x-mac-roman": "mac_roman", "unicode-1-1-utf-7": "utf-7", "x-euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp_ext", "iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252",
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


class _Part(NamedTuple):
    """A message or a part of one: where it ends, where its body begins, and what its header says, unfolded."""

    data: bytes
    body: int
    end: int
    fields: Mapping[bytes, bytes]

    def says(self, name: bytes) -> bytes:
        return self.fields.get(name, b"")

    @property
    def media_type(self) -> str:
        words = self.says(b"content-type").partition(b";")[0].split()
        return words[0].decode("latin-1").lower() if words else ""

    @property
    def charset(self) -> str:
        match = _CHARSET.search(self.says(b"content-type"))
        return match[1].decode() if match else ""

    def unpacked(self) -> bytes:
        """Its body without base64 or quoted-printable. What is declared as base64 and has words in it is not."""
        body = self.data[self.body : self.end]
        match self.says(b"content-transfer-encoding").lower():
            case b"quoted-printable":
                return binascii.a2b_qp(body)
            case b"base64" if not _WORDS.search(body, 0, _META_WITHIN):
                return _from_base64(body)
        return body


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
            meta = _META_CHARSET.search(self.data, 0, _META_WITHIN)
            return html_to_markdown(_decoded(self.data, self.charset or (meta[1].decode() if meta else ""), seen))
        text = _PGP_SIGNATURE.sub("", _decoded(self.data, self.charset, seen))
        return self.message or _MARKS.sub(r"\1\\", text).strip("\n"), None


def is_mail(head: bytes) -> bool:
    """Whether what begins so is a message, from its header alone: files of a Maildir have names without an ending."""
    head = _bare(head)
    fields, end = list[tuple[bytes, bytes]](), 0
    while match := _FIELD.match(head, end):
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
    return _FROM_LINE.match(_bare(head)) is not None


def read_mail(data: bytes) -> Extracted:
    """A message: its subject as heading, sender, recipients and date, its text. A saved page is the page alone.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, `document_too_large`, `missing_parser`, and what
            `html_to_markdown` raises.
    """
    if is_mbox(data[:_MAX_FIELD_BYTES]):
        return read_mbox(data)
    bare, seen = _bare(data), _Seen()
    text, title = _message(_part(bare, 0, len(bare)), seen, 1)
    check_chars(len(text))
    return Extracted(clean(text), "markdown", title_of(title), warnings=list(_warnings(seen.left_out, 0)))


def read_mbox(data: bytes) -> Extracted:
    """The messages of an archive, one behind the other, each under a heading.

    Raises:
        DocumentFailed: as `read_mail`, if no message can be read; `document_too_large`.
    """
    bare, seen = _bare(data), _Seen()
    begins = list(_FROM_LINE.finditer(bare))
    ends = [*(match.start() for match in begins[1:]), len(bare)]
    texts, chars, failed = list[str](), 0, list[DocumentFailed]()
    for match, end in zip(begins, ends, strict=bool(begins)):
        message = _ESCAPED_FROM.sub(rb"\1", bare[match.end() : end])
        seen.parts, seen.encrypted = 0, False
        try:
            text, title = _message(_part(message, 0, len(message)), seen, 1)
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


def _message(part: _Part, seen: _Seen, depth: int) -> tuple[str, str | None]:
    """Its Markdown and its title.

    Raises:
        DocumentFailed: `no_text`, `password_protected`, and what reading a part raises if there is no other text.
    """
    shown = {name: _header(part, name.encode(), seen) for name in ("From", "To", "Date")}
    subject = title_of(_header(part, b"Subject", seen))
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


def _part(data: bytes, start: int, end: int) -> _Part:
    fields = dict[bytes, bytes]()
    while match := _FIELD.match(data, start, end):
        name = match[1].lower()
        if name in _KEPT:
            fields.setdefault(name, match[2][:_MAX_FIELD_BYTES].replace(b"\n", b"").strip())
        start = match.end()
    return _Part(data, min(start + data.startswith(b"\n", start, end), end), end, fields)


def _bodies(part: _Part, seen: _Seen, depth: int, default: str = "text/plain") -> list[_Body]:
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
        if kind.startswith("multipart/") and (parts := _parts(part)):
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


def _forwarded(part: _Part, seen: _Seen, depth: int) -> list[_Body]:
    """A message within the message, with its own head."""
    data, start, end = part.data, part.body, part.end
    if part.says(b"content-transfer-encoding").lower() in {b"base64", b"quoted-printable"}:
        data = _bare(part.unpacked())
        start, end = 0, len(data)
    begin = _BEFORE_HEADER.match(data, start, end)
    try:
        text, _ = _message(_part(data, begin.end() if begin else start, end), seen, depth + 1)
    except DocumentFailed:
        seen.left_out += 1
        return []
    return [_Body("", b"", message=text)]


def _parts(whole: _Part) -> list[_Part]:
    """The parts of a multipart body; none if no boundary is found, neither the declared one nor another."""
    names = list[bytes]()
    if declared := _BOUNDARY.search(whole.says(b"content-type")):
        names.append(declared[1] or declared[2])
    if found := _FIRST_BOUNDARY.match(whole.data, whole.body, whole.end):
        names.append(found[1])
    for name in names:
        line = re.compile(rb"\n--" + re.escape(name.rstrip()) + rb"(--)?[ \t]*+(?=\n|\Z)")
        lines = list(line.finditer(whole.data, max(whole.body - 1, 0), whole.end))
        last = next((number for number, match in enumerate(lines) if match[1]), len(lines))
        ends = [*(match.start() for match in lines), whole.end]
        if last:
            return [
                _part(whole.data, min(match.end() + 1, end), end)
                for match, end in zip(lines[:last], ends[1:], strict=False)
            ]
    return []


def _of_parts(parts: list[_Part], kind: str, seen: _Seen, depth: int) -> list[_Body]:
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


def _from_base64(text: bytes) -> bytes:
    for cut in (text, text.rstrip(b"= \n")[:-1]):  # broken off, or a letter too many
        try:
            return binascii.a2b_base64(cut + b"===")
        except binascii.Error:
            continue
    return b""


def _header(part: _Part, field_name: bytes, seen: _Seen) -> str:
    """A field as text: encoded words (RFC 2047) decoded, other bytes as the body of the message."""
    value, charset = part.says(field_name.lower()), part.charset
    out, waiting, waiting_charset, end = list[str](), b"", "", 0
    for match in _ENCODED_WORD.finditer(value):
        between, name = value[end : match.start()], match[1].decode("latin-1").lower()
        if between.strip() or name != waiting_charset:  # a character may be divided between two words
            out.append(_decoded(waiting, waiting_charset, seen))
            waiting, waiting_charset = b"", name
        if between.strip():
            out.append(_decoded(between, charset, seen))
        waiting += _from_base64(match[3]) if match[2] in b"bB" else binascii.a2b_qp(match[3], header=True)
        end = match.end()
    out += [_decoded(waiting, waiting_charset, seen), _decoded(value[end:], charset, seen)]
    return " ".join("".join(out).split())


def _decoded(data: bytes, charset: str, seen: _Seen) -> str:
    """As declared unless UTF-8 itself says otherwise, else as guessed."""
    name = _REALLY.get(charset.lower(), charset.lower())
    for candidate in (name, "utf-8") if name.startswith(_LIKE_UTF8) else ("utf-8", name):
        try:
            return clean(data.decode(candidate))
        except (LookupError, ValueError):
            continue
    if seen.guesses.total() < _MAX_GUESSES:
        name, _ = table_encoding(data)
        seen.guesses[name] += 1
    else:
        name = seen.guesses.most_common(1)[0][0]
    return clean(data.decode(name, errors="replace"))
