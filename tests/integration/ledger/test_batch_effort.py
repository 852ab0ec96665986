"""What calls about batches cost: commands inside scripts grow with what is asked for, never with what there is."""

from collections.abc import Callable
from typing import Any

import pytest

from tasks.ledger.task import Lane
from tasks.records.batches import (
    BatchStatus,
    NewBatch,
    close_batch,
    create_batch,
    list_batches,
    move_batch,
    new_batch_id,
    open_batches,
    read_batch,
    read_batches,
)
from tasks.records.store import Room
from tests.integration.ledger.driver import Driver, commands

ROOM = Room({"batches": 100_000}, max_memory_percent=70)
PAGE = 10
UNITS = 500


def new() -> NewBatch:
    return NewBatch(new_batch_id(), "o", "file-1", "24h", window_ms=86_400_000, ttl_ms=3_600_000, key=("a", "b"))


def efforts(driver: Driver) -> dict[str, int]:
    """Commands of each call about one batch whose rows are a task of many units."""
    batch = new()
    calls: dict[str, Callable[[], Any]] = {
        "create": lambda: driver.run(create_batch(batch, ROOM)),
        "repeat": lambda: driver.run(create_batch(batch, ROOM)),
        "read": lambda: driver.run(read_batch(batch.id)),
        "open": lambda: driver.run(open_batches(PAGE)),
        "list": lambda: driver.run(list_batches("o", after=None, limit=PAGE)),
        "move": lambda: _move(driver, batch.id, BatchStatus.IN_PROGRESS),
        "end": lambda: _move(driver, batch.id, BatchStatus.COMPLETED),
        "close": lambda: driver.run(close_batch(batch.id)),
    }
    driver.client.delete("eq:record-alias:batch:o:a")
    driver.submit(*[(1, 10)] * UNITS, lane=Lane.BULK, task_id=f"{batch.id}-embed")
    return {name: sum(commands(driver.client, call).values()) for name, call in calls.items()}


def _move(driver: Driver, batch_id: str, to: BatchStatus) -> None:
    moved, _ = driver.run(move_batch(batch_id, to, only_from=[BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS]))
    assert moved


def test_no_call_grows_with_the_number_of_batches_or_their_units(driver: Driver) -> None:
    for _ in range(PAGE + 1):
        driver.run(create_batch(NewBatch(new_batch_id(), "o", "f", "24h", 86_400_000, 3_600_000)))
    efforts(driver)  # Redis knows the scripts now
    few = efforts(driver)
    for _ in range(1000):
        driver.run(create_batch(NewBatch(new_batch_id(), "o", "f", "24h", 86_400_000, 3_600_000)))
    assert efforts(driver) == few
    assert max(few.values()) <= 3 * PAGE, few


@pytest.mark.parametrize("number", [1, 20])
def test_reading_costs_a_few_commands_for_each_batch(driver: Driver, number: int) -> None:
    ids = [driver.run(create_batch(NewBatch(new_batch_id(), "o", "f", "24h", 86_400_000, 1000))) for _ in range(number)]
    driver.run(read_batches(ids))
    assert sum(commands(driver.client, lambda: driver.run(read_batches(ids))).values()) == 2 + 5 * number
