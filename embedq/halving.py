"""Halves what a server with lower limits than usual refuses as too much."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from embedq.errors import RefusedError

T = TypeVar("T")
R = TypeVar("R")

_TOO_MUCH = {"too_many_inputs", "body_too_large"}


async def halving(work: Callable[[list[T]], Awaitable[R]], piece: list[T]) -> AsyncGenerator[tuple[list[T], R], None]:
    """Each part of `piece` that was taken, in order, with the result of `work(part)`: all of it if the server can.

    Raises:
        RefusedError: a part was refused for another reason, or one text alone is too much. Parts before it were taken.
    """
    waiting = [piece]
    while waiting:
        part = waiting.pop()
        try:
            result = await work(part)
        except RefusedError as error:
            if len(part) == 1 or error.code not in _TOO_MUCH:
                raise
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        else:
            yield part, result
