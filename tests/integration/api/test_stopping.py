"""The end of the web tier's background tasks."""

import asyncio
import contextlib

import pytest

from api.process import Process
from tests.integration.api.served import MODEL
from worker_config.settings import load_settings


async def test_a_cancellation_that_gets_lost_is_repeated(redis_url: str) -> None:
    services = Process.build(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL))
    lost = asyncio.Event()

    async def loses_one() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.set()
        await asyncio.Event().wait()

    background = asyncio.create_task(loses_one())
    await asyncio.sleep(0)  # it waits now

    async with asyncio.timeout(30):
        await services.stop([background])

    assert lost.is_set()
    assert background.cancelled()


async def test_one_that_never_stops_holds_nobody_up(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    services = Process.build(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL))
    end = asyncio.Event()

    async def never() -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    background = asyncio.create_task(never(), name="the one")
    await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await services.stop([background], cancel_again_s=0.01)

    assert "the one does not stop" in caplog.text
    end.set()
    await background
