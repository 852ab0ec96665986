"""Documents workers that die in the jobs of an ingestion, again and again."""

from collections.abc import Callable

import pytest

from tasks.documents.sources.source import PageLimits
from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.document_outcomes import DocumentStatus
from tasks.records.ingestion_operations import Moved, resume_ingestion, retry_ingestion
from tasks.records.ingestions import Ingestion, IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
TEXTS = {"a": "first", "b": "second"}
DEATHS = 4
"""Of a worker in one and the same job, until the ledger gives the job up."""


def parsing(ingestion: Ingestion) -> bool:
    return any(page.stage is PageStage.PARSE and page.state is not None for page in ingestion.pages.values())


MOMENTS: dict[str, Callable[[Ingestion], bool]] = {
    "list": lambda ingestion: ingestion.list_state is not None,
    "parse": parsing,
    "load": lambda ingestion: ingestion.load_state is not None,
    "finish": lambda ingestion: ingestion.finish_state is not None,
}


def submitted(hands: IngestionHands, ingestion_id: str, job: str) -> None:
    """Goes on until such a job is in the queue."""
    for _ in range(50):
        hands.step()
        if MOMENTS[job](hands.ingestion(ingestion_id)):
            return
        hands.work_documents()
        hands.work_model()
    raise AssertionError("it never came to this")


def die(hands: IngestionHands) -> bool:
    """A worker takes a job and dies; whether there was one."""
    claim = hands.claim(DOCUMENTS, 1)
    hands.ledger.run(give_back(DOCUMENTS, claim.token, blame=True))
    return bool(claim.pieces)


@pytest.mark.parametrize("job", MOMENTS)
def test_a_job_whose_workers_were_killed_is_tried_again_later(hands: IngestionHands, job: str) -> None:
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, job)
    assert [die(hands) for _ in range(DEATHS + 1)] == [True] * DEATHS + [False]
    hands.step()
    assert hands.ingestion(made).waiting_for == "worker"
    hands.wait(1)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.setbacks) == (S.COMPLETED, 2, {})
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)


@pytest.mark.parametrize("job", MOMENTS)
def test_a_job_is_tried_again_soon_though_the_clock_of_redis_has_gone_back(hands: IngestionHands, job: str) -> None:
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, job)
    while die(hands):
        pass
    hands.step()
    assert hands.ingestion(made).waiting_for == "worker"
    hands.ledger.clock_offset_ms -= 3_600_000
    hands.work()
    assert (hands.ingestion(made).status, hands.loaded()) == (S.COMPLETED, TEXTS)


@pytest.mark.parametrize("job", ["list", "load", "finish"])
def test_a_job_that_kills_every_worker_ends_its_ingestion_until_it_is_tried_again(
    hands: IngestionHands, job: str
) -> None:
    hands.texts({"old": "text"})
    hands.work()
    made = hands.texts(TEXTS, mode="sync")
    submitted(hands, made, job)
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
    assert hands.ledger.run(resume_ingestion(made)) == Moved(True, S.IN_PROGRESS)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.error, ingestion.resumable) == (S.COMPLETED, None, False)
    assert (ingestion.counts.loaded, ingestion.counts.cancelled, ingestion.counts.deleted) == (2, 0, 1)
    assert hands.loaded() == TEXTS
    nothing_is_left(hands, made)


def test_another_try_goes_on_where_the_first_was(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1), load_pages=3, in_flight=9)
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(20))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.deadly_jobs.add(f"load_pages {made}/1")
    for _ in range(60):
        hands.wait(60)
        hands.step()
        hands.work_documents()
        hands.work_model()
    ingestion = hands.ingestion(made)
    first = ingestion.counts.loaded
    assert (ingestion.status, ingestion.pages, first > 0) == (S.FAILED, {}, True)
    assert ingestion.counts.cancelled == 20 - first
    assert ingestion.counts.chunks == ingestion.counts.chunks_loaded == ingestion.counts.chunks_embedded == first
    hands.sweep()
    listings, parsed = hands.ran[f"list_page {made}/0"], hands.ran[f"parse_page {made}/0"]

    hands.deadly_jobs.clear()
    assert hands.ledger.run(retry_ingestion(made)) == Moved(False, S.FAILED)
    assert hands.ledger.run(resume_ingestion(made)) == Moved(True, S.IN_PROGRESS)
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded, counts.cancelled) == (S.COMPLETED, 20, 20, 0)
    assert counts.chunks == counts.chunks_loaded == counts.chunks_embedded == 20
    assert (hands.ran[f"list_page {made}/0"], hands.ran[f"parse_page {made}/0"]) == (listings, parsed)
    assert hands.loaded() == {f"d{n}": f"text {n}" for n in range(20)}
    nothing_is_left(hands, made)


def test_a_page_that_kills_every_worker_fails_alone(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(3))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.deadly_jobs.add(f"parse_page {made}/0")
    for _ in range(40):
        hands.wait(60)
        hands.step()
        hands.work_documents(limit=1)
        hands.work_model()
    assert hands.ran[f"parse_page {made}/0"] == 4 * DEATHS
    hands.work()
    outcomes = hands.outcomes(made)
    assert [outcomes[f"d{n}"].status for n in range(3)] == [DocumentStatus.FAILED] + 2 * [DocumentStatus.LOADED]
    assert outcomes["d0"].code == "worker_lost"
