"""Documents that share an id: within one ingestion, and with what another source has brought into the sink."""

import pytest

from tasks.ingestion.sources.page import PageLimits
from tests.integration.documents.ingestions.hands import IngestionHands

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
