"""Notices that a client leaves while its request waits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from api.waiting.hub import Waiter


@contextmanager
def watched(request: Request, waiter: Waiter) -> Iterator[None]:
    """While inside, the end of the connection makes `waiter` leave. The request's body must have been read before."""
    watching = asyncio.create_task(_until_gone(request, waiter))
    try:
        yield
    finally:
        watching.cancel()


async def _until_gone(request: Request, waiter: Waiter) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # a GET may come with an empty body, which is of no interest
    waiter.leave()
