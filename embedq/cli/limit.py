"""The limit of `--timeout` for a whole command."""

import asyncio
from collections.abc import Awaitable

from embedq.errors import WaitTimeoutError


async def within(timeout_s: float | None, work: Awaitable[int]) -> int:
    """What `work` returns.

    Raises:
        WaitTimeoutError: it takes longer than `timeout_s` seconds; None: it may take for ever.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"the {timeout_s:g} s of --timeout are over; submitted tasks go on"
        raise WaitTimeoutError(message, code="timeout") from None
