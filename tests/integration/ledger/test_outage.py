"""Redis is away, hangs, refuses to write or comes back: what callers see, and that they see it soon."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.errors import Overloaded, RedisUnavailable
from tasks.ledger.client import CALL_TIMEOUT_S, AsyncLedger, Ledger
from tasks.ledger.heartbeat import watch
from tasks.ledger.overview import overview
from tasks.ledger.read import read_result
from tasks.ledger.submit import submit
from tasks.ledger.task import NewPiece, Outcome, State
from tests.integration.ledger.driver import Driver
from tests.link import Link
from tests.processes import RedisServer, free_port, wait_until

QUICK_TIMEOUT_S = 0.1
ATTEMPTS = 4


@pytest.fixture
def hung_redis(private_redis: RedisServer) -> Iterator[RedisServer]:
    os.kill(private_redis.pid, signal.SIGSTOP)
    yield private_redis
    os.kill(private_redis.pid, signal.SIGCONT)


async def test_a_redis_that_is_down_is_reported_to_the_web_tier() -> None:
    ledger = AsyncLedger.connect(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(RedisUnavailable):
        await ledger.run(overview())
    await ledger.close()


async def test_a_redis_that_hangs_is_reported_to_the_web_tier(hung_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(hung_redis.url)
    with pytest.raises(RedisUnavailable) as reported:
        await ledger.run(overview())
    assert reported.value.retry_after_s in {1, 2, 3}
    await ledger.close()


async def test_an_answer_that_a_late_loop_did_not_read_is_no_outage(hung_redis: RedisServer) -> None:
    ledger = AsyncLedger.connect(hung_redis.url, lag_s=lambda: 1.0)
    with pytest.raises(Overloaded):
        await ledger.run(overview(), timeout_s=QUICK_TIMEOUT_S)
    await ledger.close()


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


def test_a_redis_that_is_down_is_reported_to_a_worker_after_a_few_attempts() -> None:
    ledger = Ledger.connect(f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(RedisUnavailable):
        ledger.run(overview())
    ledger.close()


def test_a_redis_that_hangs_is_reported_to_a_worker(hung_redis: RedisServer) -> None:
    client = redis.Redis.from_url(
        hung_redis.url, socket_timeout=QUICK_TIMEOUT_S, retry=Retry(NoBackoff(), ATTEMPTS - 1)
    )
    ledger = Ledger(client)
    with pytest.raises(RedisUnavailable):
        ledger.run(overview())
    ledger.close()


def test_a_worker_that_lost_its_connection_goes_on_with_a_new_one(private_redis: RedisServer) -> None:
    ledger = Ledger.connect(private_redis.url)
    ledger.run(overview())
    with private_redis.client() as other:
        other.client_kill_filter(_type="normal", skipme=True)
        assert ledger.run(overview()) == {}
    ledger.close()


def test_what_was_accepted_survives_a_killed_redis(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        task_id = Driver(client).submit((2, 20)).task_id
    private_redis.kill()
    private_redis.start()
    with private_redis.client() as client:
        driver = Driver(client)
        assert driver.task(task_id).state is State.QUEUED
        assert len(driver.work_off()) == 1
        assert driver.task(task_id).state is State.COMPLETED


def test_what_was_leased_survives_a_killed_redis(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        driver.submit((2, 20))
        claim = driver.claim()
        private_redis.kill()
        private_redis.start()
        assert driver.commit(claim) == [1]


def reports_unavailable(driver: Driver) -> bool:
    try:
        driver.submit()
    except RedisUnavailable:
        return True
    return False


def test_a_redis_that_became_a_replica_is_unavailable(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        client.replicaof("127.0.0.1", free_port())
        try:
            for call in (driver.submit, driver.claim, driver.watch):
                with pytest.raises(RedisUnavailable):
                    call()
        finally:
            client.replicaof("NO", "ONE")


def test_a_redis_that_cannot_write_to_its_disk_is_unavailable(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        driver = Driver(client)
        client.config_set("min-replicas-to-write", 1)  # refuses writes as a failed disk does, in the same place
        try:
            for call in (driver.submit, driver.claim, driver.watch):
                with pytest.raises(RedisUnavailable):
                    call()
        finally:
            client.config_set("min-replicas-to-write", 0)


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


async def test_the_web_tier_finds_the_new_master_behind_the_same_address(
    failover: tuple[Link, Callable[[], None]],
) -> None:
    link, fail_over = failover
    ledger = AsyncLedger.connect(link.url)
    large = 2 * CALL_TIMEOUT_S
    await ledger.run(watch("m"))
    await ledger.run(watch("m"), timeout_s=large)
    fail_over()
    await ledger.run(watch("m"))
    await ledger.run(watch("m"), timeout_s=large)
    await ledger.close()


def test_a_worker_finds_the_new_master_behind_the_same_address(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    ledger = Ledger.connect(link.url)
    ledger.run(watch("m"))
    fail_over()
    ledger.run(watch("m"))
    ledger.close()


def test_a_replica_without_another_master_stays_unavailable(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    former = link.target
    ledger = Ledger.connect(link.url)
    ledger.run(watch("m"))
    fail_over()
    link.target = former
    with pytest.raises(RedisUnavailable, match="READONLY"):
        ledger.run(watch("m"))
    ledger.close()


async def test_calls_that_move_megabytes_have_their_own_time(private_redis: RedisServer) -> None:
    data = b"float" * 2**20 + b"32"
    data = data[: len(data) // 4 * 4]
    with private_redis.client() as client, Link(private_redis.endpoint.port, step_s=0.002) as link:
        driver, ledger = Driver(client), AsyncLedger.connect(link.url)
        task = driver.new_task(pieces=[NewPiece(items=1, cost=1, payload=data)])
        task_id = (await ledger.run(submit(task), timeout_s=30)).task_id
        claim = driver.claim()
        driver.commit(claim, [Outcome(claim.pieces[0], claim.pieces[0].payload)])
        result = await ledger.run(read_result(task_id), timeout_s=30)
        await ledger.close()
    assert result is not None
    assert result.vectors.tobytes() == data


async def test_calls_that_move_megabytes_wait_for_each_other(private_redis: RedisServer) -> None:
    pieces = [NewPiece(items=1, cost=1, payload=b"x" * 2**22)]
    with private_redis.client() as client, Link(private_redis.endpoint.port, step_s=0.002) as link:
        driver, ledger = Driver(client), AsyncLedger.connect(link.url, max_connections=1)
        calls = [submit(driver.new_task(pieces=pieces)) for _ in range(2)]
        replies = await asyncio.gather(*(ledger.run(call, timeout_s=30) for call in calls))
        await ledger.close()
    assert [reply.joined for reply in replies] == [False] * 2
