"""What calls cost: commands inside scripts do not grow with the backlog, one round trip each, little memory."""

from typing import Any

import pytest
import redis
from redis.client import Monitor

from tasks.ledger import ENDED_CHANNEL, Claim, Lane, NewUnit, operations
from tasks.ledger.executor import own_arguments, source
from tests.integration.ledger.driver import Driver, commands, finished
from tests.integration.ledger.listener import Listener
from tests.integration.ledger.scripts import SCRIPTS

BACKLOGS = (100, 4000)


def queue_up(driver: Driver, tasks: int, tag: str, owners: int = 1) -> None:
    pipeline = driver.client.pipeline(transaction=False)
    digest = driver.client.script_load(source("submit", SCRIPTS))
    for number in range(tasks):
        call = operations.submit(driver.submission(task_id=f"{tag}-{number}", owner=f"o{number % owners}"))
        pipeline.evalsha(digest, 0, "eq", f"@{driver.now_ms}", call.queue, *own_arguments(call))
    pipeline.execute()


def efforts(driver: Driver, units: int) -> list[dict[str, int]]:
    """Commands of a claim, a renewal, a commit, a release and a cancel."""
    held: list[Any] = []
    client = driver.client
    first = commands(client, lambda: held.append(driver.claim(max_units=units)))
    assert len(held[0].units) == units
    renewal = commands(client, lambda: driver.run(operations.renew("m", held[0].token, 1000)))
    commit = commands(client, lambda: driver.commit(held[0]))
    returned = driver.claim(max_units=units)
    release = commands(client, lambda: driver.release(returned))
    last = driver.submit().task_id
    return [
        first,
        renewal,
        commit,
        release,
        commands(client, lambda: driver.cancel(last)),
        commands(client, driver.watch),
    ]


@pytest.mark.parametrize("units", [1, 16])
def test_the_work_of_a_script_does_not_grow_with_the_backlog(driver: Driver, units: int) -> None:
    queue_up(driver, units * 3, "first")
    efforts(driver, units)  # Redis knows the scripts now
    counted = []
    for backlog in BACKLOGS:
        queue_up(driver, backlog, f"{backlog}", owners=10)
        counted.append([sum(effort.values()) for effort in efforts(driver, units)])
    small, large = counted
    driver.client.flushall()  # to forget so many tasks one by one takes long
    # One owner more or less in a claim, and the like, is no growth.
    assert [abs(many - few) <= 4 for few, many in zip(small, large, strict=True)] == [True] * len(small), counted


def test_the_work_of_a_claim_grows_with_its_units_alone(driver: Driver) -> None:
    queue_up(driver, 200, "t")
    driver.claim(max_units=1)
    one, sixteen = (sum(efforts(driver, units)[0].values()) for units in (1, 16))
    assert sixteen - one <= 15 * 6


def test_a_look_for_small_units_reads_those_that_it_passes_over_once(driver: Driver, redis_client: redis.Redis) -> None:
    def look(units: int) -> int:
        for _ in range(units):
            driver.submit((1, 1))
        made = commands(redis_client, lambda: taken.append(driver.claim(online_budget=50, small_only=True)))
        assert len(taken[-1].units) == units
        return sum(made.values())

    taken: list[Claim] = []
    for _ in range(12):
        driver.submit(*[(8, 50)] * 2)
    driver.claim(online_budget=50)
    one, sixteen = look(1), look(16)
    assert sixteen - one <= 15 * 9, "of the units that it took"


def test_a_cancel_does_not_depend_on_the_size_of_the_task(driver: Driver, redis_client: redis.Redis) -> None:
    small = driver.submit((1, 10)).task_id
    large = driver.submit(*[(1, 10)] * 2000).task_id
    driver.submit()
    driver.cancel("unknown")  # the first call of a script sends all of it
    counts = [commands(redis_client, lambda: driver.cancel(task_id)) for task_id in (small, large)]  # noqa: B023
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) < 25


def test_every_operation_is_one_round_trip(driver: Driver, redis_client: redis.Redis) -> None:
    def everything() -> None:
        task_id = driver.submit(deadline_in_ms=1000).task_id
        claim = driver.claim(linger_ms=10)
        driver.run(operations.renew("m", claim.token, 1000))
        driver.run(operations.want("m", task_id, 2000, shorten=False))
        driver.commit(claim, [finished(unit) for unit in claim.units])
        driver.release(claim)
        driver.run(operations.leave("m", "w", warm=False))
        driver.run(operations.abandon("m", "w"))
        driver.watch()
        driver.task(task_id)
        driver.result(task_id)
        driver.listed()
        driver.cancel(task_id)
        driver.forget(task_id)

    with driver.client.client() as other:  # type: ignore[no-untyped-call]
        driver.ledger.client = other
        everything()  # Redis knows the scripts now
        with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]
            everything()
            other.echo("end")
            sent = commands_of_clients(monitor)
    assert sent == ["EVALSHA"] * 14


def commands_of_clients(monitor: Monitor) -> list[str]:
    """Up to the first ECHO."""
    sent = []
    for seen in monitor.listen():  # type: ignore[no-untyped-call]
        if seen["client_type"] == "lua":
            continue
        if seen["command"].startswith("ECHO"):
            break
        sent.append(seen["command"].split(" ")[0])
    return sent


def test_a_queued_text_takes_little_memory(driver: Driver, redis_client: redis.Redis) -> None:
    unit = NewUnit(items=1, cost=150, payload=b'["' + b"x" * 600 + b'"]')
    driver.submit(units=[unit])
    before = redis_client.info("memory")["used_memory"]
    for _ in range(200):
        driver.submit(units=[unit])
    used = (redis_client.info("memory")["used_memory"] - before) / 200
    assert used < 3000


def test_the_keys_of_a_task_stay_compact(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = driver.submit(owner="someone", queue="sentence-transformers/all-MiniLM-L6-v2").task_id
    assert redis_client.object("encoding", f"eq:task:{task_id}") in {b"ziplist", b"listpack"}
    size = redis_client.memory_usage(f"eq:task:{task_id}")
    assert size is not None
    assert size < 600


def test_ended_work_frees_its_texts(driver: Driver, redis_client: redis.Redis) -> None:
    unit = NewUnit(items=1, cost=150, payload=b'["' + b"x" * 100_000 + b'"]')
    task_id = driver.submit(units=[unit, unit]).task_id
    full = redis_client.memory_usage(f"eq:units:{task_id}")
    claim = driver.claim(max_units=1)
    driver.commit(claim)
    half = redis_client.memory_usage(f"eq:units:{task_id}")
    assert full is not None
    assert half is not None
    assert half < full * 0.6
    driver.work_off()
    assert not redis_client.exists(f"eq:units:{task_id}", f"eq:back:{task_id}")


def test_ended_tasks_are_announced_once_per_script(driver: Driver, redis_client: redis.Redis) -> None:
    with Listener(redis_client, ENDED_CHANNEL) as listener:
        one = driver.submit((1, 10), (1, 10), lane=Lane.BULK).task_id
        two = driver.submit((1, 10), lane=Lane.BULK).task_id
        claim = driver.claim()
        assert listener.messages() == []
        by_task = {unit.task_id + unit.unit_id: unit for unit in claim.units}
        driver.commit(claim, [finished(by_task[one + "0"]), finished(by_task[two + "0"])])
        assert listener.messages() == [two.encode()]
        driver.commit(claim, [finished(by_task[one + "0"])])
        driver.commit(claim, [finished(by_task[one + "1"])])
        assert listener.messages() == [one.encode()]
        driver.cancel(one)
        assert listener.messages() == []


@pytest.mark.parametrize("end", ["cancel", "forget", "expire"])
def test_every_end_is_announced(driver: Driver, redis_client: redis.Redis, end: str) -> None:
    task_id = driver.submit(deadline_in_ms=1000).task_id
    with Listener(redis_client, ENDED_CHANNEL) as listener:
        if end == "expire":
            driver.advance(1000)
            driver.watch()
        else:
            getattr(driver, end)(task_id)
        assert listener.messages() == [task_id.encode()]
