"""Redis fails over or falls silent: those who wait for its messages hear the new master."""

import asyncio
from collections.abc import Callable

import redis

from api.waiting.subscription import Subscription, WaitingTimes
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import ENDED_CHANNEL, wake_channel
from tasks.worker.idle_wait import Wakeup
from tests.link import Link
from tests.processes import PATIENCE_S, RedisServer, wait_until
from worker_config.bell import BellThread
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings

QUICK_TIMEOUT_S = 0.1


def test_a_subscription_that_is_half_open_is_given_up(private_redis: RedisServer) -> None:
    with Link(private_redis.endpoint.port) as link, private_redis.client() as publisher:
        ledger = Ledger(redis.Redis.from_url(link.url, health_check_interval=QUICK_TIMEOUT_S))
        wakeup = Wakeup(ledger, wake_channel("m", "w/0"))
        wakeup.open()
        link.silence()
        wakeup.wait(PATIENCE_S, lambda: False)
        wakeup.open()
        channel = wake_channel("m", "w/0")
        assert dict(publisher.pubsub_numsub(channel))[channel.encode()] == 2, "the one that is silent, and the new one"
        wakeup.close()
        ledger.close()


def test_a_stream_is_woken_by_the_new_master(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    ledger = Ledger.connect(link.url)
    wakeup = Wakeup(ledger, wake_channel("m", "w/0"))
    wakeup.open()
    ledger.run(watch("m"))
    fail_over()
    ledger.run(watch("m"))
    wakeup.open()
    assert ledger.client.publish(wake_channel("m", "w/0"), "work") == 1
    wakeup.close()
    ledger.close()


async def test_the_web_tier_hears_the_new_master(failover: tuple[Link, Callable[[], None]]) -> None:
    link, fail_over = failover
    ledger = AsyncLedger.connect(link.url)
    listening = Subscription(ledger, WaitingTimes(catch_up_s=0.05))
    task = asyncio.create_task(listening.run())
    async with asyncio.timeout(10):
        await listening.subscribed.wait()
    await ledger.run(watch("m"))
    fail_over()
    await ledger.run(watch("m"))
    async with asyncio.timeout(10):
        while not await ledger.client.publish(ENDED_CHANNEL, ""):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
    while not task.done():  # redis-py may take the end of its own time limit for what ends the task
        task.cancel()
        await asyncio.wait([task], timeout=0.1)
    await ledger.close()


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
