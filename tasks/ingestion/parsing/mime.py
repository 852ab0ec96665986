"""MIME: a message as parts with headers and bodies, and both as text.

Our own rather than the package `email`: its parser of structured headers is quadratic, its parser of parts tries every
line against every open boundary, and both raise what they do not promise. Here the bytes are looked at once for each
level of nesting.
"""

import binascii
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tasks.ingestion.parsing.extracted import clean
from tasks.ingestion.parsing.text_encoding import as_declared, table_encoding
from tasks.unshown import unshown

_MAX_FIELD_BYTES = 10_000
_MAX_GUESSES = 100  # of encodings in one file, each some 20 ms; what follows is taken for what was found most
_SAMPLE_BYTES = 2048

FIELD = re.compile(rb"([!-9;-~]{1,80}+)[ \t]*+:([^\n]*+(?:\n[ \t][^\n]*+)*+)(?:\n|\Z)")
"""A line of a header, with those that continue it."""
_ENCODED_WORD = re.compile(rb"=\?([^?\s*]{1,60})(?:\*[\w-]{0,20})?\?([bBqQ])\?((?:[^?]|\?(?!=)){0,1000}+)\?=")
_CHARSET = re.compile(rb"charset\*?\s*=\s*[\"']?(?:[\w-]*'[\w-]*')?([\w.:+-]+)", re.IGNORECASE)
_BOUNDARY = re.compile(rb"boundary\s*=\s*(?:\"([^\"]+)\"|([^\s;]+))", re.IGNORECASE)
_FIRST_BOUNDARY = re.compile(rb"\n--(\S[^\n]{0,200})\n(?=\n|[!-9;-~]{1,80}+:)")
_WORDS = re.compile(rb"\S \S")

_WIDE = ("utf-16", "utf-32")
_KEPT = {
    b"subject", b"from", b"to", b"date", b"content-type", b"content-transfer-encoding", b"content-disposition",
    b"content-id", b"content-location",
}  # fmt: skip


@unshown("data", "fields")
class MimePart(NamedTuple):
    """A message or a part of one: where it ends, where its body begins, and what its header says, unfolded."""

    data: bytes
    body: int
    end: int
    fields: Mapping[bytes, bytes]

    def says(self, name: bytes) -> bytes:
        """The field of this name, in small letters; empty if there is none."""
        return self.fields.get(name, b"")

    @property
    def media_type(self) -> str:
        """In small letters; empty if none is declared."""
        words = self.says(b"content-type").partition(b";")[0].split()
        return words[0].decode("latin-1").lower() if words else ""

    @property
    def charset(self) -> str:
        """As declared; empty if none is."""
        match = _CHARSET.search(self.says(b"content-type"))
        return match[1].decode() if match else ""

    @property
    def encoding(self) -> bytes:
        """`base64` and the like, in small letters."""
        return self.says(b"content-transfer-encoding").partition(b";")[0].strip().lower()

    def unpacked(self) -> bytes:
        """Its body without base64 or quoted-printable. What is declared as base64 and has words in it is not."""
        body = self.data[self.body : self.end]
        match self.encoding:
            case b"quoted-printable":
                return binascii.a2b_qp(body)
            case b"base64" if not _WORDS.search(body, 0, _SAMPLE_BYTES):
                return _from_base64(body)
        return body


def bare(data: bytes) -> bytes:
    """With one kind of line end, without what may stand before the header."""
    unmarked = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
    return unmarked.replace(b"\r", b"\n").lstrip(b" \t\n")


def part_of(data: bytes, start: int, end: int) -> MimePart:
    """What lies between the two offsets. A header that ends without a blank line ends where lines are no fields."""
    fields = dict[bytes, bytes]()
    while match := FIELD.match(data, start, end):
        name = match[1].lower()
        if name in _KEPT:
            fields.setdefault(name, match[2][:_MAX_FIELD_BYTES].replace(b"\n", b"").strip())
        start = match.end()
    return MimePart(data, min(start + data.startswith(b"\n", start, end), end), end, fields)


def parts_of(whole: MimePart) -> list[MimePart]:
    """The parts of a multipart body; none if no boundary is found, neither the declared one nor another."""
    names = list[bytes]()
    if declared := _BOUNDARY.search(whole.says(b"content-type")):
        names.append(declared[1] or declared[2])
    if found := _FIRST_BOUNDARY.search(whole.data, max(whole.body - 1, 0), whole.end):
        names.append(found[1])
    for name in names:
        line = re.compile(rb"\n--" + re.escape(name.rstrip()) + rb"(--)?[ \t]*+(?=\n|\Z)")
        lines = list(line.finditer(whole.data, max(whole.body - 1, 0), whole.end))
        last = next((number for number, match in enumerate(lines) if match[1]), len(lines))
        ends = [*(match.start() for match in lines), whole.end]
        if last:
            return [
                part_of(whole.data, min(match.end() + 1, end), end)
                for match, end in zip(lines[:last], ends[1:], strict=False)
            ]
    return []


def _from_base64(text: bytes) -> bytes:
    for cut in (text, text.rstrip(b"= \n")[:-1]):  # broken off, or a letter too many
        try:
            return binascii.a2b_base64(cut + b"===")
        except binascii.Error:
            continue
    return b""


def header(part: MimePart, field_name: bytes, guesses: Counter[str]) -> str:
    """A field as text: encoded words (RFC 2047) decoded, other bytes as the body of the message."""
    value = part.says(field_name.lower())
    charset = "" if part.charset.lower().startswith(_WIDE) else part.charset
    out, waiting, waiting_charset, end = list[str](), b"", "", 0
    for match in _ENCODED_WORD.finditer(value):
        between, name = value[end : match.start()], match[1].decode("latin-1").lower()
        if between.strip() or name != waiting_charset:  # a character may be divided between two words
            out.append(decoded(waiting, waiting_charset, guesses))
            waiting, waiting_charset = b"", name
        if between.strip():
            out.append(decoded(between, charset, guesses))
        waiting += _from_base64(match[3]) if match[2] in b"bB" else binascii.a2b_qp(match[3], header=True)
        end = match.end()
    out += [decoded(waiting, waiting_charset, guesses), decoded(value[end:], charset, guesses)]
    return " ".join("".join(out).split())


def decoded(data: bytes, charset: str, guesses: Counter[str]) -> str:
    """As declared unless UTF-8 itself says otherwise, else as guessed."""
    if declared := as_declared(data, charset):
        return clean(data.decode(declared))
    if guesses.total() < _MAX_GUESSES:
        name, _ = table_encoding(data)
        guesses[name] += 1
    else:
        name = guesses.most_common(1)[0][0]
    return clean(data.decode(name, errors="replace"))
