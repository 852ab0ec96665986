"""What an ingestion keeps in the storage is in its owner's account, and has room there or ends the ingestion."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError
from tasks.records.api_keys import Mark, make_mark
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import all_done
from tasks.records.moves import delete_job, retry_job
from tasks.records.store import Left, left_of
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus


OWN_OUTCOMES = "tasks.ingestion.sources.source.OWN_OUTCOMES"


def stored(hands: IngestionHands) -> int:
    return hands.ledger.run(left_of("anonymous")).stored_bytes


def kept(hands: IngestionHands, ingestion_id: str) -> int:
    pages = hands.ledger.run(all_done(ingestion_id, "ingestion")).values()
    assert all(page.counts.kept == len(hands.storage.read(page.obj)) for page in pages)
    return sum(page.counts.kept for page in pages)


def retried(hands: IngestionHands, ingestion_id: str, most_stored: int | None) -> None:
    move = retry_job(hands.ingestion(ingestion_id))
    assert move is not None
    move.set(most_stored=most_stored)
    assert hands.move(lambda _: move, hands.ingestion(ingestion_id))


def test_a_small_file_of_many_failures_leaves_little_and_the_account_says_how_much(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OWN_OUTCOMES, 1_000)
    file = io.BytesIO()
    pq.write_table(pa.table({"text": pa.nulls(6_000, pa.string())}), file)
    data = file.getvalue()
    assert len(data) < 1000
    made = hands.ingest({"files": [hands.file("nulls.parquet", data)]})
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.documents, ingestion.counts.failed) == (S.FAILED, 6_000, 6_000)
    failed = hands.failed(made)
    assert sum(document.documents for document in failed) == 6_000
    assert 1_000 < len(failed) < 1_200, "the first ones each, and one for a page"
    first, last = failed[0], failed[-1]
    assert (first.records, first.message) == (0, first.fault and first.fault.message)
    assert last.fault is not None
    assert last.fault.message.endswith(f" It stands for {last.records:,} records that failed alike.")
    assert len(data) < stored(hands) < 25_000
    assert stored(hands) == len(data) + kept(hands, made)

    assert hands.move(delete_job, ingestion)
    assert stored(hands) > 2 * len(data), "it is there until the sweep"
    hands.sweep()
    assert (stored(hands), list(hands.storage.stored(f"anonymous/{made}"))) == (len(data), [])


def test_records_that_failed_alike_are_all_tried_again(hands: IngestionHands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OWN_OUTCOMES, 2)
    data = b"".join(b'{"text": "%s"}\n' % text for text in (b"one", *[b""] * 4, b"six", *[b""] * 4))
    made = hands.ingest({"files": [hands.file("a.jsonl", data)]}, mode="sync")
    for parsing_s in (3, 3, -1, -1):  # at last each page is divided behind its first record
        hands.at_pace(page=PageLimits(records=7), parsing_s=parsing_s)
        hands.work()
        counts, failed = hands.ingestion(made).counts, hands.failed(made)
        assert (counts.documents, counts.failed, counts.loaded, counts.deleted) == (10, 8, 2, 0)
        assert sum(document.documents for document in failed) == 8
        number = {(document.id.rpartition("#")[2], document.documents) for document in failed}
        assert parsing_s < 0 or number == {("2", 1), ("3", 3), ("7", 1), ("8", 3)}, "no others are between them"
        assert stored(hands) == len(data) + kept(hands, made)
        assert hands.retry(made)
    hands.work()
    nothing_is_left(hands, made)


def test_documents_of_records_that_failed_alike_stay(hands: IngestionHands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OWN_OUTCOMES, 1)
    name = "anonymous/listed.jsonl"
    for text, mode in ((b"text", "skip_unchanged"), (b"", "sync")):
        lines = [b'{"id": "%d", "text": "%s"}\n' % (n, text if n else b"text") for n in range(5)]
        hands.storage.write(name, b"".join(lines))
        made = hands.ingest({"documents": 5}, listed=name, mode=mode)
        hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.deleted) == (S.COMPLETED, 0)


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_keeps_more_than_there_is_room_for_ends_and_goes_on_later(hands: IngestionHands, *, dry_run: bool) -> None:
    hands.at_pace(page=PageLimits(records=1))
    made = hands.texts({f"{n}": f"text {n}" for n in range(6)}, most_stored=150, dry_run=dry_run)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.resumable) == (S.FAILED, True)
    assert ingestion.error is not None
    assert ingestion.error.code == "quota_exceeded"
    assert "try this one again" in ingestion.error.message
    counts = ingestion.counts
    assert (counts.documents, counts.loaded + counts.cancelled) == (6, 6)
    assert dry_run or len(hands.loaded()) == counts.loaded < 6, "what is loaded stays, and is told"
    assert stored(hands) == kept(hands, made) > 150
    assert len(hands.outcomes(made)) == counts.loaded
    nothing_is_left(hands, made)

    retried(hands, made, most_stored=10_000)
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 6)
    assert stored(hands) == kept(hands, made)


def test_pages_that_are_replaced_count_as_they_are_now(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No. " * 100)
    made = hands.texts({"a": "first", "b": "bad"})
    hands.work()
    before = stored(hands)
    assert before == kept(hands, made)
    hands.bad.clear()
    retried(hands, made, most_stored=0)
    hands.work()
    assert hands.outcomes(made)["b"].status is DocumentStatus.LOADED, "it keeps less than before, so it needs no room"
    assert stored(hands) == kept(hands, made) < before
    hands.ledger.run(make_mark(Mark(name="anonymous", owner="anonymous", purged=2.0)))
    hands.sweep()
    assert hands.ledger.run(left_of("anonymous")) == Left(0, 0, 0, 0)
