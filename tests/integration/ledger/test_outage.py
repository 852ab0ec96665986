"""Redis is away, hangs, refuses to write or comes back: what callers see, and that they go on."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator

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
from tasks.ledger.task import NewPiece, Outcome, State
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


@pytest.fixture
def hung_redis(private_redis: RedisServer) -> Iterator[RedisServer]:
    os.kill(private_redis.pid, signal.SIGSTOP)
    yield private_redis
    os.kill(private_redis.pid, signal.SIGCONT)


async def test_a_redis_that_is_down_is_reported() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    ledger, worker = AsyncLedger.connect(url), Ledger.connect(url)
    with pytest.raises(RedisUnavailable):
        await ledger.run(overview())
    with pytest.raises(RedisUnavailable):
        worker.run(overview())
    await ledger.close()
    worker.close()


async def test_a_redis_that_hangs_is_reported(hung_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(hung_redis.url)
    with pytest.raises(RedisUnavailable) as reported:
        await ledger.run(overview())
    assert reported.value.retry_after_s in {1, 2, 3}
    late = AsyncLedger.connect(hung_redis.url, lag_s=lambda: 1.0)
    with pytest.raises(Overloaded):  # an answer that a late loop did not read is no outage
        await late.run(overview(), timeout_s=QUICK_TIMEOUT_S)
    retry = Retry(NoBackoff(), ATTEMPTS - 1)
    worker = Ledger(redis.Redis.from_url(hung_redis.url, socket_timeout=QUICK_TIMEOUT_S, retry=retry))
    with pytest.raises(RedisUnavailable):
        worker.run(overview())
    await ledger.close()
    await late.close()
    worker.close()


async def test_a_redis_that_answers_nobody_is_an_outage_though_the_loop_was_late(private_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(private_redis.url, lag_s=lambda: 0.3)
    await ledger.run(overview())
    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RedisUnavailable):
            await ledger.run(overview())
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
        await ledger.close()


def test_a_worker_that_lost_its_connection_goes_on_with_a_new_one(private_redis: RedisServer) -> None:
    ledger = Ledger.connect(private_redis.url)
    ledger.run(overview())
    with private_redis.client() as other:
        other.client_kill_filter(_type="normal", skipme=True)
        assert ledger.run(overview()) == {}
    ledger.close()


def test_what_was_accepted_or_leased_survives_a_killed_redis(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        leased = driver.submit((2, 20)).task_id
        claim = driver.claim()
        accepted = driver.submit((2, 20)).task_id
        private_redis.kill()
        private_redis.start()
        assert driver.task(accepted).state is State.QUEUED
        assert driver.commit(claim) == [1]
        assert len(driver.work_off()) == 1
        assert [driver.task(task_id).state for task_id in (leased, accepted)] == [State.COMPLETED] * 2


def refuses_writes(client: redis.Redis) -> Callable[[], object]:
    """As a failed disk does, in the same place."""
    client.config_set("min-replicas-to-write", 1)
    return lambda: client.config_set("min-replicas-to-write", 0)


def is_a_replica(client: redis.Redis) -> Callable[[], object]:
    client.replicaof("127.0.0.1", free_port())
    return lambda: client.replicaof("NO", "ONE")


@pytest.mark.parametrize("damage", [refuses_writes, is_a_replica])
def test_a_redis_that_takes_no_writes_is_unavailable(
    private_redis: RedisServer, damage: Callable[[redis.Redis], Callable[[], object]]
) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        mend = damage(client)
        try:
            for call in (driver.submit, driver.claim, driver.watch):
                with pytest.raises(RedisUnavailable):
                    call()
        finally:
            mend()


def reports_unavailable(driver: Driver) -> bool:
    try:
        driver.submit()
    except RedisUnavailable:
        return True
    return False


def test_a_redis_that_is_busy_with_a_script_is_unavailable(private_redis: RedisServer) -> None:
    with private_redis.client() as client, private_redis.client() as stuck:
        client.config_set("lua-time-limit", 10)
        pool = stuck.connection_pool.get_connection()
        pool.send_command("EVAL", "while true do end", 0)
        driver = Driver(client)
        try:
            wait_until(lambda: reports_unavailable(driver), message="BUSY was not reported")
        finally:
            client.script_kill()
        with pytest.raises(redis.ResponseError):
            pool.read_response()
        stuck.connection_pool.release(pool)
        assert not driver.submit().joined


def test_scripts_that_redis_forgot_are_sent_again(driver: Driver, redis_client: redis.Redis) -> None:
    driver.submit()
    redis_client.script_flush()
    assert len(driver.work_off()) == 1


def test_a_defect_of_a_script_stays_what_it_is(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.hset("eq:q:m:state", "not", "a string")
    redis_client.expire("eq:q:m:state", 60)
    calls: list[Callable[[], object]] = [driver.submit, driver.claim]
    for call in calls:
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            call()


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


# ---- another master behind the same address


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
