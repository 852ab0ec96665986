"""Documents workers that die in the stages of an ingestion, again and again."""

import sys
import threading

import pytest

from tasks.ingestion import pipeline
from tasks.ingestion.sources.page import PageLimits
from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
TEXTS = {"a": "first", "b": "second"}
DEATHS = 4
"""Of a worker in one and the same stage, until the ledger gives it up."""


STAGES = [Stage.LIST, Stage.PARSE, Stage.LOAD, Stage.FINISH]
"""Of a documents worker."""


def submitted(hands: IngestionHands, ingestion_id: str, stage: Stage) -> None:
    """Goes on until such a stage is in the queue."""
    hands.until(lambda: any(name.endswith(f"-{stage}") for name in hands.ingestion(ingestion_id).task_ids()))


def die(hands: IngestionHands) -> bool:
    """A worker takes a stage and dies; whether there was one."""
    claim = hands.claim(DOCUMENTS, 1)
    hands.ledger.run(give_back(DOCUMENTS, claim.token, blame=True))
    return bool(claim.pieces)


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_whose_workers_were_killed_is_tried_again_later(hands: IngestionHands, stage: Stage) -> None:
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, stage)
    assert [die(hands) for _ in range(DEATHS + 1)] == [True] * DEATHS + [False]
    hands.step()
    assert hands.ingestion(made).waiting_for == "worker"
    hands.wait(1)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.record.wait) == (S.COMPLETED, 2, None)
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)


def test_a_job_for_which_no_process_can_be_started_waits_for_its_worker(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = hands.ingest({"files": [hands.file("a.html", b"<p>first</p>")]})
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        patch.setattr(pipeline, "_last", threading.local())  # else one may be there
        hands.until(lambda: hands.ingestion(made).record.wait is not None)
    assert hands.ingestion(made).waiting_for == "worker"
    hands.wait(1)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.record.wait, list(hands.loaded().values())) == (S.COMPLETED, None, ["first"])


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_is_tried_again_soon_though_the_clock_of_redis_has_gone_back(hands: IngestionHands, stage: Stage) -> None:
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, stage)
    while die(hands):
        pass
    hands.step()
    assert hands.ingestion(made).waiting_for == "worker"
    hands.ledger.clock_offset_ms -= 3_600_000
    hands.work()
    assert (hands.ingestion(made).status, hands.loaded()) == (S.COMPLETED, TEXTS)


@pytest.mark.parametrize("stage", [Stage.LIST, Stage.LOAD, Stage.FINISH])
def test_a_job_that_kills_every_worker_ends_its_ingestion_until_it_is_tried_again(
    hands: IngestionHands, stage: Stage
) -> None:
    hands.texts({"old": "text"})
    hands.work()
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, stage)
    deaths = 0
    for _ in range(50):
        hands.wait(60)
        hands.step()
        deaths += die(hands)
    assert deaths == 4 * DEATHS
    ingestion = hands.ingestion(made)
    assert ingestion.status is S.FAILED
    assert ingestion.error is not None
    assert (ingestion.error.code, ingestion.resumable) == ("worker_lost", True)
    assert hands.open_tasks() == []
    assert hands.retry(made)
    assert hands.ingestion(made).status is S.IN_PROGRESS
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.error, ingestion.resumable) == (S.COMPLETED, None, False)
    assert (ingestion.counts.loaded, ingestion.counts.cancelled, ingestion.counts.deleted) == (2, 0, 1)
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)


def test_another_try_goes_on_where_the_first_was(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    hands.within(credit=9)
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(20))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.deadly_stages.add("4 load")
    for _ in range(60):
        hands.wait(60)
        hands.step()
        hands.work_documents()
        hands.work_model()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.resumable) == (S.FAILED, True)
    assert (ingestion.counts.documents, ingestion.counts.loaded, ingestion.counts.cancelled) == (20, 3, 17)
    assert ingestion.counts.chunks == ingestion.counts.chunks_loaded == ingestion.counts.chunks_embedded == 3
    nothing_is_left(hands, made)
    listings = hands.ran["0 list"]

    hands.deadly_stages.clear()
    assert hands.retry(made)
    assert hands.ingestion(made).status is S.IN_PROGRESS
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded, counts.cancelled) == (S.COMPLETED, 20, 20, 0)
    assert counts.chunks == counts.chunks_loaded == counts.chunks_embedded == 20
    assert hands.ran["0 list"] == listings
    assert [hands.ran[f"{page} {stage}"] for page in (1, 2, 3) for stage in ("parse", "load")] == [1] * 6
    assert hands.loaded() == {f"d{n}": f"text {n}" for n in range(20)}
    nothing_is_left(hands, made)


def test_a_page_that_kills_every_worker_fails_alone(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(3))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.deadly_stages.add("1 parse")
    for _ in range(40):
        hands.wait(60)
        hands.step()
        hands.work_documents(limit=1)
        hands.work_model()
    assert hands.ran["1 parse"] == 4 * DEATHS
    hands.work()
    outcomes = hands.outcomes(made)
    names = ["a.jsonl#1", "d1", "d2"]  # nobody has read the first one
    assert [outcomes[name].status for name in names] == [DocumentStatus.FAILED] + 2 * [DocumentStatus.LOADED]
    assert (outcomes[names[0]].code, outcomes[names[0]].part) == ("worker_lost", "*")
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.loaded, counts.failed) == (S.COMPLETED, 2, 1)
    nothing_is_left(hands, made)

    hands.deadly_stages.clear()
    assert hands.retry(made)
    hands.work()
    assert (hands.ingestion(made).counts.loaded, hands.ingestion(made).counts.failed) == (3, 0)
    assert hands.loaded() == {f"d{n}": f"text {n}" for n in range(3)}
