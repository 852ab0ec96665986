"""Reading places of a file that lie next to each other in one go."""

from collections.abc import Callable, Iterator, Sequence

from tasks.documents.sources.content import Content, changed
from tasks.documents.sources.types import PAGE_RECORD_BYTES

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
