"""A Redis with a replica and Sentinels: callers follow a failover, and what was promised is not lost in it.

One group serves all tests of this file. A test that needs both servers asks for `pair`.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from tasks.errors import NotReplicated, RedisUnavailable
from tasks.ledger.cancel import forget
from tasks.ledger.client import CALL_TIMEOUT_S, AsyncLedger, Ledger
from tasks.ledger.read import read_task, read_tasks
from tasks.ledger.redis_keys import wake_channel
from tasks.ledger.submit import submit
from tasks.ledger.task import Alias, NewTask
from tasks.worker.idle_wait import Wakeup
from tests import ledger_builders
from tests.processes import RedisGroup, RedisServer, eventually, wait_until
from worker_config.redis_connection import Sentinels

_numbers = itertools.count(1)

ELSEWHERE = "redis://nobody/0"
"""Sentinels say where the master is."""


def one_down(group: RedisGroup) -> Sentinels:
    """The first Sentinel is."""
    return Sentinels(group.SERVICE, ("redis://127.0.0.1:1", *group.named.urls))


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[RedisGroup]:
    assert redis_server.running  # without a Redis program these tests are skipped as all others
    with RedisGroup(tmp_path_factory.mktemp("group")) as started:
        yield started


@pytest.fixture
def pair(group: RedisGroup) -> RedisGroup:
    """With a replica that could take over."""
    if not group.ready():
        group.rejoin()
    return group


@pytest.fixture
async def ledger(pair: RedisGroup) -> AsyncIterator[AsyncLedger]:
    connected = AsyncLedger.connect(ELSEWHERE, "replica", one_down(pair))
    yield connected
    await connected.close()


def new_task(**changed: object) -> NewTask:
    """One that a client relies on after the answer."""
    return ledger_builders.new_task(**{"task_id": f"task_{next(_numbers):05d}", "listed": True, **changed})


async def accepted(ledger: AsyncLedger, timeout_s: float = CALL_TIMEOUT_S) -> NewTask:
    """One that was promised. A replica on a busy machine is late at times: then another is sent, as by a client."""

    async def promised() -> NewTask | None:
        task = new_task()
        with suppress(NotReplicated):
            await ledger.run(submit(task), timeout_s=timeout_s)
            return task
        return None

    return await eventually(promised, message="a replica that has the task")


async def test_a_promise_waits_for_a_replica(pair: RedisGroup, ledger: AsyncLedger) -> None:
    alias = Alias("name", "digest", join=False)
    task = await accepted(ledger)
    # Redis knows its script now: otherwise the call below would wait twice.
    with suppress(NotReplicated):
        await ledger.run(forget("m", "nobody"))
    stalled = pair.replica
    stalled.send(signal.SIGSTOP)
    try:
        with pytest.raises(NotReplicated):
            await ledger.run(submit(new_task(alias=alias)))
        assert await ledger.run(read_task(task.task_id))
        assert not (await ledger.run(submit(new_task(listed=False)))).joined
        with pytest.raises(NotReplicated):
            await ledger.run(forget("m", "nobody"))
        repeating = AsyncLedger.connect(ELSEWHERE, "replica", pair.named)  # on connections that have written nothing
        with pytest.raises(NotReplicated):
            await repeating.run(submit(new_task(alias=alias)))
    finally:
        stalled.send(signal.SIGCONT)

    async def joined() -> bool:
        try:
            reply = await repeating.run(submit(new_task(alias=alias)))
        except NotReplicated:
            return False
        assert reply.joined
        return True

    await eventually(joined, message="a replica that has the first task")
    await repeating.close()


async def test_everybody_follows_a_failover(pair: RedisGroup, ledger: AsyncLedger) -> None:
    worker = Ledger.connect(ELSEWHERE, sentinels=one_down(pair))
    wakeup = Wakeup(worker, wake_channel("m", "w/0"))
    wakeup.open()
    promised = [await accepted(ledger) for _ in range(50)]
    await asyncio.to_thread(pair.fail_over)

    async def kept() -> bool:
        try:
            tasks = await ledger.run(read_tasks([task.task_id for task in promised]))
        except RedisUnavailable:
            return False
        assert all(tasks)
        return True

    await eventually(kept, message="an answer of the new master")
    assert worker.run(read_task(promised[0].task_id))
    wait_until(wakeup.try_open, message="a subscription at the new master")
    assert worker.client.publish(wake_channel("m", "w/0"), "work") == 1
    wakeup.close()
    worker.close()


def test_a_master_that_was_cut_off_and_answers_again_is_left(pair: RedisGroup) -> None:
    """It takes writes that nobody will keep, until a Sentinel finds it, and that takes ten seconds."""
    ledger = Ledger.connect(ELSEWHERE, sentinels=pair.named)
    wakeup = Wakeup(ledger, wake_channel("m", "w/0"))
    wakeup.open()
    former = pair.master
    os.kill(former.pid, signal.SIGSTOP)
    wait_until(lambda: pair.master is not former, message="a new master")
    os.kill(former.pid, signal.SIGCONT)
    ledger.find_master()
    task = new_task()
    ledger.run(submit(task))
    wakeup.open()
    with pair.master.client() as client:
        assert client.publish(wake_channel("m", "w/0"), "work") == 1
        assert Ledger(client).run(read_task(task.task_id))
    wakeup.close()
    ledger.close()
