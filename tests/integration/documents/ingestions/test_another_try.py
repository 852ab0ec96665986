"""Another try of an ingestion, with the documents that failed, and of a load."""

from pathlib import Path

import pytest

from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tasks.records.moves import cancel_job
from tasks.storage.vectors_file import fence
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus


def test_a_document_with_a_bad_chunk_fails_alone_and_can_be_tried_again(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad", "c": "third"})
    hands.work()
    assert (hands.ingestion(made).counts.loaded, hands.ingestion(made).counts.failed) == (2, 1)
    failed = hands.outcomes(made)["b"]
    assert (failed.status, failed.stage, failed.code) == (DocumentStatus.FAILED, "embedding", "encoding_failed")
    nothing_is_left(hands, made)

    hands.bad.clear()
    assert hands.retry(made)
    assert hands.ingestion(made).status is S.IN_PROGRESS
    assert hands.ingestion(made).counts.failed == 1, "until it is done anew"
    hands.work()
    counts = hands.ingestion(made).counts
    ingestion = hands.ingestion(made)
    assert (ingestion.status, counts.documents, counts.loaded, counts.failed) == (S.COMPLETED, 3, 3, 0)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == 3
    assert counts.chunk_tokens == 3 * 3, "each one word between two special tokens"
    assert ingestion.rate is not None
    assert ingestion.finished_ms is not None
    seconds = (ingestion.finished_ms - ingestion.times[S.IN_PROGRESS]) / 1000
    assert 0 < ingestion.rate.documents_per_s * seconds < 2, "of this try, which had one document of three"
    assert hands.outcomes(made)["b"].status is DocumentStatus.LOADED
    assert set(hands.loaded()) == {"a", "b", "c"}
    nothing_is_left(hands, made)


def test_sync_within_another_try_knows_the_documents_of_the_first_one(hands: IngestionHands) -> None:
    hands.texts({"b": "before", "old": "text"})
    hands.work()
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    sync = hands.texts({"a": "first", "b": "bad"}, mode="sync")
    hands.work()
    assert hands.ingestion(sync).counts.deleted == 1
    assert hands.loaded() == {"a": "first", "b": "before"}
    hands.texts({"newer": "text"})
    hands.work()

    hands.bad.clear()
    assert hands.retry(sync)
    hands.work()
    ingestion = hands.ingestion(sync)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.counts.deleted) == (S.COMPLETED, 2, 1)
    assert hands.loaded() == {"a": "first", "b": "bad", "newer": "text"}
    nothing_is_left(hands, sync)


def test_what_a_newer_ingestion_has_loaded_meanwhile_stays_and_is_said(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "bad"})
    hands.work()
    hands.texts({"a": "newer"})
    hands.work()

    hands.bad.clear()
    assert hands.retry(made)
    hands.work()
    outcome = hands.outcomes(made)["a"]
    assert (outcome.status, outcome.code) == (DocumentStatus.UNCHANGED, "superseded")
    assert hands.loaded() == {"a": "newer"}


def test_what_fails_again_is_tried_once(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad"})
    hands.work()
    assert hands.retry(made)
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded, counts.failed) == (S.COMPLETED, 2, 1, 1)
    assert hands.outcomes(made)["b"].code == "encoding_failed"


def test_a_load_that_cannot_say_what_it_did_is_done_again_and_counts_nothing_twice(
    hands: IngestionHands, tmp_path: Path
) -> None:
    hands.texts({"a": "before"})
    hands.work()
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "after", "b": "bad"})
    hands.until(lambda: [page.at for page in hands.ingestion(made).pages.values()] == [Stage.LOAD])
    before = hands.ran["1 load"]
    in_the_way = tmp_path / "storage" / "anonymous" / made / f"1.loaded.{fence(f'hand/0/{hands.claims + 1}')}"
    in_the_way.mkdir()  # a name that cannot be written now
    hands.until(lambda: hands.ingestion(made).waiting_for == "storage")
    assert hands.loaded() == {"a": "after"}, "the sink had been asked"

    in_the_way.rmdir()
    hands.wait(1)
    hands.work()
    counts = hands.ingestion(made).counts
    assert hands.ran["1 load"] == before + 2
    assert (counts.documents, counts.loaded, counts.failed, counts.replaced, counts.chunks_loaded) == (2, 1, 1, 1, 1)
    assert [document.is_to_read for document in hands.failed(made)] == [True]
    assert hands.loaded() == {"a": "after"}
    nothing_is_left(hands, made)


def test_what_is_tried_again_is_counted_once(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad", "c": "third", "d": "bad"})
    hands.work()
    assert ingested(hands) == {"loaded": 2, "failed": 2, "chunks_embedded": 2}

    hands.retry(made)
    hands.work()
    assert ingested(hands) == {"loaded": 2, "failed": 2, "chunks_embedded": 2}, "nothing became of it"

    hands.bad.clear()
    hands.retry(made)
    hands.work()
    assert ingested(hands) == {"loaded": 4, "failed": 2, "chunks_embedded": 4}


def ingested(hands: IngestionHands) -> dict[str, int]:
    """Totals of all ingestions, as metrics tell them."""
    counters = hands.ledger.run(overview(DOCUMENTS))[DOCUMENTS].counters
    return {name.removeprefix("ingested_"): n for name, n in counters.items() if n and name.startswith("ingested_")}


def test_it_has_started_when_work_on_this_try_began(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "bad", "b": "second"})
    assert hands.ingestion(made).started_ms is None
    hands.work()
    ended = hands.ingestion(made).finished_ms
    hands.wait(5)
    hands.retry(made)
    again = hands.ingestion(made).started_ms
    assert again is not None
    assert ended is not None
    assert again >= ended + 5_000
    hands.work()
    assert hands.ingestion(made).started_ms == again
    cancelled = hands.texts({"a": "first"})
    hands.move(cancel_job, hands.ingestion(cancelled))
    hands.work()
    assert (hands.ingestion(cancelled).status, hands.ingestion(cancelled).started_ms) == (S.CANCELLED, None)


def test_another_try_opens_few_pages_at_a_time(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.ingest({"files": [hands.file("a.jsonl", b'{"text": "bad"}\n' * 7)]})
    hands.work()
    assert hands.ingestion(made).counts.failed == 7

    hands.bad.clear()
    hands.within(open_pages=3)
    hands.retry(made)
    most = 0
    while not hands.ingestion(made).status.terminal:
        hands.step()
        most = max(most, len(hands.ingestion(made).pages))
        hands.work_documents(limit=1)
        hands.work_model(limit=1)
    assert most == 3
    assert hands.ingestion(made).counts.loaded == 7


# ---- of a dry run


def test_another_try_of_a_dry_run_counts_what_it_counted_before(hands: IngestionHands) -> None:
    files = [hands.file("a.txt", b"one two three"), hands.file("b.txt", b"\x00\x01\x02" * 50)]
    made = hands.ingest({"files": files}, dry_run=True)
    hands.work()
    before = hands.ingestion(made).counts
    assert (before.documents, before.loaded, before.failed, before.chunks) == (2, 1, 1, 1)
    assert before.chunk_tokens > 0
    assert hands.retry(made)
    hands.work()
    assert hands.ingestion(made).counts == before


def test_a_page_of_a_dry_run_that_kills_every_worker_fails_and_says_so(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(3))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]}, dry_run=True)
    hands.deadly_stages.add("1 parse")
    for _ in range(40):
        hands.wait(60)
        hands.step()
        hands.work_documents(limit=1)
    hands.work()
    outcomes = hands.outcomes(made)
    assert [str(outcomes[name].status) for name in ("a.jsonl#1", "d1", "d2")] == ["failed", "counted", "counted"]
    assert outcomes["a.jsonl#1"].code == "worker_lost"
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.loaded, counts.failed, counts.chunks) == (S.COMPLETED, 2, 1, 2)
    nothing_is_left(hands, made)

    hands.deadly_stages.clear()
    assert hands.retry(made)
    hands.work()
    counts = hands.ingestion(made).counts
    assert (counts.loaded, counts.failed, counts.chunks, counts.chunk_tokens) == (3, 0, 3, 3 * 4)
    assert hands.rows() == []


@pytest.mark.parametrize("stops", [False, True])
def test_another_try_of_a_page_has_turns_and_counts_every_document_once(hands: IngestionHands, *, stops: bool) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", **{f"b{n}": "bad" for n in range(4)}})
    hands.work()
    before = hands.ingestion(made).counts
    assert (before.loaded, before.failed) == (1, 4)

    hands.bad.clear()
    hands.at_pace(parsing_s=-1)  # each turn is over with its first document
    assert hands.retry(made)
    if stops:
        hands.until(lambda: hands.ran["1 parse"] == 2)
        hands.until(lambda: len(hands.ingestion(made).pages) == 2)
        hands.move(cancel_job, hands.ingestion(made))
        hands.work()
        assert hands.ingestion(made).counts.documents == 5
        assert sorted(hands.outcomes(made)) == ["a", "b0", "b1", "b2", "b3"], "each is shown once"
        return
    hands.work()
    counts = hands.ingestion(made).counts
    assert (counts.documents, counts.loaded, counts.failed, counts.chunks_loaded) == (5, 5, 0, 5)
    assert (counts.chunks, counts.chunk_tokens, counts.bytes) == (before.chunks, before.chunk_tokens, before.bytes)
    assert [hands.ran[f"{page} parse"] for page in (1, 2, 3, 4)] == [2, 1, 1, 1]
    assert sorted(hands.outcomes(made)) == sorted(hands.loaded()) == ["a", "b0", "b1", "b2", "b3"]
    nothing_is_left(hands, made)
