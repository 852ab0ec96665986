"""The end of the web tier's background tasks."""

import asyncio

from api.services import Services
from tests.integration.api.served import MODEL
from worker_config.settings import load_settings


async def test_a_cancellation_that_gets_lost_is_repeated(redis_url: str) -> None:
    services = Services.build(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL))
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
