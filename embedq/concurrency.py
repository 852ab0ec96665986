"""Several calls at once, at most so many, with their results in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import aclosing
from threading import Thread
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


def in_daemon(call: Callable[[], R]) -> asyncio.Future[R]:
    """What a call returns that may block for ever. Nobody waits for its thread: neither who cancels, nor the exit."""
    future: Future[R] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(future)


async def run_all(work: Callable[[T], Coroutine[Any, Any, object]], items: Iterable[T], *, limit: int) -> None:
    """Runs `work(item)` for every item as `in_order` does, without results."""
    async with aclosing(in_order(work, items, limit=limit)) as results:
        async for _ in results:
            pass
