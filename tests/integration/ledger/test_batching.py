"""SUBMITs of the web tier travel together: counted in the scripts that Redis ran."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from tasks.errors import RedisUnavailable
from tasks.ledger.client import AsyncLedger
from tasks.ledger.overview import overview
from tasks.ledger.submit import submit
from tests.integration.ledger.driver import Driver
from tests.processes import RedisServer

CALLS = 200


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[AsyncLedger]:
    ledger = AsyncLedger.connect(redis_url)
    await ledger.run(overview())
    yield ledger
    await ledger.close()


async def test_concurrent_calls_share_commands(ledger: AsyncLedger, driver: Driver, redis_client: redis.Redis) -> None:
    await ledger.run(submit(driver.new_task()))  # the script is known
    redis_client.config_resetstat()
    replies = await asyncio.gather(*(ledger.run(submit(driver.new_task())) for _ in range(CALLS)))
    assert len({reply.task_id for reply in replies}) == CALLS
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] < CALLS / 10


async def test_a_redis_that_forgot_the_scripts_is_taught_again(
    ledger: AsyncLedger, driver: Driver, redis_client: redis.Redis
) -> None:
    redis_client.script_flush()
    await asyncio.gather(*(ledger.run(submit(driver.new_task())) for _ in range(20)))


async def test_what_redis_does_not_answer_in_time_ends_and_takes_no_later_call_along(
    ledger: AsyncLedger, driver: Driver, redis_client: redis.Redis
) -> None:
    redis_client.client_pause(400)
    late = (ledger.run(submit(driver.new_task()), timeout_s=0.1) for _ in range(3))
    assert {type(error) for error in await asyncio.gather(*late, return_exceptions=True)} == {RedisUnavailable}
    redis_client.ping()  # answered when the pause is over
    assert not (await ledger.run(submit(driver.new_task()))).joined


async def test_an_outage_reaches_every_caller(private_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(private_redis.url)
    with private_redis.client() as client:
        driver = Driver(client)
    await ledger.run(submit(driver.new_task()))
    private_redis.kill()
    calls = (ledger.run(submit(driver.new_task())) for _ in range(20))
    assert {type(reply) for reply in await asyncio.gather(*calls, return_exceptions=True)} == {RedisUnavailable}
    private_redis.start()
    await ledger.run(submit(driver.new_task()))
    await ledger.close()
