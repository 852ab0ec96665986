"""In which encoding a table of text is, told by its beginning."""

import codecs

from charset_normalizer import from_bytes

HEAD_BYTES = 64 * 1024
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPING = ("utf_7", "hz", "iso2022", "iso_2022", "cp037", "cp500", "cp1026", "cp1140", "cp273", "cp424", "cp875")
"""Here a byte of a line break, a comma or a quote may be part of something else."""


def detect(head: bytes) -> tuple[str, int]:
    """The encoding and the length of its mark at the beginning; UTF-8 where nothing better is found."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, len(mark)
    if (wide := _wide(head)) is not None:
        return wide, 0
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return _guessed(head), 0
    return "utf-8", 0


def _wide(head: bytes) -> str | None:
    """UTF-16 without a mark: ASCII, of which a table has its commas at least, has a zero in every second byte."""
    if b"\0" not in head:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) < len(head) // 8:
        return None
    return "utf-16-be" if even > odd else "utf-16-le"


def _guessed(head: bytes) -> str:
    # Up to a line's end, so that no character is cut in two.
    whole = head[: head.rfind(b"\n") + 1] or head
    for match in from_bytes(whole, cp_exclusion=list(_ESCAPING)):
        if not match.encoding.startswith(_ESCAPING):
            return match.encoding
    return "cp1252"
