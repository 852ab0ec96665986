"""A task that names its successor: both change with one commit, or neither does."""

from dataclasses import replace
from typing import Any

import pytest

from tasks.ledger import (
    DOCUMENTS,
    Admission,
    Claim,
    CommitOutcome,
    Finished,
    Lane,
    NewTask,
    OutcomeKind,
    State,
    Then,
)
from tasks.ledger.operations import Operation, commit_job
from tasks.records.batches import BatchStatus, NewBatch, create_batch, move_batch, new_batch_id
from tasks.records.ingestion_operations import (
    Move,
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


def job(queue: Driver, **changed: Any) -> Claim:
    """A job that was just claimed."""
    queue.submit(**changed)
    return queue.claim(rang=True)


def done(claim: Claim) -> Finished:
    return Finished(claim.units[0], OutcomeKind.JOB, b'{"done":true}')


def move(ingestion: str, **changed: Any) -> Then:
    return Then([], ingestion, Move([S.IN_PROGRESS], **changed).to_json())


def loaded(driver: Driver, ingestion: str) -> int:
    record = driver.run(read_ingestion(ingestion))
    assert record is not None
    return record.counts.loaded


def test_a_successor_is_as_if_it_had_been_submitted(driver: Driver, jobs: Driver) -> None:
    claim = job(jobs)
    got = jobs.run(commit_job(DOCUMENTS, claim.token, done(claim), Then([successor(driver)])))
    assert (got.outcome, got.bells_due) == (CommitOutcome.COMMITTED, ("m",))
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


def test_a_commit_that_is_repeated_or_stale_enqueues_nothing(driver: Driver, jobs: Driver) -> None:
    claim = job(jobs)
    call = commit_job(DOCUMENTS, claim.token, done(claim), Then([successor(driver)]))
    stale = commit_job(DOCUMENTS, "another/1", done(claim), Then([successor(driver)]))
    assert jobs.run(stale).outcome is CommitOutcome.STALE
    assert driver.claim().units == ()
    jobs.run(call)
    assert driver.forget("next")
    for again, outcome in ((call, CommitOutcome.REPEATED), (stale, CommitOutcome.REPEATED)):
        assert jobs.run(again) == replace(jobs.run(again), outcome=outcome, bells_due=())
    assert driver.claim().units == ()


def test_a_successor_that_is_there_already_stays_as_it_is(driver: Driver, jobs: Driver) -> None:
    driver.submit((1, 5), task_id="next")
    claim = job(jobs)
    assert jobs.run(commit_job(DOCUMENTS, claim.token, done(claim), Then([successor(driver)]))).bells_due == ()
    assert (driver.task("next").total, driver.task("next").lane) == (1, Lane.ONLINE)
    assert [unit.cost for unit in driver.claim().units] == [5]


def test_each_successor_goes_into_its_own_queue(driver: Driver, jobs: Driver) -> None:
    claim = job(jobs)
    tasks = [successor(jobs, "job"), successor(jobs, "last"), successor(driver, "rows")]
    got = jobs.run(commit_job(DOCUMENTS, claim.token, done(claim), Then(tasks)))
    assert got.bells_due == (DOCUMENTS, "m"), "one bell for each queue"
    assert {unit.task_id for unit in jobs.claim().units} == {"job", "last"}
    assert {unit.task_id for unit in driver.claim().units} == {"rows"}
    assert jobs.task("job").queue == DOCUMENTS
    assert driver.client.hget("eq:q:m:state", "n_committed_items") is None, "counted where the job was"


def test_a_record_moves_with_the_commit_alone(driver: Driver, jobs: Driver, ingestion: str) -> None:
    claim = job(jobs, task_id="job")
    then = replace(move(ingestion, add={"loaded": 3}), tasks=[successor(driver)])
    call = commit_job(DOCUMENTS, claim.token, done(claim), then)
    assert jobs.run(commit_job(DOCUMENTS, "another/1", done(claim), then)).outcome is CommitOutcome.STALE
    assert loaded(driver, ingestion) == 0
    assert jobs.run(call).outcome is CommitOutcome.COMMITTED
    assert jobs.run(call).outcome is CommitOutcome.REPEATED
    assert loaded(driver, ingestion) == 3
    assert 0 < driver.client.pttl("eq:task:job") <= 60_000, "nobody reads it any more"
    assert jobs.forget("job")
    assert driver.task("next").state is State.QUEUED


def test_a_record_that_has_changed_gets_no_successor(driver: Driver, jobs: Driver, ingestion: str) -> None:
    claim = job(jobs, task_id="job")
    driver.run(move_ingestion(ingestion, Move([S.IN_PROGRESS], to=S.CANCELLING)))
    then = replace(move(ingestion, add={"loaded": 3}), tasks=[successor(driver)])
    got = jobs.run(commit_job(DOCUMENTS, claim.token, done(claim), then))
    assert (got.outcome, got.bells_due) == (CommitOutcome.COMMITTED, ())
    assert loaded(driver, ingestion) == 0
    assert driver.claim().units == ()
    assert (jobs.task("job").state, driver.client.pttl("eq:task:job") > 60_000) == (State.COMPLETED, True)


def test_a_move_enqueues_tasks_or_neither(driver: Driver, ingestion: str) -> None:
    refused = driver.run(move_ingestion(ingestion, Move([S.QUEUED]), [successor(driver)]))
    assert (refused.moved, refused.bells_due) == (False, ())
    assert driver.claim().units == ()
    made = driver.run(move_ingestion(ingestion, Move([S.IN_PROGRESS]), [successor(driver)]))
    assert (made.moved, made.bells_due) == (True, ("m",))
    assert len(driver.claim().units) == 2


def test_the_end_of_what_a_step_waits_for_wakes_the_steps(driver: Driver, jobs: Driver) -> None:
    with Listener.of_worker(driver.client, "steps", DOCUMENTS) as steps:
        driver.submit(task_id="text")
        driver.commit(driver.claim())
        assert steps.messages() == [], "nobody waits for that"
        claim = job(jobs)
        jobs.run(commit_job(DOCUMENTS, claim.token, done(claim), Then([successor(driver, wakes_steps=True)])))
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
