"""Tasks that come with a change of a record: both happen, once, or neither does."""

from typing import Any

import pytest

from tasks.ledger import DOCUMENTS, Admission, Lane, NewTask, State
from tasks.ledger.operations import Operation
from tasks.records.batches import BatchStatus, NewBatch, create_batch, move_batch, new_batch_id
from tasks.records.ingestion_operations import (
    Move,
    Moved,
    cancel_ingestion,
    create_ingestion,
    move_ingestion,
    read_ingestion,
)
from tasks.records.ingestions import IngestionStatus, NewIngestion, new_ingestion_id
from tests.integration.ledger.driver import Driver, failed
from tests.integration.ledger.listener import Listener

S = IngestionStatus
VECTOR_BYTES = 10
TRACE = "00-1-2-01"


@pytest.fixture
def jobs(driver: Driver) -> Driver:
    """Calls of the documents queue, beside those of a model."""
    queue = Driver(driver.client, DOCUMENTS)
    queue.ledger = driver.ledger
    return queue


@pytest.fixture
def ingestion(driver: Driver) -> str:
    made = driver.run(create_ingestion(NewIngestion(new_ingestion_id(), "o", {"model": "m"}, 3_600_000)))
    assert driver.run(move_ingestion(made, Move([S.QUEUED], to=S.IN_PROGRESS))).moved
    return made


def successor(driver: Driver, task_id: str = "next", **changed: Any) -> NewTask:
    admission = Admission(max_backlog_s=0, vector_bytes=VECTOR_BYTES)
    values = {"lane": Lane.BULK, "admission": admission, "trace": TRACE} | changed
    return driver.submission((2, 20), (3, 30), task_id=task_id, **values)


def enqueued(driver: Driver, ingestion: str, *tasks: NewTask, **changed: Any) -> Moved:
    """What came of a change that brings tasks."""
    return driver.run(move_ingestion(ingestion, Move([S.IN_PROGRESS], **changed), tasks))


def loaded(driver: Driver, ingestion: str) -> int:
    record = driver.run(read_ingestion(ingestion))
    assert record is not None
    return record.counts.loaded


def test_a_successor_is_as_if_it_had_been_submitted(driver: Driver, ingestion: str) -> None:
    assert enqueued(driver, ingestion, successor(driver)) == Moved(True, S.IN_PROGRESS, ("m",))
    admission = Admission(1e9, vector_bytes=VECTOR_BYTES)
    driver.submit((2, 20), (3, 30), task_id="hand", lane=Lane.BULK, admission=admission, trace=TRACE)
    first, second = (driver.client.hgetall(f"eq:task:{name}") for name in ("next", "hand"))
    assert first == second
    driver.forget("hand")
    taken = driver.claim()
    assert [(unit.task_id, unit.first, unit.items, unit.cost) for unit in taken.units] == [
        ("next", 0, 2, 20),
        ("next", 2, 3, 30),
    ]
    assert taken.units[1].texts() == ["t2", "t3", "t4"]


def test_a_change_that_is_repeated_enqueues_nothing(driver: Driver, ingestion: str) -> None:
    once: dict[str, Any] = {"equal": {"list_number": 0}, "set": {"list_number": 1}, "add": {"loaded": 3}}
    assert enqueued(driver, ingestion, successor(driver), **once).moved
    assert enqueued(driver, ingestion, successor(driver), **once) == Moved(False, S.IN_PROGRESS)
    assert (loaded(driver, ingestion), driver.task("next").state) == (3, State.QUEUED)
    assert driver.forget("next")
    assert enqueued(driver, ingestion, successor(driver), **once) == Moved(False, S.IN_PROGRESS)
    assert driver.claim().units == ()


def test_a_successor_that_is_there_already_stays_as_it_is(driver: Driver, ingestion: str) -> None:
    driver.submit((1, 5), task_id="next")
    assert enqueued(driver, ingestion, successor(driver)).bells_due == ()
    assert (driver.task("next").total, driver.task("next").lane) == (1, Lane.ONLINE)
    assert [unit.cost for unit in driver.claim().units] == [5]


def test_each_successor_goes_into_its_own_queue(driver: Driver, jobs: Driver, ingestion: str) -> None:
    tasks = [successor(jobs, "job"), successor(jobs, "last"), successor(driver, "rows")]
    assert enqueued(driver, ingestion, *tasks).bells_due == (DOCUMENTS, "m"), "one bell for each queue"
    assert {unit.task_id for unit in jobs.claim().units} == {"job", "last"}
    assert {unit.task_id for unit in driver.claim().units} == {"rows"}
    assert jobs.task("job").queue == DOCUMENTS


def test_a_record_that_has_changed_gets_no_successor(driver: Driver, ingestion: str) -> None:
    driver.run(cancel_ingestion(ingestion))
    assert enqueued(driver, ingestion, successor(driver), add={"loaded": 3}) == Moved(False, S.CANCELLING)
    assert (loaded(driver, ingestion), driver.claim().units) == (0, ())


def test_the_end_of_what_a_step_waits_for_wakes_the_steps(driver: Driver, ingestion: str) -> None:
    with Listener.of_worker(driver.client, "steps", DOCUMENTS) as steps:
        driver.submit(task_id="text")
        driver.commit(driver.claim())
        assert steps.messages() == [], "nobody waits for that"
        enqueued(driver, ingestion, successor(driver, wakes_steps=True))
        first = driver.claim(max_units=1)
        driver.commit(first)
        assert steps.messages() == [], "it has not ended"
        driver.commit(driver.claim())
        assert len(steps.messages()) == 1
        driver.submit(task_id="failing", wakes_steps=True)
        claim = driver.claim()
        driver.commit(claim, [failed(claim.units[0])])
        driver.submit(task_id="cancelled", wakes_steps=True)
        driver.cancel("cancelled")
        assert len(steps.messages()) == 2


def test_what_comes_in_and_what_changes_its_state_wakes_the_steps(driver: Driver, ingestion: str) -> None:
    batch = NewBatch(new_batch_id(), "o", "file-1", "24h", window_ms=86_400_000, ttl_ms=3_600_000)
    with Listener.of_worker(driver.client, "steps", DOCUMENTS) as steps:
        calls: list[tuple[int, Operation[Any]]] = [
            (1, create_ingestion(NewIngestion(new_ingestion_id(), "o", {"model": "m"}, 3_600_000))),
            (0, move_ingestion(ingestion, Move([S.IN_PROGRESS], add={"loaded": 1}))),
            (1, cancel_ingestion(ingestion)),
            (0, cancel_ingestion(ingestion)),
            (1, create_batch(batch)),
            (0, move_batch(batch.id, BatchStatus.VALIDATING, only_from=[BatchStatus.VALIDATING])),
            (1, move_batch(batch.id, BatchStatus.CANCELLING, only_from=[BatchStatus.VALIDATING])),
        ]
        for heard, call in calls:
            driver.run(call)
            assert len(steps.messages()) == heard, call.script


def test_a_task_of_a_client_is_no_successor(driver: Driver) -> None:
    with pytest.raises(ValueError, match="let in by SUBMIT"):
        move_ingestion("ing", Move([]), [successor(driver, listed=True)])
