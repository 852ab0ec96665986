"""The lines of a file from some place on, in bounded memory."""

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tasks.documents.document_error import DocumentFailed
from tasks.documents.sources.content import Content, changed, pieces
from tasks.documents.sources.source import PAGE_RECORD_BYTES

_WIDE = ("utf-16", "utf-32")


@dataclass(frozen=True, slots=True)
class ByteLine:
    """`data` is None if the line is too long; else with its break. `size_bytes` counts the break."""

    data: bytes | None
    size_bytes: int


def byte_lines(content: Content, first: int, max_bytes: int, progress: Callable[[], None]) -> Iterator[ByteLine]:
    """All from byte `first` on. Of a line above `max_bytes` not more than that is ever kept."""
    held: list[bytes] = []
    size = 0
    for piece in pieces(content, first, progress):
        *ended, rest = piece.split(b"\n")
        for end in ended:
            size += len(end) + 1
            held.append(end)
            yield ByteLine(None if size > max_bytes + 1 else b"".join(held) + b"\n", size)
            held, size = [], 0
        size += len(rest)
        held = [*held, rest] if size <= max_bytes else []
    if size:
        yield ByteLine(None if size > max_bytes else b"".join(held), size)


def text_lines(
    content: Content, first: int, encoding: str, max_bytes: int, progress: Callable[[], None]
) -> Iterator[tuple[str | None, int]]:
    """The same, decoded, each with its size in bytes. What is wrong in the encoding becomes a lone surrogate.

    Raises:
        DocumentFailed: it begins like UTF-16 or UTF-32, and goes on as something else.
    """
    if not encoding.startswith(_WIDE):
        # In every other encoding that is taken the byte 10 is a line break and nothing else.
        for found in byte_lines(content, first, max_bytes, progress):
            yield (None if found.data is None else decoded(found.data, encoding)), found.size_bytes
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    held = ""
    size = 0
    for piece in pieces(content, first, progress):
        try:
            *ended, rest = decoder.decode(piece).split("\n")
        except UnicodeDecodeError:
            message = f"The file is not valid {encoding.upper()}, as which it begins. Save it as UTF-8."
            raise DocumentFailed("invalid_encoding", message, "reading") from None
        for end in ended:
            line = f"{end}\n"
            size += _size(line, encoding)
            yield (None if size > max_bytes else held + line), size
            held, size = "", 0
        size += _size(rest, encoding)
        held = held + rest if size <= max_bytes else ""
    if size:
        yield (None if size > max_bytes else held), size


def decoded(data: bytes, encoding: str) -> str:
    """Text; what is wrong in the encoding becomes a lone surrogate, to be noticed where it matters."""
    try:
        return data.decode(encoding, "surrogatepass" if encoding.startswith(_WIDE) else "surrogateescape")
    except UnicodeDecodeError:
        return data.decode(encoding, "replace").replace("\ufffd", "\udcff")


def _size(text: str, encoding: str) -> int:
    return len(text.encode(encoding, "surrogatepass"))


# Reading places of a file that lie next to each other in one go.

_MAX_BYTES = 2 * PAGE_RECORD_BYTES


def read_places(content: Content, places: Sequence[Sequence[int]], progress: Callable[[], None]) -> Iterator[bytes]:
    """The bytes at (offset, size) pairs that ascend; one read for as many as lie within a page's size."""
    start = 0
    while start < len(places):
        first, end = places[start][0], sum(places[start][:2])
        stop = start + 1
        while stop < len(places) and end <= places[stop][0] and sum(places[stop][:2]) - first <= _MAX_BYTES:
            end = sum(places[stop][:2])
            stop += 1
        progress()
        data = content.read(first, end - first)
        if len(data) != end - first:
            raise changed()
        for offset, size in (place[:2] for place in places[start:stop]):
            yield data[offset - first : offset - first + size]
        start = stop
