"""Steps beside a full queue, and steps that believe in an older state: they harm nobody and cost little."""

from dataclasses import replace

import pytest

from tasks.documents.sources.source import PageLimits
from tasks.ledger.cancel import forget
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import State
from tasks.records.ingestions import Ingestion, IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus


def test_what_was_let_in_does_not_queue_at_the_door_again(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1), worked_on=31)
    hands.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(31))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})

    def queued() -> int:
        pages = hands.ingestion(made).pages.values()
        return sum(page.stage is PageStage.EMBED and page.state is State.QUEUED for page in pages)

    hands.until(lambda: queued() == 31, model=False)
    hands.step()
    assert hands.round_trips() <= 3, "which are open, what they are, and a sample"
    assert len(hands.postponed) == 0
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 31)


@pytest.mark.parametrize(("enough_s", "pages"), [(30, 3), (-1, 6)], ids=["whole pages", "divided pages"])
def test_every_step_may_be_taken_twice(hands: IngestionHands, enough_s: float, pages: int) -> None:
    hands.at_pace(parsing_s=enough_s, page=PageLimits(records=2))
    texts = {f"d{n}": f"text {n}" for n in range(6)}
    lines = b"".join(b'{"id": "%s", "text": "%s"}\n' % (name.encode(), text.encode()) for name, text in texts.items())
    hands.texts({"old": "text"})
    hands.work()
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]}, mode="sync")
    seen: list[Ingestion] = []
    for _ in range(14 if pages == 3 else 24):
        seen.append(hands.ingestion(made))
        for old in seen:  # every state that any worker may still believe in
            hands.steps.step(hands.step_context, old)
        hands.work_documents()
        hands.work_model(limit=1)
    counts = hands.ingestion(made).counts
    assert (counts.documents, counts.loaded, counts.deleted, counts.pages_parsed) == (6, 6, 1, pages)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == counts.tokens == 6
    assert hands.loaded() == texts
    hands.work()
    nothing_is_left(hands, made)
    for old in seen:  # now it is tidied up
        hands.steps.step(hands.step_context, old)
    nothing_is_left(hands, made)
    assert (hands.work_documents(), hands.work_model()) == (0, 0)


def test_what_died_between_two_moves_leaves_no_task_behind(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first"})
    seen: list[Ingestion] = []
    for _ in range(6):
        hands.step()
        seen.append(hands.ingestion(made))
        hands.work_documents()
        hands.work_model()
    late = next(each for each in seen if any(page.stage is PageStage.PARSE for page in each.pages.values()))
    without_task = {number: replace(page, state=None) for number, page in late.pages.items()}
    hands.until(lambda: not hands.ingestion(made).pages)
    hands.ledger.run(forget(DOCUMENTS, f"{made}-0-parse"))
    hands.steps.step(hands.step_context, replace(late, pages=without_task))
    assert not any(name.endswith("-0-parse") for name in hands.open_tasks()), "of a page that is closed"
    hands.work()
    nothing_is_left(hands, made)


def test_a_late_end_takes_nothing_from_one_that_goes_on(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first"})
    hands.until(lambda: [page.stage for page in hands.ingestion(made).pages.values()] == [PageStage.READY])
    ended = replace(hands.ingestion(made), status=IngestionStatus.FAILED)  # as somebody saw it before it went on
    hands.steps.step(hands.step_context, ended)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded) == (IngestionStatus.COMPLETED, 1)
    assert hands.loaded() == {"a": "first"}
