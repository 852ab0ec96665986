"""Several calls at once, at most so many, with their results in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_order(
    work: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *, limit: int
) -> AsyncGenerator[R, None]:
    """The results of `work(item)` in the order of the items, at most `limit` under way.

    Items are taken one by one, so an endless iterator needs no more memory than `limit` of them. The first failure is
    raised and cancels the other calls; so does closing the generator (use `contextlib.aclosing`).
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


async def run_all(work: Callable[[T], Coroutine[Any, Any, object]], items: Iterable[T], *, limit: int) -> None:
    """Runs `work(item)` for every item as `in_order` does, without results."""
    async with aclosing(in_order(work, items, limit=limit)) as results:
        async for _ in results:
            pass
