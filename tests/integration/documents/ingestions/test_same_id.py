"""Documents that share an id: within one ingestion, and with what another source has brought into the sink."""

from contextlib import closing
from hashlib import sha256

import numpy as np
import pytest

from tasks.chunk import Chunk
from tasks.datasets.loads import DocumentLoad, DocumentState, Stamp, Verdict
from tasks.ingestion.sources.page import PageLimits
from tasks.records.ingestions import Ingestion
from tasks.records.jobs import Stage
from tasks.records.moves import cancel_job
from tests.integration.batches.hands import MODEL
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands, nothing_is_left

ONE = b'{"id": "x", "text": "version A"}\n{"id": "y", "text": "of y"}\n{"id": "x", "text": "version B"}\n'


@pytest.fixture(autouse=True)
def small_pages(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))


@pytest.mark.parametrize("pages_of_a_listing", [1, 16])
def test_the_second_document_with_an_id_fails_on_every_run(hands: IngestionHands, pages_of_a_listing: int) -> None:
    hands.at_pace(listing_pages=pages_of_a_listing)
    file_id = hands.file("a.jsonl", ONE)
    for run in range(3):
        made = hands.ingest({"files": [file_id]})
        hands.work()
        counts = hands.ingestion(made).counts
        assert (counts.loaded, counts.unchanged, counts.failed) == ((2, 0, 1) if run == 0 else (0, 2, 1))
        (failed,) = hands.failed(made)
        assert (failed.code, failed.uri) == ("duplicate_document_id", f"file:{file_id}/a.jsonl#3")
        assert f"file:{file_id}/a.jsonl#1" in (failed.message or "")
        assert hands.loaded() == {"x": "version A", "y": "of y"}


def test_also_of_documents_that_came_with_the_request(hands: IngestionHands) -> None:
    made = hands.documents([{"id": "x", "text": "A"}, {"id": "y", "text": "B"}, {"id": "x", "text": "C"}])
    hands.work()
    (failed,) = hands.failed(made)
    assert (failed.code, failed.uri) == ("duplicate_document_id", "inline:x#3")
    assert hands.loaded() == {"x": "A", "y": "B"}


def test_a_redis_that_goes_back_makes_no_document_its_own_duplicate(hands: IngestionHands) -> None:
    hands.at_pace(listing_pages=1)
    client = hands.ledger.client
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(6))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines + ONE)]})
    hands.until(lambda: hands.ingestion(made).counts.loaded >= 2)
    then = {key: (client.dump(key) or b"", max(client.pttl(key), 0)) for key in client.scan_iter()}
    hands.until(lambda: hands.ingestion(made).counts.loaded >= 5)
    client.flushdb()
    for key, (value, ttl_ms) in then.items():
        client.restore(key, ttl_ms, value)
    hands.work()

    counts = hands.ingestion(made).counts
    assert (counts.loaded, counts.failed) == (8, 1)


def load_late(hands: IngestionHands, older: Ingestion, document_id: str) -> None:
    """An ingestion that was accepted earlier is slow: it loads another version only now."""
    with closing(hands.datasets.contents("anonymous", DATASET)) as contents:
        vectors = contents.head().vectors
    stamp = Stamp(older.id, older.order, "0" * 64, MODEL, "r1", 4, vectors, replaces_others=True)
    with closing(hands.datasets.store("anonymous", DATASET)) as store:
        chunks, numbers = [Chunk(0, "other", 0, 5, None, (), 3)], np.ones((1, 4), np.float32)
        other = DocumentLoad(
            document_id, f"inline:{document_id}", DocumentState.NEW, "1" * 64, chunks=chunks, vectors=numbers
        )
        assert store.load([other], stamp, lambda: None)[0].verdict is Verdict.REPLACED


def test_what_an_older_ingestion_changes_under_a_newer_one_is_read_again(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second"})
    hands.work()
    older = hands.ingestion(hands.texts({"a": "other"}))
    assert hands.move(cancel_job, older)
    newer = hands.texts({"a": "first", "b": "second", "c": "third"})
    hands.until(lambda: [page.at for page in hands.ingestion(newer).pages.values()][:1] == [Stage.LOAD])
    load_late(hands, older, "a")
    hands.work()
    counts = hands.ingestion(newer).counts
    assert hands.loaded() == {"a": "first", "b": "second", "c": "third"}
    assert (counts.loaded, counts.unchanged, counts.replaced) == (2, 1, 1)
    assert counts.chunks == counts.chunks_embedded == counts.chunks_loaded == 2
    nothing_is_left(hands, newer)


def test_what_it_changes_of_a_file_that_was_not_sent_fails_alone(hands: IngestionHands) -> None:
    files = {"a.txt": b"first", "b.txt": b"second"}
    hands.ingest({"files": [hands.file(name, data) for name, data in files.items()]})
    hands.work()
    older = hands.ingestion(hands.texts({"a.txt": "other"}))
    assert hands.move(cancel_job, older)
    named = [{"sha256": sha256(data).hexdigest(), "document_id": name} for name, data in files.items()]
    newer = hands.ingest({"files": named})
    hands.until(lambda: all(page.at is Stage.LOAD for page in hands.ingestion(newer).pages.values()))
    load_late(hands, older, "a.txt")
    hands.work()
    assert [(line.id, line.code) for line in hands.failed(newer)] == [("a.txt", "not_sent")]
    assert hands.ingestion(newer).counts.unchanged == 1
    assert hands.loaded() == {"a.txt": "other", "b.txt": "second"}, "what stands there stays; the command sends it anew"


def csv(hands: IngestionHands, name: str, *texts: str) -> dict[str, list[str]]:
    lines = [f"{number},{text}" for number, text in enumerate(texts, 1)]
    return {"files": [hands.file(name, "\n".join(["id,text", *lines]).encode())]}


def test_records_of_another_file_do_not_take_the_place_of_those_there(hands: IngestionHands) -> None:
    hands.ingest(csv(hands, "customers.csv", "Ann", "Bob"))
    hands.work()
    other = hands.ingest(csv(hands, "products.csv", "pen", "Bob", "ink"))
    hands.work()
    counts = hands.ingestion(other).counts
    assert (counts.failed, counts.unchanged, counts.loaded, counts.replaced) == (1, 1, 1, 0)
    (failed,) = hands.failed(other)
    assert (failed.id, failed.code, failed.stage) == ("1", "id_conflict", "loading")
    assert "customers.csv#1'" in (failed.message or "")
    assert "products.csv#1'" in (failed.message or "")
    assert hands.loaded() == {"1": "Ann", "2": "Bob", "3": "ink"}

    again = hands.ingest(csv(hands, "customers.csv", "Anna", "Bob"))
    hands.work()
    counts = hands.ingestion(again).counts
    assert (counts.failed, counts.loaded, counts.replaced) == (0, 1, 1)
    assert hands.loaded()["1"] == "Anna"


def test_nor_when_both_run_at_the_same_time(hands: IngestionHands) -> None:
    made = [hands.ingest(csv(hands, name, text)) for name, text in (("customers.csv", "Ann"), ("products.csv", "pen"))]
    hands.work()
    counts = [hands.ingestion(each).counts for each in made]
    assert sorted((each.loaded, each.failed, each.replaced) for each in counts) == [(0, 1, 0), (1, 0, 0)]
    ((lost, failed),) = [(each, failed) for each in made for failed in hands.failed(each)]
    assert (failed.id, failed.code, failed.stage) == ("1", "id_conflict", "loading")
    assert hands.loaded() == {"1": "Ann" if lost == made[1] else "pen"}


def test_replaced_ones_of_ingestions_that_run_at_the_same_time_are_counted(hands: IngestionHands) -> None:
    made = [hands.ingest(csv(hands, name, name), on_conflict="replace") for name in ("monday.csv", "tuesday.csv")]
    hands.work()
    counts = [hands.ingestion(each).counts for each in made]
    assert [(each.loaded, each.replaced, each.unchanged) for each in counts] in (
        [(1, 0, 0), (1, 1, 0)],
        [(0, 0, 1), (1, 0, 0)],  # the newer one came first
    )
    assert hands.loaded() == {"1": "tuesday.csv"}


@pytest.mark.parametrize("asked", [{"on_conflict": "replace"}, {"mode": "upsert"}, {"mode": "sync"}])
def test_they_do_where_that_was_asked_for_and_are_counted(hands: IngestionHands, asked: dict[str, str]) -> None:
    hands.ingest(csv(hands, "monday.csv", "Ann", "Bob", "Cy"))
    hands.work()
    other = hands.ingest(csv(hands, "tuesday.csv", "Anna", "Bob", ""), **asked)
    hands.work()
    counts = hands.ingestion(other).counts
    assert (counts.failed, counts.replaced, counts.deleted) == (0, 2, 0)
    assert hands.loaded() == {"1": "Anna", "2": "Bob"}


def test_upsert_may_be_told_to_leave_them(hands: IngestionHands) -> None:
    hands.ingest(csv(hands, "monday.csv", "Ann"))
    hands.work()
    other = hands.ingest(csv(hands, "tuesday.csv", "Anna"), mode="upsert", on_conflict="fail")
    hands.work()
    assert (hands.ingestion(other).counts.failed, hands.loaded()) == (1, {"1": "Ann"})


def test_records_without_ids_of_their_own_meet_nobody(hands: IngestionHands) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        made = hands.ingest({"files": [hands.file(name, b'{"text": "of %s"}\n' % name.encode())]})
        hands.work()
        assert (hands.ingestion(made).counts.failed, hands.ingestion(made).counts.replaced) == (0, 0)
    assert hands.loaded() == {"a.jsonl#1": "of a.jsonl", "b.jsonl#1": "of b.jsonl"}


@pytest.mark.parametrize("parsing_s", [3.0, -1.0], ids=["fast", "slow"])
def test_of_two_with_one_id_the_first_of_the_source_wins_however_fast_the_machine_is(
    hands: IngestionHands, parsing_s: float
) -> None:
    hands.at_pace(page=PageLimits(records=2), parsing_s=parsing_s)
    ids = ["a", "x", "x", "b", "c", "x"]
    lines = b"".join(b'{"id": "%s", "text": "text %d"}\n' % (name.encode(), n) for n, name in enumerate(ids))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]}, mode="upsert")
    hands.work()
    assert hands.ingestion(made).counts.loaded == 4
    assert hands.loaded()["x"] == "text 1"
