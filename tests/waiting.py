"""Waiting for what will be so, instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.01


def wait_until(condition: Callable[[], T | None], *, timeout_s: float = 20, message: str = "") -> T:
    """The first truthy value of `condition`, polled; fails with `message` when there is none in time."""
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s} s: {message or condition}; last value {value!r}")
        time.sleep(POLL_S)
    return value


async def eventually(condition: Callable[[], Awaitable[T | None]], *, timeout_s: float = 20, message: str = "") -> T:
    """`wait_until` for an asynchronous condition."""
    end = time.monotonic() + timeout_s
    while not (value := await condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s} s: {message or condition}; last value {value!r}")
        await asyncio.sleep(POLL_S)
    return value
