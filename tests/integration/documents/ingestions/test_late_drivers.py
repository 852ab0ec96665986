"""Drivers beside a full queue, and drivers that believe in an older state: they harm nobody and cost little."""

import pytest

from tasks.ingestion.sources.page import PageLimits
from tasks.ledger.task import State
from tasks.records.ingestions import Ingestion, IngestionStatus
from tasks.records.jobs import JobError, JobStatus, Stage
from tasks.records.moves import Move
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus


def test_what_was_let_in_does_not_queue_at_the_door_again(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    hands.driver.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(31))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})

    def queued() -> int:
        ingestion = hands.ingestion(made)
        states = [ingestion.tasks[name].state for name in ingestion.task_ids() if name.endswith(f"-{Stage.EMBED}")]
        return states.count(State.QUEUED)

    hands.until(lambda: queued() == 31, model=False)
    hands.step()
    assert hands.round_trips() <= 4, "which are open, twice what they are, and a sample"
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 31)


@pytest.mark.parametrize(("enough_s", "pages"), [(30, 3), (-1, 6)], ids=["whole pages", "divided pages"])
def test_every_move_may_be_made_twice(hands: IngestionHands, enough_s: float, pages: int) -> None:
    hands.at_pace(parsing_s=enough_s, page=PageLimits(records=2))
    texts = {f"d{n}": f"text {n}" for n in range(6)}
    lines = b"".join(b'{"id": "%s", "text": "%s"}\n' % (name.encode(), text.encode()) for name, text in texts.items())
    hands.texts({"old": "text"})
    hands.work()
    hands.ran.clear()
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]}, mode="sync")
    seen: list[Ingestion] = []
    for _ in range(14 if pages == 3 else 24):
        seen.append(hands.ingestion(made))
        hands.step()
        for old in seen:  # every state that any worker may still believe in
            hands.driver.move_on(old)
        hands.work_documents()
        hands.work_model(limit=1)
    counts = hands.ingestion(made).counts
    assert (counts.documents, counts.loaded, counts.deleted) == (6, 6, 1)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == counts.tokens == 6
    assert (hands.ingestion(made).record.done_pages, set(hands.ran.values())) == (pages, {1})
    assert hands.loaded() == texts
    hands.work()
    nothing_is_left(hands, made)
    for old in seen:  # now it is swept
        hands.driver.move_on(old)
    nothing_is_left(hands, made)
    assert (hands.work_documents(), hands.work_model()) == (0, 0)


def test_a_late_end_takes_nothing_from_one_that_goes_on(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first"})
    hands.until(lambda: [page.at for page in hands.ingestion(made).pages.values()] == [Stage.EMBED], model=False)
    late = Move(hands.ingestion(made))
    hands.until(lambda: [page.at for page in hands.ingestion(made).pages.values()] == [Stage.LOAD])
    late.stop(JobStatus.FAILED, JobError("internal_error", "No."))
    assert hands.ledger.run(late.operation()) is None
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded) == (IngestionStatus.COMPLETED, 1)
    assert hands.loaded() == {"a": "first"}
