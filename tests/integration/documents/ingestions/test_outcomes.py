"""What a stage has made stands in its task until a move takes it in: once, late, or never."""

from typing import TypeVar

import pytest
from redis import ResponseError

from tasks.ledger.cancel import cancel, forget
from tasks.ledger.client import Ledger
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.scripts import Operation
from tasks.records.api_keys import Mark, make_mark
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import JobError, JobStatus, Stage
from tasks.records.moves import Move, cancel_job
from tests.integration.batches.hands import MODEL
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

T = TypeVar("T")
S = IngestionStatus
TEXTS = {"a": "first", "b": "second", "c": "third"}
YEAR_MS = 365 * 86_400_000
TASKS = {Stage.LIST: "0-list", Stage.PARSE: "1-parse", Stage.EMBED: "1-embed", Stage.LOAD: "1-load"}


def left(hands: IngestionHands, stage: Stage) -> str:
    """An ingestion for which such a stage has made something that no move has taken in; its id."""
    made = hands.texts(TEXTS)
    hands.until(lambda: ended(hands, made, stage))
    return made


def ended(hands: IngestionHands, ingestion_id: str, stage: Stage) -> bool:
    """Whether the task of a stage has, and nobody has seen that."""
    task = hands.ingestion(ingestion_id).tasks.get(f"{ingestion_id}-{TASKS[stage]}")
    return task is not None and task.state.terminal


def completed(hands: IngestionHands, ingestion_id: str) -> None:
    """Works to the end; everything is there, and counted once."""
    hands.work()
    ingestion = hands.ingestion(ingestion_id)
    counts = ingestion.counts
    assert (ingestion.status, counts.documents, counts.loaded) == (S.COMPLETED, 3, 3)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == 3
    assert (ingestion.record.done_pages, hands.loaded()) == (1, TEXTS)
    nothing_is_left(hands, ingestion_id)


class Dying(Ledger):
    """The connection of somebody who dies at a move: before Redis has it, or before the answer comes."""

    def __init__(self, alive: Ledger, *, moved: bool) -> None:
        super().__init__(alive.client)
        self.clock_offset_ms = alive.clock_offset_ms
        self._moved = moved

    def run(self, operation: Operation[T]) -> T:
        if operation.script == "job_change":
            if self._moved:
                super().run(operation)
            raise ResponseError("it dies here")
        return super().run(operation)


@pytest.mark.parametrize("moved", [False, True], ids=["before its move", "after its move"])
@pytest.mark.parametrize("stage", TASKS)
def test_a_driver_that_dies_leaves_the_rest_to_the_next(hands: IngestionHands, stage: Stage, *, moved: bool) -> None:
    made = left(hands, stage)
    alive, hands.driver.ledger = hands.ledger, Dying(hands.ledger, moved=moved)
    with pytest.raises(ResponseError, match="it dies here"):
        hands.driver.move_on(hands.ingestion(made))
    hands.driver.ledger = alive
    assert ended(hands, made, stage) != moved
    completed(hands, made)
    assert set(hands.ran.values()) == {1}


@pytest.mark.parametrize("stage", TASKS)
def test_what_stands_unseen_outlives_any_outage(hands: IngestionHands, stage: Stage) -> None:
    made = left(hands, stage)
    task = hands.ledger.run(read_task(f"{made}-{TASKS[stage]}"))
    assert task is not None
    assert task.expires_ms is not None
    assert task.finished_ms is not None
    assert task.expires_ms - task.finished_ms > YEAR_MS


@pytest.mark.parametrize(
    ("stage", "again"),
    [(Stage.LIST, ["0 list"]), (Stage.PARSE, ["1 parse"]), (Stage.EMBED, ["1 parse"]), (Stage.LOAD, ["1 load"])],
)
def test_what_is_lost_before_a_move_has_taken_it_in_is_done_again(
    hands: IngestionHands, stage: Stage, again: list[str]
) -> None:
    made = left(hands, stage)
    queue = MODEL if stage is Stage.EMBED else DOCUMENTS
    assert hands.ledger.run(forget(queue, f"{made}-{TASKS[stage]}"))
    completed(hands, made)
    assert [name for name, times in hands.ran.items() if times == 2] == again
    assert sum(hands.ran.values()) == 4, "that one again, and no other"


@pytest.mark.parametrize("stage", [Stage.LIST, Stage.PARSE, Stage.LOAD])
def test_a_task_that_came_to_nothing_is_done_again(hands: IngestionHands, stage: Stage) -> None:
    made = hands.texts(TEXTS)
    hands.until(lambda: f"{made}-{TASKS[stage]}" in hands.ingestion(made).tasks)
    hands.ledger.run(cancel(DOCUMENTS, f"{made}-{TASKS[stage]}"))
    completed(hands, made)


def test_what_a_load_needs_is_lost_under_it(hands: IngestionHands) -> None:
    made = hands.texts(TEXTS)
    hands.until(lambda: [page.at for page in hands.ingestion(made).pages.values()] == [Stage.LOAD])
    assert hands.ledger.run(forget(MODEL, f"{made}-1-embed"))
    completed(hands, made)
    assert hands.ran == {"0 list": 1, "1 parse": 2, "1 load": 2}


@pytest.mark.parametrize("stage", TASKS)
def test_of_a_cancelled_ingestion_only_a_load_is_taken_in(hands: IngestionHands, stage: Stage) -> None:
    made = left(hands, stage)
    seen = hands.ingestion(made)
    assert hands.move(cancel_job, seen)
    hands.work()
    ingestion = hands.ingestion(made)
    shown = (ingestion.status, ingestion.counts.loaded, ingestion.counts.cancelled)
    assert shown == (S.CANCELLED, *((3, 0) if stage is Stage.LOAD else (0, 3))), "of those that were listed"
    hands.driver.move_on(seen)
    nothing_is_left(hands, made)


@pytest.mark.parametrize("stage", TASKS)
def test_what_a_stage_has_left_for_a_purged_owner_is_gone(hands: IngestionHands, stage: Stage) -> None:
    made = left(hands, stage)
    seen = hands.ingestion(made)
    hands.ledger.run(make_mark(Mark(name="anonymous", owner="anonymous", purged=2.0)))
    hands.sweep()
    hands.driver.move_on(seen)
    hands.step()
    hands.sweep()
    assert (hands.open_tasks(), hands.work_documents(), hands.work_model()) == ([], 0, 0)
    assert [key for key in hands.ledger.client.scan_iter("eq:*") if made.encode() in key] == []
    assert list(hands.storage.stored(f"anonymous/{made}")) == []
    assert hands.rows() == []


@pytest.mark.parametrize("stage", [Stage.LIST, Stage.PARSE, Stage.EMBED])
def test_what_was_left_before_a_failure_is_done_anew_by_another_try(hands: IngestionHands, stage: Stage) -> None:
    made = left(hands, stage)
    seen = hands.ingestion(made)
    move = Move(seen)
    move.stop(JobStatus.FAILED, JobError("internal_error", "No."))
    assert hands.ledger.run(move.operation()) is not None
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).resumable) == (S.FAILED, True)
    assert hands.retry(made)
    hands.driver.move_on(seen)
    completed(hands, made)
