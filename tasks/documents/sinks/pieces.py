"""Lists cut into pieces."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def pieces(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size` values, in order."""
    rest = iter(values)
    while piece := list(islice(rest, size)):
        yield piece
