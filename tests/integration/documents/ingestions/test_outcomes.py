"""What a job has left stands in its task until a step takes it in: twice, by one that dies, late, or never."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from redis import ResponseError

from tasks.documents.ingestions import ending
from tasks.documents.ingestions.steps import IngestionSteps
from tasks.documents.ingestions.tools import TOOLS
from tasks.documents.purging import sweep_owners
from tasks.ledger.cancel import forget
from tasks.ledger.client import Ledger
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.scripts import Operation
from tasks.ledger.task import State
from tasks.records.api_keys import Mark, make_mark
from tasks.records.ingestion_operations import cancel_ingestion, resume_ingestion
from tasks.records.ingestions import Ingestion, IngestionFault, IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

T = TypeVar("T")
S = IngestionStatus
TEXTS = {"a": "first", "b": "second", "c": "third"}
YEAR_MS = 365 * 86_400_000


def _parsed(ingestion: Ingestion) -> bool:
    return any(page.stage is PageStage.PARSE and page.state is State.COMPLETED for page in ingestion.pages.values())


ENDED: dict[str, Callable[[Ingestion], bool]] = {
    "list": lambda ingestion: ingestion.list_state is State.COMPLETED,
    "parse": _parsed,
    "load": lambda ingestion: ingestion.load_state is State.COMPLETED,
}
"""A job of this kind has left something, and no step has seen it."""
TASKS = {"list": "-list-0", "parse": "-0-parse", "load": "-load-0"}


def left(hands: IngestionHands, job: str) -> str:
    """An ingestion that such a job has left something for; its id."""
    made = hands.texts(TEXTS)
    hands.until(lambda: ENDED[job](hands.ingestion(made)))
    return made


def completed(hands: IngestionHands, ingestion_id: str) -> None:
    """Works to the end; everything is there, and counted once."""
    hands.work()
    counts = hands.ingestion(ingestion_id).counts
    assert (hands.ingestion(ingestion_id).status, counts.documents, counts.loaded) == (S.COMPLETED, 3, 3)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == 3
    assert (counts.pages_parsed, hands.loaded()) == (1, TEXTS)
    nothing_is_left(hands, ingestion_id)


class Dying(Ledger):
    """The connection of somebody who dies at the first call of a script."""

    def __init__(self, alive: Ledger, script: str) -> None:
        super().__init__(alive.client)
        self.clock_offset_ms = alive.clock_offset_ms
        self._script = script

    def run(self, operation: Operation[T]) -> T:
        if operation.script == self._script:
            raise ResponseError("it dies here")
        return super().run(operation)


def die_in_step(hands: IngestionHands, ingestion_id: str, script: str) -> None:
    ingestion, alive = hands.ingestion(ingestion_id), hands.ledger
    hands.ledger = Dying(alive, script)
    with pytest.raises(ResponseError, match="it dies here"):
        IngestionSteps(TOOLS).step(hands.step_context, ingestion)
    hands.ledger = alive


@pytest.mark.parametrize("job", ENDED)
def test_what_two_steps_take_in_changes_the_ingestion_once(hands: IngestionHands, job: str) -> None:
    made = left(hands, job)
    seen = hands.ingestion(made)
    die_in_step(hands, made, "cancel")  # so that the next one finds it, too
    for _ in range(3):
        hands.steps.step(hands.step_context, seen)
    assert not ENDED[job](hands.ingestion(made))
    completed(hands, made)
    assert set(hands.ran.values()) == {1}


@pytest.mark.parametrize("script", ["ingestion_move", "cancel", "ingestion_read"])
@pytest.mark.parametrize("job", ENDED)
def test_a_step_that_dies_before_or_after_the_change_leaves_it_to_the_next(
    hands: IngestionHands, job: str, script: str
) -> None:
    made = left(hands, job)
    die_in_step(hands, made, script)
    assert ENDED[job](hands.ingestion(made)) == (script == "ingestion_move" or (job, script) == ("load", "cancel"))
    completed(hands, made)
    assert set(hands.ran.values()) == {1}


def test_what_was_taken_in_and_not_forgotten_may_be_taken_in_again(hands: IngestionHands) -> None:
    made = left(hands, "parse")
    die_in_step(hands, made, "cancel")
    assert [page.stage for page in hands.ingestion(made).pages.values()] == [PageStage.EMBED]
    hands.ledger.run(forget("test/model", f"{made}-0-embed"))  # Redis has lost it: the page goes back
    hands.step()
    completed(hands, made)
    assert hands.ran[f"parse_page {made}/0"] == 1


@pytest.mark.parametrize("job", ENDED)
def test_what_stands_unseen_outlives_any_outage(hands: IngestionHands, job: str) -> None:
    made = left(hands, job)
    task = hands.ledger.run(read_task(f"{made}{TASKS[job]}"))
    assert task is not None
    assert task.expires_ms is not None
    assert task.finished_ms is not None
    assert task.expires_ms - task.finished_ms > YEAR_MS


@pytest.mark.parametrize("job", ENDED)
def test_what_is_lost_before_a_step_has_seen_it_is_done_again(hands: IngestionHands, job: str) -> None:
    made = left(hands, job)
    assert hands.ledger.run(forget(DOCUMENTS, f"{made}{TASKS[job]}"))
    completed(hands, made)
    assert hands.ran.most_common(2)[0][1] == 2
    assert sum(hands.ran.values()) == 4, "that one again, and no other"


@pytest.mark.parametrize("late", [False, True], ids=["", "by a late step"])
@pytest.mark.parametrize(("job", "loaded"), [("list", 0), ("parse", 0), ("load", 3)])
def test_of_a_cancelled_ingestion_only_a_load_is_taken_in(
    hands: IngestionHands, job: str, loaded: int, *, late: bool
) -> None:
    made = left(hands, job)
    seen = hands.ingestion(made)
    hands.ledger.run(cancel_ingestion(made))
    if late:
        hands.steps.step(hands.step_context, seen)
    hands.work()
    ingestion = hands.ingestion(made)
    listed = 0 if job == "list" else 3
    ended = (ingestion.status, ingestion.counts.loaded, ingestion.counts.cancelled)
    assert ended == (S.CANCELLED, loaded, listed - loaded)
    nothing_is_left(hands, made)


@pytest.mark.parametrize("job", ENDED)
def test_what_a_job_has_left_for_a_purged_ingestion_is_gone(hands: IngestionHands, job: str) -> None:
    made = left(hands, job)
    seen = hands.ingestion(made)
    hands.ledger.run(make_mark(Mark(name="anonymous", owner="anonymous", purged=2.0)))
    sweep_owners(hands.storage, hands.ledger)
    hands.steps.step(hands.step_context, seen)
    hands.step()
    assert (hands.open_tasks(), hands.work_documents(), hands.work_model()) == ([], 0, 0)


@pytest.mark.parametrize("job", ["list", "parse"])
def test_what_was_left_before_a_failure_is_done_anew_by_another_try(hands: IngestionHands, job: str) -> None:
    made = left(hands, job)
    seen = hands.ingestion(made)
    ending.stop(hands.step_context, seen, IngestionFault("internal_error", "No."))
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).resumable) == (S.FAILED, True)
    hands.ledger.run(resume_ingestion(made))
    hands.steps.step(hands.step_context, seen)
    completed(hands, made)
