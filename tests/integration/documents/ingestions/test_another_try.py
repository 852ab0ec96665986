"""Another try of an ingestion, with the documents that failed, and of a load."""

from tasks.item import TextError
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
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
