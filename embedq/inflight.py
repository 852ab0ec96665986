"""Several calls at once, their results in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_order(
    work: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *, limit: int
) -> AsyncGenerator[R, None]:
    """The results of `work(item)` in the order of the items, at most `limit` under way.

    Items are taken one by one, so an endless iterator needs no more memory than `limit` of them. The first failure is
    raised and ends the others; so does closing the generator (use `contextlib.aclosing`).
    """
    window: deque[asyncio.Task[R]] = deque()
    try:
        for item in items:
            if len(window) == limit:
                yield await window.popleft()
            window.append(asyncio.create_task(work(item)))
        while window:
            yield await window.popleft()
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)
