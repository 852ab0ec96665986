"""Waiting for tasks: the subscription, and what happens when it misses something."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from api.waiting.subscription import Subscription
from tasks.item import Options
from tasks.ledger.client import AsyncLedger
from tasks.ledger.ids import new_task_id
from tasks.ledger.redis_keys import ANONYMOUS, ENDED_CHANNEL
from tasks.ledger.submit import submit as store
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.processes import eventually

MODEL = "m"
LONG_S = 20.0


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[AsyncLedger]:
    connected = AsyncLedger.connect(redis_url)
    yield connected
    await connected.close()


@pytest.fixture
async def subscription(ledger: AsyncLedger) -> AsyncIterator[Subscription]:
    subscription = Subscription(ledger)
    listening = asyncio.create_task(subscription.run())
    async with asyncio.timeout(LONG_S):
        await subscription.subscribed.wait()
    yield subscription
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


@pytest.fixture
def encoder(redis_url: str) -> LedgerWorker:
    return LedgerWorker(redis_url, MODEL)


async def submit(ledger: AsyncLedger, *, pieces: int = 1, answer_to: str = "") -> str:
    submission = NewTask(
        task_id=new_task_id(),
        queue=MODEL,
        lane=Lane.ONLINE,
        owner=ANONYMOUS,
        pieces=[NewPiece(items=1, cost=1, payload=b'["x"]')] * pieces,
        options=Options(),
        ttl_ms=60_000,
        admission=Admission(max_backlog_s=100),
        answer_to=answer_to,
    )
    return (await ledger.run(store(submission))).task_id


async def test_the_end_of_a_task_wakes_its_waiters_only(
    subscription: Subscription, ledger: AsyncLedger, encoder: LedgerWorker
) -> None:
    task_id = await submit(ledger)
    with (
        subscription.waiting(task_id) as first,
        subscription.waiting(task_id) as second,
        subscription.waiting("task_other") as other,
    ):
        await asyncio.to_thread(encoder.work)

        await asyncio.wait_for(asyncio.gather(first.over, second.over), LONG_S)
        assert (first.ended, second.ended) == (True, True)
        assert not other.over.done()


async def test_the_result_comes_with_the_end(
    subscription: Subscription, ledger: AsyncLedger, encoder: LedgerWorker
) -> None:
    task_id, unknown = (
        await submit(ledger, answer_to=subscription.name),
        await submit(ledger, answer_to=subscription.name),
    )
    with (
        subscription.waiting(task_id) as first,
        subscription.waiting(task_id) as second,
        subscription.waiting("task_other") as other,
    ):
        await asyncio.to_thread(encoder.work, 2)

        for waiter in (first, second):
            await asyncio.wait_for(waiter.over, LONG_S)
            assert waiter.ended
            assert waiter.result is not None
            assert waiter.result.vectors.tobytes() == vector("x").tobytes()
        assert not other.over.done()
    with subscription.waiting(unknown) as late:
        assert not late.ended


async def test_an_end_whose_answer_was_lost_is_caught_up_with(
    subscription: Subscription, ledger: AsyncLedger, encoder: LedgerWorker, redis_client: redis.Redis
) -> None:
    task_id = await submit(ledger, answer_to=subscription.name)
    with subscription.waiting(task_id) as waiter:
        await asyncio.to_thread(redis_client.client_kill_filter, _type="pubsub")
        await asyncio.to_thread(encoder.work)

        waiter.stored = True
        await asyncio.wait_for(waiter.over, LONG_S)
        assert waiter.ended


async def test_catching_up_ends_waits_whose_message_was_lost(ledger: AsyncLedger, encoder: LedgerWorker) -> None:
    deaf = Subscription(ledger)
    ended, open_, unknown = await submit(ledger), await submit(ledger, pieces=2), "task_gone"
    await asyncio.to_thread(encoder.work, 2)
    with deaf.waiting(ended) as a, deaf.waiting(open_) as b, deaf.waiting(unknown) as c, deaf.waiting(unknown) as d:
        for wait in (a, b, c, d):
            wait.stored = True
        await deaf.catch_up()

        assert [wait.ended for wait in (a, b, c, d)] == [True, False, True, True]


async def test_a_task_that_is_still_on_its_way_to_the_ledger_is_not_taken_for_one_that_is_over(
    ledger: AsyncLedger,
) -> None:
    deaf = Subscription(ledger)
    with deaf.waiting("task_on_its_way") as wait:
        await deaf.catch_up()
        assert not wait.over.done()
        wait.stored = True
        await deaf.catch_up()
        assert wait.ended


async def test_after_a_reconnect_nothing_is_missing(
    subscription: Subscription, ledger: AsyncLedger, encoder: LedgerWorker, redis_client: redis.Redis
) -> None:
    task_id = await submit(ledger)
    with subscription.waiting(task_id) as waiter:
        await asyncio.to_thread(redis_client.client_kill_filter, _type="pubsub")
        await asyncio.to_thread(encoder.work)

        waiter.stored = True
        await asyncio.wait_for(waiter.over, LONG_S)
        assert waiter.ended

    async def one_subscriber() -> bool:
        return dict(await ledger.client.pubsub_numsub(ENDED_CHANNEL))[ENDED_CHANNEL.encode()] == 1

    await eventually(one_subscriber)


async def test_nobody_is_remembered_after_the_wait(subscription: Subscription) -> None:
    with subscription.waiting("task_a"), subscription.waiting("task_a") as waiter:
        assert subscription.waiting_requests == 2
        assert subscription.awaited_by_others(waiter)
    assert subscription.waiting_requests == 0


async def test_closing_dismisses_present_and_later_waits(subscription: Subscription) -> None:
    with subscription.waiting("task_a") as present:
        subscription.close()
        with subscription.waiting("task_b") as later:
            assert present.over.done()
            assert later.over.done()
            assert (present.ended, later.ended) == (False, False)


async def test_a_client_that_leaves_ends_the_wait(subscription: Subscription) -> None:
    async def gone() -> None:
        """At once."""

    with subscription.waiting("task_a") as wait:
        assert await wait.until_over(LONG_S, gone)
        assert not await wait.until_over(0, gone)
