"""What a query costs in Redis: commands inside the scripts of its life, however many are under way."""

import pytest
import redis

from tasks.ledger import Admission, Alias, operations
from tasks.ledger.keys import answers_channel
from tests.integration.ledger.driver import Driver, commands
from tests.integration.ledger.listener import Listener

VECTOR_BYTES = 1536
PROCESS = "api"


def query(driver: Driver, number: int) -> str:
    """Submits what somebody waits for: it may be joined, ends with its caller's patience, and its vector needs room."""
    digest = f"{number:032x}"
    return driver.submit(
        alias=Alias(digest, digest, join=True),
        deadline_in_ms=20_000,
        ttl_ms=60_000,
        answer_to=PROCESS,
        admission=Admission(max_backlog_s=1e9, max_memory_percent=80, vector_bytes=VECTOR_BYTES),
    ).task_id


def costs(driver: Driver, numbers: range) -> dict[str, float]:
    """Commands for each of so many queries that are claimed and committed together, by script."""
    ids: list[str] = []
    spent = {"submit": commands(driver.client, lambda: ids.extend(query(driver, number) for number in numbers))}
    held = []
    spent["claim"] = commands(driver.client, lambda: held.append(driver.claim(max_units=len(numbers))))
    spent["commit"] = commands(driver.client, lambda: driver.commit(held[0]))
    spent["read"] = commands(driver.client, lambda: [driver.run(operations.read_result(task_id)) for task_id in ids])
    return {script: sum(counts.values()) / len(numbers) for script, counts in spent.items()}


@pytest.mark.parametrize(
    ("together", "most"),
    [
        (1, {"submit": 22, "claim": 26, "commit": 23, "read": 6}),
        (16, {"submit": 22, "claim": 7, "commit": 8, "read": 6}),
    ],
)
def test_a_query_costs_few_commands(
    driver: Driver, redis_client: redis.Redis, together: int, most: dict[str, float]
) -> None:
    redis_client.set("eq:memory", f"1000 {2**40}")
    with Listener(redis_client, answers_channel(PROCESS)):
        costs(driver, range(together))  # Redis knows the scripts now
        found = costs(driver, range(together, 2 * together))
    assert all(found[script] <= bound for script, bound in most.items()), found
