"""The lines of a file from an offset on, in bounded memory."""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence

from tasks.document_error import DocumentFailed
from tasks.documents.sources.content import Content, changed, pieces
from tasks.documents.sources.source import PAGE_RECORD_BYTES
from tasks.lines import RawLine, split_lines

_WIDE = ("utf-16", "utf-32")
_MAX_READ_BYTES = 2 * PAGE_RECORD_BYTES
"""Bytes of one read for several records that lie next to each other."""


def byte_lines(content: Content, first: int, max_bytes: int, progress: Callable[[], None]) -> Iterator[RawLine[bytes]]:
    """The lines from byte `first` on."""
    return split_lines(pieces(content, first, progress), b"\n", max_bytes)


def text_lines(
    content: Content, first: int, encoding: str, max_bytes: int, progress: Callable[[], None]
) -> Iterator[tuple[str | None, int]]:
    """The same lines, decoded, with line breaks and their sizes in bytes; None for a line that is too long.

    Bytes that are wrong in the encoding become lone surrogates.

    Raises:
        DocumentFailed: the file begins like UTF-16 or UTF-32, and is something else later.
    """
    if encoding.startswith(_WIDE):
        texts = _decoded_pieces(pieces(content, first, progress), encoding)
        for text in split_lines(texts, "\n", max_bytes, lambda part: len(part.encode(encoding, "surrogatepass"))):
            yield None if text.data is None else text.data + "\n" * text.ended, text.size_bytes
        return
    # In every other supported encoding byte 10 is a line break and nothing else.
    for line in byte_lines(content, first, max_bytes, progress):
        yield None if line.data is None else decoded(line.data, encoding) + "\n" * line.ended, line.size_bytes


def _decoded_pieces(data: Iterable[bytes], encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    for piece in data:
        try:
            text = decoder.decode(piece)
        except UnicodeDecodeError:
            message = f"The file is not valid {encoding.upper()}, as which it begins. Save it as UTF-8."
            raise DocumentFailed("invalid_encoding", message, "reading") from None
        yield text


def decoded(data: bytes, encoding: str) -> str:
    """Text in which wrong bytes become lone surrogates. `require_storable` refuses a text with one."""
    try:
        return data.decode(encoding, "surrogatepass" if encoding.startswith(_WIDE) else "surrogateescape")
    except UnicodeDecodeError:
        return data.decode(encoding, "replace").replace("\ufffd", "\udcff")


def read_places(content: Content, places: Sequence[Sequence[int]], progress: Callable[[], None]) -> Iterator[bytes]:
    """The bytes at ascending pairs of offset and size. One read takes all pairs within `_MAX_READ_BYTES`."""
    start = 0
    while start < len(places):
        first, end = places[start][0], sum(places[start][:2])
        stop = start + 1
        while stop < len(places) and end <= places[stop][0] and sum(places[stop][:2]) - first <= _MAX_READ_BYTES:
            end = sum(places[stop][:2])
            stop += 1
        progress()
        data = content.read(first, end - first)
        if len(data) != end - first:
            raise changed()
        for offset, size in (place[:2] for place in places[start:stop]):
            yield data[offset - first : offset - first + size]
        start = stop
