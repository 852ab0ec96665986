"""What calls cost: commands inside scripts do not grow with the backlog, one round trip each, little memory."""

from typing import Any

import pytest
import redis
from redis.client import Monitor

from tasks.ledger.cancel import want
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import beat
from tasks.ledger.redis_keys import answers_channel, task_key
from tasks.ledger.submit import submit_parts
from tasks.ledger.task import Admission, Alias, NewPiece
from tests.integration.ledger.driver import Driver, commands
from tests.integration.ledger.listener import Listener
from tests.ledger_builders import a_worker

BACKLOGS = (100, 4000)
PROCESS = "api"


def queue_up(driver: Driver, tasks: int, tag: str, owners: int = 1) -> None:
    for first in range(0, tasks, 100):
        names = range(first, min(tasks, first + 100))
        driver.run(
            submit_parts([driver.new_task(task_id=f"{tag}-{n}", owner=f"o{n % owners}", part=True) for n in names])
        )


def efforts(driver: Driver, pieces: int) -> list[int]:
    """Commands of a claim, a beat that holds it, a commit, of giving back, a cancel and of housekeeping."""
    held: list[Any] = []
    client = driver.client
    claim = commands(client, lambda: held.append(driver.claim(max_pieces=pieces)))
    assert len(held[0].pieces) == pieces
    renew = beat("m", a_worker(), None, 5000, tokens=[held[0].token], lease_ms=1000)
    beats = commands(client, lambda: driver.run(renew))
    commit = commands(client, lambda: driver.commit(held[0]))
    token = driver.claim(max_pieces=pieces).token
    back = commands(client, lambda: driver.run(give_back("m", token)))
    last = driver.submit().task_id
    cancel = commands(client, lambda: driver.cancel(last))
    return [sum(made.values()) for made in (claim, beats, commit, back, cancel, commands(client, driver.watch))]


@pytest.mark.parametrize("pieces", [1, 16])
def test_the_work_of_a_script_does_not_grow_with_the_backlog(driver: Driver, pieces: int) -> None:
    queue_up(driver, pieces * 10, "first", owners=10)
    efforts(driver, pieces)  # Redis knows the scripts now
    counted = []
    for backlog in BACKLOGS:
        queue_up(driver, backlog, f"{backlog}", owners=10)
        counted.append(efforts(driver, pieces))
    small, large = counted
    driver.client.flushall()  # to forget so many tasks one by one takes long
    # One owner more or less in a claim, and the like, is no growth.
    assert [abs(many - few) <= 4 for few, many in zip(small, large, strict=True)] == [True] * len(small), counted


def test_the_work_of_a_claim_grows_with_its_pieces_alone(driver: Driver) -> None:
    queue_up(driver, 200, "t")
    driver.claim(max_pieces=1)
    one, sixteen = (efforts(driver, pieces)[0] for pieces in (1, 16))
    assert sixteen - one <= 15 * 4


def test_every_operation_is_one_round_trip(driver: Driver, redis_client: redis.Redis) -> None:
    def everything() -> None:
        task_id = driver.submit(deadline_in_ms=1000).task_id
        claim = driver.claim(linger_ms=10)
        driver.run(beat("m", a_worker(), None, 5000, tokens=[claim.token], lease_ms=1000))
        driver.run(want("m", task_id, 2000, gone=False))
        driver.commit(claim)
        driver.run(give_back("m", claim.token))
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
    assert sent == [*["EVALSHA"] * 7, "HMGET", "HGETALL", *["EVALSHA"] * 3]


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


def query(driver: Driver, number: int) -> str:
    """Submits what somebody waits for: it may be joined, ends with its caller's patience, and its vector needs room."""
    digest = f"{number:032x}"
    return driver.submit(
        alias=Alias(digest, digest, join=True),
        deadline_in_ms=20_000,
        ttl_ms=60_000,
        answer_to=PROCESS,
        admission=Admission(max_backlog_s=1e9, max_memory_percent=80, vector_bytes=1536),
    ).task_id


def costs(driver: Driver, numbers: range) -> dict[str, float]:
    """Commands for each of so many queries that are claimed and committed together, by script."""
    spent = {"submit": commands(driver.client, lambda: [query(driver, number) for number in numbers])}
    held = []
    spent["claim"] = commands(driver.client, lambda: held.append(driver.claim(max_pieces=len(numbers))))
    spent["commit"] = commands(driver.client, lambda: driver.commit(held[0]))
    return {script: sum(counts.values()) / len(numbers) for script, counts in spent.items()}


@pytest.mark.parametrize(
    ("together", "most"),
    [(1, {"submit": 16, "claim": 18, "commit": 17}), (16, {"submit": 16, "claim": 5, "commit": 5})],
)
def test_a_query_costs_few_commands(
    driver: Driver, redis_client: redis.Redis, together: int, most: dict[str, float]
) -> None:
    with Listener(redis_client, answers_channel(PROCESS)):
        costs(driver, range(together))  # Redis knows the scripts now
        found = costs(driver, range(together, 2 * together))
    assert all(found[script] <= bound for script, bound in most.items()), found


def test_a_queued_text_takes_little_memory(driver: Driver, redis_client: redis.Redis) -> None:
    piece = NewPiece(items=1, cost=150, payload=b'["' + b"x" * 600 + b'"]')
    driver.submit(pieces=[piece])
    before = redis_client.info("memory")["used_memory"]
    for _ in range(200):
        driver.submit(pieces=[piece])
    used = (redis_client.info("memory")["used_memory"] - before) / 200
    assert used < 2500


def test_ended_work_frees_its_texts(driver: Driver, redis_client: redis.Redis) -> None:
    piece = NewPiece(items=1, cost=150, payload=b'["' + b"x" * 100_000 + b'"]')
    key = task_key(driver.submit(pieces=[piece, piece]).task_id)
    sizes = [redis_client.memory_usage(key) or 0]
    for _ in range(2):
        driver.commit(driver.claim(max_pieces=1))
        sizes.append(redis_client.memory_usage(key) or 0)
    assert sizes[1] < sizes[0] * 0.6
    assert sizes[2] < 2000
