"""Redis is away, hangs, refuses to write or comes back: what callers see, and that they go on."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from api.waiting.subscription import Subscription, WaitingTimes
from tasks.errors import Overloaded, RedisUnavailable
from tasks.ledger.client import CALL_TIMEOUT_S, AsyncLedger, Ledger
from tasks.ledger.heartbeat import watch
from tasks.ledger.overview import overview
from tasks.ledger.read import read_result
from tasks.ledger.redis_keys import ENDED_CHANNEL, wake_channel
from tasks.ledger.submit import submit
from tasks.ledger.task import NewPiece, Outcome
from tasks.worker.idle_wait import Wakeup
from tests.integration.ledger.driver import Driver
from tests.link import Link
from tests.processes import PATIENCE_S, RedisServer, free_port, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import BellThread

QUICK_TIMEOUT_S = 0.1
ATTEMPTS = 4
WAKE = wake_channel("m", "w/0")


async def test_a_redis_that_hangs_is_reported(private_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(private_redis.url, lag_s=lambda: 0.3)
    await ledger.run(overview())
    late = AsyncLedger.connect(private_redis.url, lag_s=lambda: 1.0)
    retry = Retry(NoBackoff(), ATTEMPTS - 1)
    worker = Ledger(redis.Redis.from_url(private_redis.url, socket_timeout=QUICK_TIMEOUT_S, retry=retry))
    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RedisUnavailable) as reported:  # it answers nobody, though the loop was late
            await ledger.run(overview())
        assert reported.value.retry_after_s in {1, 2, 3}
        with pytest.raises(Overloaded):  # an answer that a late loop did not read is no outage
            await late.run(overview(), timeout_s=QUICK_TIMEOUT_S)
        with pytest.raises(RedisUnavailable):
            worker.run(overview())
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
    await ledger.close()
    await late.close()
    worker.close()


def refuses_writes(client: redis.Redis) -> Callable[[], object]:
    """As a failed disk does, in the same place."""
    client.config_set("min-replicas-to-write", 1)
    return lambda: client.config_set("min-replicas-to-write", 0)


def is_a_replica(client: redis.Redis) -> Callable[[], object]:
    client.replicaof("127.0.0.1", free_port())
    return lambda: client.replicaof("NO", "ONE")


def is_busy_with_a_script(client: redis.Redis) -> Callable[[], object]:
    client.config_set("lua-time-limit", 10)
    stuck: Any = client.connection_pool.get_connection()
    stuck.send_command("EVAL", "while true do end", 0)
    wait_until(lambda: _is_busy(client), message="BUSY was not reported")

    def mend() -> None:
        client.script_kill()
        with pytest.raises(redis.ResponseError):
            stuck.read_response()
        client.connection_pool.release(stuck)

    return mend


def _is_busy(client: redis.Redis) -> bool:
    try:
        return not client.ping()
    except redis.ResponseError:
        return True


def test_a_redis_that_takes_no_writes_is_unavailable_until_it_does(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        for damage in (refuses_writes, is_a_replica, is_busy_with_a_script):
            mend = damage(client)
            try:
                for call in (driver.submit, driver.claim, driver.watch):
                    with pytest.raises(RedisUnavailable):
                        call()
            finally:
                mend()
            client.script_flush()  # it is sent again
            assert not driver.submit().joined


async def test_calls_that_move_megabytes_have_their_own_time_and_wait_for_each_other(
    private_redis: RedisServer,
) -> None:
    data = b"x" * 2**22
    with private_redis.client() as client, Link(private_redis.endpoint.port, step_s=0.002) as link:
        driver, ledger = Driver(client), AsyncLedger.connect(link.url, max_connections=1)
        new = [driver.new_task(pieces=[NewPiece(items=1, cost=1, payload=data)]) for _ in range(2)]
        first, _ = await asyncio.gather(*(ledger.run(submit(task), timeout_s=30) for task in new))
        claim = driver.claim(max_pieces=1)
        driver.commit(claim, [Outcome(claim.pieces[0], claim.pieces[0].payload)])
        result = await ledger.run(read_result(first.task_id), timeout_s=30)
        await ledger.close()
    assert result is not None
    assert result.vectors.tobytes() == data


async def test_the_web_tier_finds_the_new_master_and_hears_it(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    ledger = AsyncLedger.connect(link.url)
    large = 2 * CALL_TIMEOUT_S
    listening = Subscription(ledger, WaitingTimes(catch_up_s=0.05))
    task = asyncio.create_task(listening.run())
    async with asyncio.timeout(10):
        await listening.subscribed.wait()
    await ledger.run(watch("m"))
    await ledger.run(watch("m"), timeout_s=large)
    fail_over()
    await ledger.run(watch("m"))
    await ledger.run(watch("m"), timeout_s=large)
    async with asyncio.timeout(10):
        while not await ledger.client.publish(ENDED_CHANNEL, ""):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
    while not task.done():  # redis-py may take the end of its own time limit for what ends the task
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
    await ledger.close()


def test_a_worker_finds_the_new_master_and_is_woken_by_it(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    former = link.target
    ledger = Ledger.connect(link.url)
    wakeup = Wakeup(ledger, WAKE)
    wakeup.open()
    ledger.run(watch("m"))
    fail_over()
    ledger.run(watch("m"))
    wakeup.open()
    assert ledger.client.publish(WAKE, "work") == 1
    wakeup.close()
    ledger.close()
    link.target = former
    alone = Ledger.connect(link.url)
    with pytest.raises(RedisUnavailable, match="READONLY"):  # no other master is there
        alone.run(watch("m"))
    alone.close()


def test_bells_find_the_new_master_though_one_waits_at_the_former(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    counted: list[bool] = []
    bell = BellThread(make_celery(load_settings(redis_url=link.url)), lambda _, sent: counted.append(sent))
    bell.send_bell("m")
    wait_until(lambda: counted, message="no bell")
    fail_over()
    for _ in range(2):
        bell.send_bell("m")
    wait_until(lambda: len(counted) == 3, message="no bell")
    bell.close()
    assert counted == [True, True, True]
    with redis.Redis(port=link.target) as master:
        assert master.llen(bell_queue("m")) == 1


def test_a_subscription_that_is_half_open_is_given_up(private_redis: RedisServer) -> None:
    with Link(private_redis.endpoint.port) as link, private_redis.client() as publisher:
        ledger = Ledger(redis.Redis.from_url(link.url, health_check_interval=QUICK_TIMEOUT_S))
        wakeup = Wakeup(ledger, WAKE)
        wakeup.open()
        link.silence()
        wakeup.wait(PATIENCE_S, lambda: False)
        wakeup.open()
        assert dict(publisher.pubsub_numsub(WAKE))[WAKE.encode()] == 2, "the one that is silent, and the new one"
        wakeup.close()
        ledger.close()
