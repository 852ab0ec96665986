"""Work that would stall the event loop: large pieces go to a thread, small ones are not worth the hop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LARGE_BYTES = 128 * 1024
"""Parsing, cutting or rendering this much takes about as long as a few thread hops."""
_ONE_BY_ONE = ThreadPoolExecutor(1, "large")
"""A body becomes up to twenty times its size while it is parsed, and parsing and rendering hold the interpreter lock:
two at once would take twice the memory and no less time."""


async def offload(size_bytes: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `function` returns, run in a thread when it works on `LARGE_BYTES` or more.

    Threads share the interpreter lock, so the function should do its work in many short calls, not in one long one.
    """
    if size_bytes < LARGE_BYTES:
        return function(*args, **kwargs)
    work = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_ONE_BY_ONE, work)
