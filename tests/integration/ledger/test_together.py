"""Tasks that come in one call end as if they had come one after the other, at a part of the cost."""

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.testing import RedisServer
from tasks.errors import BacklogFull, EmbedqError, RedisUnavailable, Refused, StorageFull
from tasks.ledger import Admission, Alias, AsyncLedger, Lane, NewTask, NewUnit, SubmitReply, operations
from tasks.ledger.task import KeyAdmission
from tests.integration.ledger.driver import Driver, commands
from tests.integration.ledger.listener import Listener
from tests.integration.ledger.snapshot import Snapshot
from tests.ledger_builders import UNLIMITED, submission

JOINED = Alias("a" * 32, "a" * 32, join=True)
KEYED = Alias("k" * 32, "d" * 32, join=False)

RATE = 20.0
"""That a process assumes: the same for all that it sends."""
LIMITS = st.builds(
    Admission,
    max_backlog_s=st.sampled_from([3, 1e9]),
    default_rate=st.just(RATE),
    max_backlog_bytes=st.sampled_from([60, 2**40]),
    max_memory_percent=st.just(90.0),
    vector_bytes=st.sampled_from([0, 100]),
    owner_share=st.sampled_from([0.0, 2.0]),
    key=st.builds(
        KeyAdmission,
        tokens_per_minute=st.sampled_from([None, 100]),
        queued_tokens=st.sampled_from([None, 60]),
        open_jobs=st.sampled_from([None, 2]),
    ),
)
ALIASES = st.sampled_from([None, None, JOINED, KEYED, dataclasses.replace(KEYED, digest="e" * 32)])
COMERS = st.lists(
    st.fixed_dictionaries(
        {
            "sizes": st.sampled_from([((1, 10),), ((2, 25),), ((1, 5), (3, 12))]),
            "lane": st.sampled_from([Lane.ONLINE, Lane.ONLINE, Lane.BULK]),
            "owner": st.sampled_from("aab"),
            "alias": ALIASES,
            "deadline_in_ms": st.sampled_from([None, 2000, 20_000, 30_000]),
            "listed": st.booleans(),
            "answer_to": st.sampled_from(["", "p", "q"]),
            "metadata": st.sampled_from([b"", b"{}"]),
            "admission": st.just(dataclasses.replace(UNLIMITED, default_rate=RATE)) | LIMITS,
        }
    ),
    min_size=1,
    max_size=6,
)


def one_by_one(driver: Driver, comers: Sequence[NewTask]) -> list[SubmitReply | EmbedqError]:
    return [driver.submit_together([comer])[0] for comer in comers]


def told(replies: Sequence[SubmitReply | EmbedqError]) -> list[object]:
    """Without the bell, of which one of them tells; and what a key may still bring is later where nothing is stored."""
    return [
        (type(reply), str(reply))
        if isinstance(reply, EmbedqError)
        else dataclasses.replace(reply, bell_due=False, room=None if reply.joined else reply.room)
        for reply in replies
    ]


def bells(replies: Sequence[SubmitReply | EmbedqError]) -> int:
    return sum(reply.bell_due for reply in replies if isinstance(reply, SubmitReply))


def ended(driver: Driver, client: redis.Redis) -> tuple[dict[str, Any], set[str]]:
    """Everything in Redis, and the keys that have a TTL."""
    snapshot = Snapshot.take(client)
    return snapshot.values, {name for name, key in snapshot.keys.items() if key.ttl_ms >= 0}


@settings(
    deadline=None, max_examples=150, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    first=COMERS, then=COMERS, again=st.lists(st.integers(0, 20), max_size=2), limit=st.sampled_from([0, 3000, 5000])
)
def test_together_is_as_one_by_one(
    redis_client: redis.Redis, first: list[Any], then: list[Any], again: list[int], limit: int
) -> None:
    ways = []
    for way in (one_by_one, Driver.submit_together):
        redis_client.flushall()
        random.seed(0)  # times to try again are spread
        driver = Driver(redis_client)
        redis_client.set("eq:memory", f"100 {limit}")
        sent = [
            [driver.submission(*comer.pop("sizes"), **comer) for comer in map(dict, some)] for some in (first, then)
        ]
        replies = [*way(driver, sent[0])]
        driver.advance(500)
        before = [*sent[0], *sent[1]]
        replies += way(driver, [*sent[1], *(before[number % len(before)] for number in again)])
        ways.append((told(replies), bells(replies), *ended(driver, redis_client)))
    assert ways[0] == ways[1]


def test_a_task_that_came_with_it_is_joined(driver: Driver) -> None:
    first, second = (driver.submission(alias=JOINED, deadline_in_ms=ms) for ms in (5000, 9000))
    replies = driver.submit_together([first, second])
    assert [(reply.task_id, reply.joined) for reply in replies if isinstance(reply, SubmitReply)] == [
        (first.task_id, False),
        (first.task_id, True),
    ]
    assert driver.task(first.task_id).deadline_ms == driver.now_ms + 9000


def test_the_latest_of_those_who_join_together_decides(driver: Driver) -> None:
    known = driver.submit(alias=JOINED, deadline_in_ms=5000)
    driver.submit_together([driver.submission(alias=JOINED, deadline_in_ms=ms) for ms in (9000, 7000)])
    assert driver.task(known.task_id).deadline_ms == driver.now_ms + 9000


def test_a_task_that_is_joined_in_this_call_counts(driver: Driver) -> None:
    admission = Admission(max_backlog_s=3, default_rate=RATE)
    driver.submit((1, 50), alias=JOINED, deadline_in_ms=2000)
    comers = [
        driver.submission((1, 50), alias=JOINED, deadline_in_ms=30_000),
        driver.submission((1, 40), admission=admission),
    ]
    assert [type(reply) for reply in driver.submit_together(comers)] == [SubmitReply, BacklogFull]


def test_what_nobody_waits_for_is_taken_off_once(driver: Driver) -> None:
    admission = Admission(max_backlog_s=3, default_rate=RATE)
    driver.submit((1, 50), deadline_in_ms=2000)
    replies = driver.submit_together([driver.submission((1, 40), admission=admission) for _ in range(2)])
    assert [type(reply) for reply in replies] == [SubmitReply, BacklogFull]


def test_what_is_refused_takes_nobody_along(driver: Driver) -> None:
    driver.submit(alias=KEYED)
    replies = driver.submit_together(
        [
            driver.submission(),
            driver.submission(alias=dataclasses.replace(KEYED, digest="e" * 32)),
            driver.submission((1, 500), admission=Admission(max_backlog_s=1e9, max_backlog_bytes=1)),
            driver.submission(),
        ]
    )
    assert [type(reply) for reply in replies] == [SubmitReply, Refused, type(replies[2]), SubmitReply]
    assert isinstance(replies[2], EmbedqError)
    assert len(driver.work_off()) == 3


@pytest.mark.parametrize(("limit", "share", "stored"), [(3000, 0, 2), (7000, 2, 3)], ids=["of all", "of one owner"])
def test_room_for_vectors_is_kept_of_those_who_come_together(
    driver: Driver, redis_client: redis.Redis, limit: int, share: float, stored: int
) -> None:
    redis_client.set("eq:memory", f"100 {limit}")
    admission = Admission(max_backlog_s=1e9, max_memory_percent=90, vector_bytes=100, owner_share=share)
    replies = driver.submit_together([driver.submission(admission=admission) for _ in range(stored + 1)])
    assert [type(reply) for reply in replies] == [SubmitReply] * stored + [StorageFull]


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0]])
def test_in_a_full_redis_who_joins_makes_no_room_for_others(
    driver: Driver, redis_client: redis.Redis, order: list[int]
) -> None:
    known = driver.submit(alias=JOINED, deadline_in_ms=5000)
    comers = [driver.submission(), driver.submission(alias=JOINED, deadline_in_ms=9000), driver.submission()]
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1_000_000)
    try:
        replies = driver.submit_together([comers[i] for i in order])
    finally:
        redis_client.config_set("maxmemory", limit)
    for place, reply in zip(order, replies, strict=True):
        if place == 1:
            assert isinstance(reply, SubmitReply)
            assert (reply.task_id, reply.joined) == (known.task_id, True)
        else:
            assert isinstance(reply, StorageFull)
    assert [unit.task_id for unit in driver.work_off()] == [known.task_id]


def test_as_many_streams_are_woken_as_tasks_have_come(driver: Driver, redis_client: redis.Redis) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(Listener.of_worker(redis_client, f"w/{number}")) for number in range(3)]
        for number in range(3):
            driver.claim(f"w/{number}", linger_ms=800)
        replies = driver.submit_together([driver.submission() for _ in range(2)])
        assert sorted(stream.messages() for stream in streams) == [[], [b"work"], [b"work"]]
    assert bells(replies) == 0


def test_one_of_them_rings_the_bell(driver: Driver) -> None:
    assert bells(driver.submit_together([driver.submission() for _ in range(3)])) == 1


def test_together_they_cost_few_commands(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", f"1000 {2**40}")
    admission = Admission(max_backlog_s=1e9, max_memory_percent=80, vector_bytes=1536)

    def some(number: int) -> list[NewTask]:
        return [
            driver.submission(
                alias=Alias(name := f"{number}-{each:030}", name, join=True), deadline_in_ms=20_000, admission=admission
            )
            for each in range(16)
        ]

    driver.submit_together(some(1))
    assert sum(commands(redis_client, lambda: driver.submit_together(some(2))).values()) <= 16 * 7 + 16


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[AsyncLedger]:
    ledger = AsyncLedger.connect(redis_url)
    await ledger.run(operations.overview())  # a connection is open
    yield ledger
    await ledger.close()


def _calls(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


async def test_those_of_one_queue_that_wait_together_are_one_call(
    ledger: AsyncLedger, redis_client: redis.Redis
) -> None:
    await ledger.run(operations.submit(submission(task_id="known")))
    redis_client.config_resetstat()
    tasks = [submission(task_id=f"{queue}{n}", queue=queue) for n in range(30) for queue in ("m", "n")]
    replies = await asyncio.gather(*(ledger.run(operations.submit(task)) for task in tasks))
    assert [reply.task_id for reply in replies] == [task.task_id for task in tasks]
    assert _calls(redis_client) == 2
    assert await ledger.run(operations.read_task("n29")) is not None


@pytest.mark.parametrize("number", [1, 5])
async def test_a_redis_that_forgot_the_script_is_taught_again(
    ledger: AsyncLedger, redis_client: redis.Redis, number: int
) -> None:
    redis_client.script_flush()
    tasks = [submission(task_id=f"task_{n}") for n in range(number)]
    replies = await asyncio.gather(*(ledger.run(operations.submit(task)) for task in tasks))
    assert [reply.task_id for reply in replies] == [task.task_id for task in tasks]


async def test_a_caller_who_leaves_takes_no_other_along(ledger: AsyncLedger) -> None:
    calls = [
        asyncio.ensure_future(ledger.run(operations.submit(submission(task_id=f"task_{number}"))))
        for number in range(5)
    ]
    await asyncio.sleep(0)
    calls[2].cancel()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert [reply.task_id if isinstance(reply, SubmitReply) else type(reply) for reply in replies] == [
        *("task_0", "task_1"),
        asyncio.CancelledError,
        *("task_3", "task_4"),
    ]


async def test_a_caller_who_leaves_during_the_call_takes_no_other_along(
    ledger: AsyncLedger, redis_client: redis.Redis
) -> None:
    await ledger.run(operations.submit(submission(task_id="known")))
    redis_client.client_pause(300)
    calls = [asyncio.ensure_future(ledger.run(operations.submit(submission(task_id=f"task_{n}")))) for n in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)  # the call is on its way, and is not answered before the pause is over
    calls[0].cancel()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(reply) for reply in replies] == [asyncio.CancelledError, SubmitReply, SubmitReply]


async def test_tasks_of_many_bytes_are_several_calls(ledger: AsyncLedger, redis_client: redis.Redis) -> None:
    await ledger.run(operations.submit(submission(task_id="known")))
    redis_client.config_resetstat()
    units = [NewUnit(items=1, cost=1, payload=orjson.dumps(["x" * 20_000]))]
    tasks = [submission(task_id=f"task_{n}", units=units) for n in range(9)]
    replies = await asyncio.gather(*(ledger.run(operations.submit(task)) for task in tasks))
    assert [reply.task_id for reply in replies] == [task.task_id for task in tasks]
    assert _calls(redis_client) == 3


async def test_each_hears_of_its_own_refusal(ledger: AsyncLedger) -> None:
    narrow = Admission(max_backlog_s=1e9, max_backlog_bytes=1)
    calls = [
        ledger.run(operations.submit(submission(task_id=f"task_{n}", admission=narrow if n else UNLIMITED)))
        for n in range(3)
    ]
    stored, *refused = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(stored, SubmitReply)
    assert len(refused) == 2
    assert all(isinstance(error, EmbedqError) for error in refused)


async def test_an_outage_reaches_all_of_them(private_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(private_redis.url)
    await ledger.run(operations.overview())
    private_redis.kill()
    calls = (ledger.run(operations.submit(submission(task_id=f"task_{number}"))) for number in range(5))
    assert {type(reply) for reply in await asyncio.gather(*calls, return_exceptions=True)} == {RedisUnavailable}
    private_redis.start()
    assert not (await ledger.run(operations.submit(submission(task_id="task_0")))).joined
    await ledger.close()
