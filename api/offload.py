"""Work that would stall the event loop: large pieces go to a thread, small ones are not worth the hop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LARGE_BYTES = 128 * 1024
"""Parsing, cutting or rendering this much takes about as long as a few thread hops."""


async def offload(size_bytes: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `function` returns, run in a thread when it has `size_bytes` or more of `LARGE_BYTES` to chew on.

    Threads share the interpreter lock, so the function should do its work in many short calls, not in one long one.
    """
    if size_bytes < LARGE_BYTES:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
