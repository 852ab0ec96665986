"""Bytes -> text, in whatever encoding they are: one rule for documents and for tables."""

import codecs
import re

from tasks.ingestion.parsing.extracted import MAX_TEXT_CHARS, check_chars, clean
from tasks.ingestion.parsing.refusals import missing, no_text, refused, too_large

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 32 * 1024  # charset-normalizer tries dozens of encodings on what it is given
_MAX_BYTES_PER_CHAR = 4
# In HTML and in mail these names have always meant the larger encoding (WHATWG Encoding Standard). Code pages of
# Windows are called `cp` and their number, also those for which Python has a name alone.
_REALLY = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "euc_kr": "cp949", "iso2022_jp": "iso2022_jp_ext", "cp10000": "mac_roman", "cp20127": "cp1252", "cp20866": "koi8_r",
    "cp21866": "koi8_u", "cp50220": "iso2022_jp_ext", "cp51932": "euc_jp", "cp51949": "cp949", "cp54936": "gb18030",
    "cp28591": "cp1252", **{f"cp{28590 + part}": f"iso8859_{part}" for part in range(2, 17)},
}  # fmt: skip
_ODD_NAME = re.compile(r"^x-|-[ie]$")  # x-sjis; iso-8859-8-i, which says in which order its letters are shown
_NO_CHARSETS = {"idna", "punycode"}  # codecs of Python for names of hosts, in time by the square of a text
_LIKE_UTF8 = ("iso2022", "utf-7", "hz", "utf-16", "utf-32")  # bytes of these may pass as UTF-8
_WESTERN = {"cp1252", "cp1250", "iso8859_2", "cp1254", "cp1257"}
# Guesses are limited to what is in use: a few bytes fit a hundred encodings. UTF-16 without a mark is seen before.
# In all of these byte 10 is a line break and nothing else: a table is cut into lines before it is decoded.
_IN_USE = [
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp874", "iso8859_2", "koi8_r"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_MOSTLY_ASCII = 0.3  # share of other bytes: Western text has less, what is written in another alphabet more
_SHORT_BYTES = 256
_REPLACED_SHARE = 0.1


def decode(data: bytes, declared: str | None = None) -> str:
    """The text, clean, as `declared` unless a byte order mark or UTF-8 itself says otherwise.

    Raises:
        DocumentFailed: `document_too_large`, `unknown_encoding`, `no_text`, `missing_parser`.
    """
    if len(data) > _MAX_BYTES_PER_CHAR * MAX_TEXT_CHARS:
        raise too_large(f"has {len(data):,} bytes of text, more than any text of {MAX_TEXT_CHARS:,} characters")
    encoding, mark_bytes = _encoding(data, utf16_without_mark(data[:_SAMPLE_BYTES]), declared)
    if encoding is None:
        raise refused("unknown_encoding", "The encoding of the text cannot be recognised. Save it as UTF-8.")
    raw = data[mark_bytes:].decode(encoding, errors="replace")
    text = clean(raw)
    if not text.strip() and raw.strip():
        raise no_text()  # of control characters: a file that was not written to its end, or of another kind
    check_chars(len(text))
    return text


def table_encoding(head: bytes) -> tuple[str, int]:
    """The encoding of a table that begins so, and the length of its byte order mark; Windows-1252 if unknown.

    Raises:
        DocumentFailed: `missing_parser`.
    """
    # A table of Japanese in UTF-16 has its commas and digits in ASCII at least, and zero bytes also in other places.
    wide = utf16_without_mark(head, zero_share=0.25, other_share=1.0)
    whole_lines = head[: head.rfind(b"\n") + 1] or head  # so that no character is cut in two
    encoding, mark_bytes = _encoding(whole_lines, wide)
    return encoding or "cp1252", mark_bytes


def is_plain_utf8(data: bytes) -> bool:
    """Whether nothing needs to be guessed."""
    return _is_of(data, "utf-8") and b"\0" not in data


def utf16_without_mark(head: bytes, *, zero_share: float = 0.4, other_share: float = 0.02) -> str | None:
    """UTF-16 whose zero bytes, those of its ASCII, stand nearly all of them at either even or odd places.

    Args:
        head: the beginning of the data.
        zero_share: of the bytes at these places, how many are zero at least.
        other_share: zero bytes at the other places for each of those, at most.
    """
    even, odd = head[::2].count(0), head[1::2].count(0)
    few, many = sorted((even, odd))
    if many <= zero_share * (len(head) // 2) or few > other_share * many:
        return None
    return "utf-16-be" if even > odd else "utf-16-le"


def _encoding(data: bytes, wide: str | None, declared: str | None = None) -> tuple[str | None, int]:
    """The name of the encoding, None if unknown, and the length of the byte order mark."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark)
    if wide:
        return wide, 0
    return as_declared(data, declared or "") or _guessed(data), 0


def as_declared(data: bytes, charset: str) -> str | None:
    """UTF-8 where the bytes are that, else the codec that a charset's name means; None if they are not of it either."""
    name = codec_of(charset)
    likely = (name, "utf-8") if name.startswith(_LIKE_UTF8) else ("utf-8", name)
    return next((codec for codec in likely if codec and _is_of(data, codec)), None)


def codec_of(charset: str) -> str:
    """The codec that the name of a charset means, "" for a name that is none."""
    name = _ODD_NAME.sub("", charset.lower())
    try:
        name = codecs.lookup(_REALLY.get(name, name)).name
    except (LookupError, ValueError):
        return ""
    return "" if name in _NO_CHARSETS else _REALLY.get(name, name)


def _is_of(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except (LookupError, ValueError):  # also codecs that make no text
        return False
    return True


def _guessed(data: bytes) -> str | None:
    mostly = data.decode(errors="replace")
    broken = mostly.count("\ufffd")
    if broken <= _REPLACED_SHARE * sum(1 for _ in re.finditer(r"[\x80-\U0010ffff]", mostly)):
        return "utf-8"  # with a few broken bytes: a guess would spoil all of it
    return _likely(_sample(data))


def _sample(data: bytes) -> bytes:
    """The lines around the first bytes that are not ASCII: a million lines of English say nothing."""
    first = next((match.start() for match in re.finditer(rb"[\x80-\xff]", data)), 0)
    start = data.rfind(b"\n", 0, first) + 1 if first > _SAMPLE_BYTES // 2 else 0
    sample = data[max(start, first - _SAMPLE_BYTES // 2) :][:_SAMPLE_BYTES]
    if len(sample) < _SAMPLE_BYTES:
        return sample
    # Half a character at its end would rule out the right encoding. In all of them a byte below "0" is a character.
    end = max(map(sample.rfind, range(ord("0"))))
    return sample[: end + 1] if end > _SAMPLE_BYTES // 2 else sample


def _likely(sample: bytes) -> str | None:
    try:
        from charset_normalizer import from_bytes  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise missing("charset-normalizer") from None
    matches = from_bytes(sample, cp_isolation=_IN_USE)
    best = matches.best()
    if best is None:
        return None
    short = len(sample) < _SHORT_BYTES
    others = sum(1 for _ in re.finditer(rb"[\x80-\xff]", sample)) / len(sample)
    if best.encoding not in _WESTERN and not (short and others < _MOSTLY_ASCII):
        return best.encoding
    # Short Western texts read equally well in a dozen encodings; Windows-1252 is by far the most used of them.
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return best.encoding
    alike = any(match.encoding == "cp1252" and match.chaos <= best.chaos for match in matches)
    return "cp1252" if short or alike else best.encoding
