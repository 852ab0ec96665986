"""Another try of an ingestion, with the documents that failed, and of a load."""

from pathlib import Path

from tasks.item import TextError
from tasks.records.document_outcomes import DocumentStatus
from tasks.records.ingestion_operations import Moved, retry_ingestion
from tasks.records.ingestions import IngestionStatus, PageStage
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
    assert hands.ledger.run(retry_ingestion(made)) == Moved(True, S.IN_PROGRESS)
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
    hands.ledger.run(retry_ingestion(sync))
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
    hands.ledger.run(retry_ingestion(made))
    hands.work()
    outcome = hands.outcomes(made)["a"]
    assert (outcome.status, outcome.code) == (DocumentStatus.UNCHANGED, "superseded")
    assert hands.loaded() == {"a": "newer"}


def test_what_fails_again_is_tried_once(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "first", "b": "bad"})
    hands.work()
    hands.ledger.run(retry_ingestion(made))
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded, counts.failed) == (S.COMPLETED, 2, 1, 1)
    assert hands.outcomes(made)["b"].code == "encoding_failed"


def test_a_load_that_cannot_look_up_what_failed_is_done_again_and_counts_nothing_twice(
    hands: IngestionHands, tmp_path: Path
) -> None:
    hands.texts({"a": "before"})
    hands.work()
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"a": "after", "b": "bad"})
    hands.until(lambda: [page.stage for page in hands.ingestion(made).pages.values()] == [PageStage.READY])
    (page,) = hands.ingestion(made).pages.values()
    manifest = tmp_path / "storage" / page.manifest
    kept = manifest.rename(tmp_path / "manifest")
    manifest.symlink_to(manifest)  # it is there, and cannot be read now
    hands.until(lambda: hands.ingestion(made).waiting_for == "storage")
    assert hands.loaded() == {"a": "after"}, "the sink had been asked"

    kept.replace(manifest)
    hands.work()
    counts = hands.ingestion(made).counts
    assert hands.ran[f"load_pages {made}/0"] > 1
    assert (counts.documents, counts.loaded, counts.failed, counts.replaced, counts.chunks_loaded) == (2, 1, 1, 1, 1)
    assert [outcome.ref is not None for outcome in hands.failed(made)] == [True]
    assert hands.loaded() == {"a": "after"}
    nothing_is_left(hands, made)
