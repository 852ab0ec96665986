"""Many texts, files or tasks: in requests that the server takes, several at once, with their results in order."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from embedq.errors import RefusedError, UnavailableError

T = TypeVar("T")
R = TypeVar("R")

MAX_TEXTS = 2048
"""Texts of one request, the server's default limit."""
MAX_BYTES = 8 * 2**20
"""JSON bytes of one request: half of the server's default limit."""
MAX_WAITED_BYTES = 128 * 2**10
"""JSON bytes of one request that waits for its vectors: some seconds of work on a small machine. So the answer comes
within the server's longest wait, and other callers get their turn in between."""
_TOO_MUCH = {"too_many_inputs", "body_too_large", "key_limit"}


async def each(items: Iterable[T]) -> AsyncGenerator[T, None]:
    """The items."""
    for item in items:
        yield item


async def in_order(
    work: Callable[[T], Coroutine[Any, Any, R]], items: AsyncIterable[T], *, limit: int
) -> AsyncGenerator[R, None]:
    """The results of `work(item)` in the order of the items, at most `limit` under way.

    Items are taken one by one, so an endless iterator needs no more memory than `limit` of them. The first failure is
    raised and cancels the other calls; so does closing the generator (use `contextlib.aclosing`).
    """
    window: deque[asyncio.Task[R]] = deque()
    try:
        async for item in items:
            window.append(asyncio.create_task(work(item)))
            if len(window) == limit:
                yield await window.popleft()
        while window:
            yield await window.popleft()
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)


async def run_all(work: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *, limit: int) -> list[R]:
    """The results of `in_order`."""
    async with aclosing(in_order(work, each(items), limit=limit)) as results:
        return [result async for result in results]


def json_bytes(text: str) -> int:
    """Size of a text inside a JSON body, with quotes, escapes and the comma."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="surrogatepass")) + 1


def split(
    items: Iterable[T], size: Callable[[T], int], *, max_items: int = MAX_TEXTS, max_bytes: int = MAX_BYTES
) -> Iterator[list[T]]:
    """The items in order, in lists within both limits. One that is too large by itself is alone in its list."""
    piece: list[T] = []
    used_bytes = 0
    for item in items:
        item_bytes = size(item)
        if piece and (len(piece) == max_items or used_bytes + item_bytes > max_bytes):
            yield piece
            piece, used_bytes = [], 0
        piece.append(item)
        used_bytes += item_bytes
    if piece:
        yield piece


async def halve_refused(
    work: Callable[[list[T]], Awaitable[R]], piece: list[T]
) -> AsyncGenerator[tuple[list[T], R], None]:
    """Calls `work(piece)`, or `work` of its halves, and so on, where the server refuses a list as too much.

    Yields:
        the accepted parts in order, with their results.

    Raises:
        RefusedError: a part was refused for another reason, or one text alone is too much. Parts before it were
            accepted.
    """
    waiting = [piece]
    while waiting:
        part = waiting.pop()
        try:
            result = await work(part)
        except RefusedError as error:
            # `UnavailableError`: the limit of the key has room again later, for all of it.
            if len(part) == 1 or error.code not in _TOO_MUCH or isinstance(error, UnavailableError):
                raise
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        else:
            yield part, result
