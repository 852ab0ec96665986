"""Lists cut into pieces."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def pieces(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size` values, in order."""
    rest = iter(values)
    while piece := list(islice(rest, size)):
        yield piece


def weighed(values: Iterable[T], weight: Callable[[T], int], limit: int) -> Iterator[list[T]]:
    """Lists of values, in order, that weigh at most `limit` together; a heavier value is alone."""
    piece: list[T] = []
    total = 0
    for value in values:
        total += weight(value)
        if piece and total > limit:
            yield piece
            piece, total = [], weight(value)
        piece.append(value)
    if piece:
        yield piece
