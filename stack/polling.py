"""Waiting for what will be so, instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.01
_POLL_SHARE = 0.1
"""A long wait is polled ever more seldom: most questions cost what is waited for a part of its processor."""
_MAX_POLL_S = 0.25


def wait_until(condition: Callable[[], T | None], *, timeout_s: float = 20, message: str = "") -> T:
    """The first truthy value of `condition`, polled; fails with `message` when there is none in time."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise AssertionError(f"waited {timeout_s} s: {message or condition}; last value {value!r}")
        time.sleep(_pause(waited))
    return value


async def eventually(condition: Callable[[], Awaitable[T | None]], *, timeout_s: float = 20, message: str = "") -> T:
    """`wait_until` for an asynchronous condition."""
    began = time.monotonic()
    while not (value := await condition()):
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise AssertionError(f"waited {timeout_s} s: {message or condition}; last value {value!r}")
        await asyncio.sleep(_pause(waited))
    return value


def _pause(waited_s: float) -> float:
    return min(_MAX_POLL_S, max(_POLL_S, waited_s * _POLL_SHARE))
