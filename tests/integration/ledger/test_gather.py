"""Calls of the web tier travel together: counted in what Redis read from its sockets."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from stack.testing import PATIENCE_S, RedisServer
from tasks.errors import RedisUnavailable
from tasks.ledger import AsyncLedger, operations
from tasks.ledger.gather import ROUND_TRIP_S, Gatherer
from tests.integration.ledger.driver import Driver

CALLS = 200


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[AsyncLedger]:
    ledger = AsyncLedger.connect(redis_url)
    await ledger.run(operations.overview())  # the script is known and a connection open
    yield ledger
    await ledger.close()


def _reads(client: redis.Redis) -> int:
    return int(client.info("stats")["total_reads_processed"])


async def test_concurrent_calls_share_round_trips(ledger: AsyncLedger, redis_client: redis.Redis) -> None:
    before = _reads(redis_client)
    replies = await asyncio.gather(*(ledger.run(operations.overview()) for _ in range(CALLS)))
    assert len(replies) == CALLS
    assert _reads(redis_client) - before < CALLS / 10


async def test_each_caller_gets_its_own_reply(ledger: AsyncLedger, driver: Driver) -> None:
    task_ids = [driver.submit().task_id for _ in range(20)]
    names = [name for task_id in task_ids for name in (task_id, f"{task_id}-unknown")]
    tasks = await asyncio.gather(*(ledger.run(operations.read_task(name)) for name in names))
    assert [task.id if task else None for task in tasks] == [
        name if name in task_ids else None for task_id in task_ids for name in (task_id, f"{task_id}-unknown")
    ]


async def test_a_redis_that_forgot_the_scripts_is_taught_again(ledger: AsyncLedger, redis_client: redis.Redis) -> None:
    redis_client.script_flush()
    await asyncio.gather(*(ledger.run(operations.overview()) for _ in range(20)))


async def test_a_caller_that_gives_up_takes_nobody_along(ledger: AsyncLedger) -> None:
    waiting = [asyncio.ensure_future(ledger.run(operations.overview())) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [index for index, reply in enumerate(done) if isinstance(reply, BaseException)] == [3]


async def test_what_redis_does_not_answer_in_time_ends_and_takes_no_later_call_along(
    ledger: AsyncLedger, redis_client: redis.Redis
) -> None:
    gatherer = Gatherer(ledger.client, ROUND_TRIP_S, call_s=0.1)
    assert await gatherer.call("ECHO", "before") == b"before"
    redis_client.client_pause(400)
    late = await asyncio.gather(*(gatherer.call("ECHO", str(n)) for n in range(3)), return_exceptions=True)
    assert [type(error) for error in late] == [redis.TimeoutError] * 3
    redis_client.ping()  # answered when the pause is over
    assert await gatherer.call("ECHO", "after") == b"after"
    await gatherer.close()


async def test_a_call_under_way_ends_with_the_gatherer(ledger: AsyncLedger, redis_client: redis.Redis) -> None:
    gatherer = Gatherer(ledger.client, ROUND_TRIP_S, call_s=60)
    redis_client.client_pause(400)
    call = asyncio.ensure_future(gatherer.call("ECHO", "late"))
    await asyncio.sleep(0)
    await gatherer.close()
    with pytest.raises(redis.ConnectionError):
        await asyncio.wait_for(call, timeout=PATIENCE_S)
    redis_client.ping()  # answered when the pause is over


async def test_a_caller_can_call_again_at_once(ledger: AsyncLedger) -> None:
    script = await ledger.client.script_load("return 'done'")
    # With several lines all would have to end in the same turn.
    gatherer = Gatherer(ledger.client, ROUND_TRIP_S, call_s=10, max_under_way=1)
    async with asyncio.timeout(10):
        replies = [await gatherer.call("EVALSHA", script, 0) for _ in range(3)]
    await gatherer.close()
    assert replies == [b"done"] * 3


async def test_an_outage_reaches_every_caller(private_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(private_redis.url)
    await ledger.run(operations.overview())
    private_redis.kill()
    calls = (ledger.run(operations.overview()) for _ in range(20))
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(reply) for reply in replies} == {RedisUnavailable}
    private_redis.start()
    await ledger.run(operations.overview())
    await ledger.close()
