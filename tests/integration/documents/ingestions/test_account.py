"""What an ingestion keeps in the storage is in its owner's account, and has room there or ends the ingestion."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError
from tasks.records.api_keys import Mark, make_mark
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import all_done
from tasks.records.moves import Move, delete_job, retry_job
from tasks.records.store import Left, left_of
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left

S = IngestionStatus
TEXTS = {f"{n}": f"text {n}" for n in range(6)}


def nulls(rows: int) -> bytes:
    """A Parquet file of rows without a text."""
    file = io.BytesIO()
    pq.write_table(pa.table({"text": pa.nulls(rows, pa.string())}), file)
    return file.getvalue()


def kept(hands: IngestionHands, ingestion_id: str) -> int:
    """Bytes of what the done pages name."""
    pages = hands.ledger.run(all_done(ingestion_id, "ingestion")).values()
    assert all(page.counts.kept == len(hands.storage.read(page.obj)) for page in pages)
    return sum(page.counts.kept for page in pages)


def stored(hands: IngestionHands) -> int:
    """By the account."""
    return hands.ledger.run(left_of("anonymous")).stored_bytes


def retried(hands: IngestionHands, ingestion_id: str, most_stored: int | None) -> None:
    """Its owner tries it again, with so much room."""

    def again(job: Any) -> Move | None:
        move = retry_job(job)
        assert move is not None
        move.set(most_stored=most_stored)
        return move

    assert hands.move(again, hands.ingestion(ingestion_id))


def test_a_small_file_of_many_failures_leaves_little_and_the_account_says_how_much(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.ingestion.sources.source.OWN_OUTCOMES", 1_000)
    data = nulls(6_000)
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


def lines(texts: list[str]) -> bytes:
    return b"".join(b'{"text": "%s"}\n' % text.encode() for text in texts)


def test_records_that_failed_alike_are_all_tried_again(hands: IngestionHands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingestion.sources.source.OWN_OUTCOMES", 2)
    hands.at_pace(page=PageLimits(records=7))
    texts = ["one", *[""] * 4, "six", *[""] * 4]
    file = hands.file("a.jsonl", lines(texts))
    made = hands.ingest({"files": [file]}, mode="sync")
    hands.work()
    [record] = [hands.ingestion(made)]
    assert (record.counts.documents, record.counts.failed, record.counts.loaded) == (10, 8, 2)
    number = [(document.id.rpartition("#")[2], document.documents) for document in hands.failed(made)]
    assert number == [("2", 1), ("3", 3), ("7", 1), ("8", 3)], "of one page each"
    assert stored(hands) == len(lines(texts)) + kept(hands, made)

    hands.at_pace(page=PageLimits(records=7), parsing_s=-1)  # each page is divided behind its first record
    for _ in range(2):
        assert hands.retry(made)
        hands.work()
        counts = hands.ingestion(made).counts
        assert (counts.documents, counts.failed, counts.loaded, counts.deleted) == (10, 8, 2, 0)
        assert sum(document.documents for document in hands.failed(made)) == 8
        assert stored(hands) == len(lines(texts)) + kept(hands, made)
    nothing_is_left(hands, made)


def test_documents_of_records_that_failed_alike_stay(hands: IngestionHands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingestion.sources.source.OWN_OUTCOMES", 1)
    source = {"documents": 5}
    name = "anonymous/listed.jsonl"
    hands.storage.write(name, b"".join(b'{"id": "%d", "text": "text"}\n' % n for n in range(5)))
    hands.ingest(source, listed=name)
    hands.work()
    hands.storage.write(name, b"".join(b'{"id": "%d", "text": "%s"}\n' % (n, b"" if n else b"text") for n in range(5)))
    sync = hands.ingest(source, listed=name, mode="sync", made=None)
    hands.work()
    assert (hands.ingestion(sync).status, hands.ingestion(sync).counts.deleted) == (S.COMPLETED, 0)


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_keeps_more_than_there_is_room_for_ends_and_goes_on_later(hands: IngestionHands, *, dry_run: bool) -> None:
    hands.at_pace(page=PageLimits(records=1))
    made = hands.texts(TEXTS, most_stored=150, dry_run=dry_run)
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.status is S.FAILED
    assert ingestion.resumable
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
    nothing_is_left(hands, made)


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
