"""An ingestion from its source to its sink, through every state, with workers by hand."""

import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from tasks.document_error import DocumentWarning
from tasks.ingestion.sources.page import PageLimits
from tasks.ledger.redis_keys import record_key
from tasks.records.documents import DocumentStatus, read_documents, write_documents
from tasks.records.ingestions import IngestionRecord, IngestionStatus, read_ingestion
from tasks.records.jobs import Stage, list_jobs
from tasks.records.moves import delete_job
from tasks.records.store import OPEN
from tests.integration.api.ledger_worker import vector
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands, nothing_is_left

S = IngestionStatus
LOADED, UNCHANGED, FAILED = DocumentStatus.LOADED, DocumentStatus.UNCHANGED, DocumentStatus.FAILED
LONG = " ".join(f"word{n}" for n in range(700))
JSONL = b"".join(b'{"id": "d%d", "text": "text number %d", "year": %d}\n' % (n, n, n) for n in range(30))
SAME_ID = b'{"id": "x", "text": "version A"}\n{"id": "y", "text": "of y"}\n{"id": "x", "text": "version B"}\n'
SECRET = "somebody's words"
DEATHS = 4
"""Of a worker in one and the same stage, until the ledger gives it up."""


def at(hands: IngestionHands, ingestion_id: str, *stages: Stage) -> bool:
    return [page.at for page in hands.ingestion(ingestion_id).pages.values()] == [*stages]


def test_records_become_rows(hands: IngestionHands) -> None:
    source = {"files": [hands.file("a.jsonl", JSONL)], "fields": {"metadata": ["year"]}}
    made = hands.ingest(source)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.error) == (S.COMPLETED, None)
    counts = ingestion.counts
    assert (counts.documents, counts.loaded, counts.failed, counts.chunks, counts.chunks_loaded) == (30, 30, 0, 30, 30)
    assert (counts.bytes, counts.bytes_done, counts.chunks_embedded) == (len(JSONL), len(JSONL), 30)
    rows = hands.rows()
    assert [row["doc_id"] for row in rows] == sorted(f"d{n}" for n in range(30))
    for row in rows:
        assert np.array_equal(row["embedding"], vector(row["text"]))
        assert row["metadata"] == f'{{"year":{row["doc_id"][1:]}}}'
    nothing_is_left(hands, made)


def test_a_long_document_becomes_chunks_that_cover_it(hands: IngestionHands) -> None:
    texts = {"long": LONG, "short": "one"}
    dry = hands.texts(texts, dry_run=True)
    hands.work()
    counted = hands.ingestion(dry)
    assert (counted.status, counted.counts.loaded, counted.counts.chunks_loaded) == (S.COMPLETED, 2, 0)
    assert counted.estimate_s is not None
    assert {each.status for each in hands.outcomes(dry).values()} == {DocumentStatus.COUNTED}
    assert hands.rows() == []
    nothing_is_left(hands, dry)

    hands.texts(texts)
    hands.work()
    assert len(hands.rows()) == counted.counts.chunks > 5
    assert hands.loaded() == texts

    static = {"type": "static", "static": {"max_chunk_size_tokens": 5, "chunk_overlap_tokens": 0}}
    again = hands.texts(texts, chunking=static)
    hands.work()
    assert hands.ingestion(again).counts.loaded == 2, "also the one that is cut as before"
    assert len(hands.rows()) > counted.counts.chunks
    assert hands.loaded() == texts


def test_files_of_every_kind_and_a_bad_one(hands: IngestionHands) -> None:
    contents = {"a.md": b"# Title\n\ntext", "b.txt": b"", "c.txt": b"\x00\x01\x02" * 50}
    made = hands.ingest({"files": [*(hands.file(name, data) for name, data in contents.items()), "file-unknown"]})
    hands.work()
    ingestion, outcomes = hands.ingestion(made), hands.outcomes(made)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.counts.failed) == (S.COMPLETED, 1, 3)
    assert [outcomes[name].code for name in contents] == [None, "empty_document", "binary_file"]
    assert len(outcomes) == 4
    nothing_is_left(hands, made)


def test_upsert_never_skips_and_sync_deletes_what_vanished(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second"})
    hands.work()
    upsert = hands.texts({"a": "first"}, mode="upsert")
    hands.work()
    assert (hands.ingestion(upsert).counts.loaded, set(hands.loaded())) == (1, {"a", "b"})
    sync = hands.texts({"a": "first", "c": "third"}, mode="sync")
    hands.work()
    counts = hands.ingestion(sync).counts
    assert (counts.unchanged, counts.loaded, counts.deleted) == (1, 1, 1)
    assert set(hands.loaded()) == {"a", "c"}


@pytest.mark.parametrize(
    ("data", "code", "failed", "left"),
    [
        (b"\n\n", "nothing_listed", 0, {"a", "b"}),
        (b'{"id": "a", "text": "first"}\n{"id": "b", "te\n', None, 1, {"a", "b"}),
        (b'{"id": "a", "text": 5}\n{"id": "c", "text": "x"}\n{"id": "c", "text": "y"}', None, 2, {"a", "c"}),
    ],
    ids=["without documents", "with a hole", "with documents that cannot be used"],
)
def test_a_sync_of_a_file(hands: IngestionHands, data: bytes, code: str | None, failed: int, left: set[str]) -> None:
    hands.texts({"a": "first", "b": "second"})
    hands.work()
    sync = hands.ingest({"files": [hands.file("books.jsonl", data)]}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(sync)
    assert ((ingestion.error and ingestion.error.code), ingestion.counts.failed) == (code, failed)
    assert set(hands.loaded()) == left


def test_another_revision_of_the_model_does_not_go_under_the_old_name(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first", "b": LONG})
    hands.until(lambda: at(hands, made, Stage.EMBED), model=False)
    hands.work_model(limit=1)
    hands.serve_revision("r2")
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.cancelled) == (S.FAILED, 2)
    assert ingestion.error is not None
    assert ingestion.error.code == "model_changed"
    assert hands.loaded() == {}
    nothing_is_left(hands, made)


def test_a_sink_that_refuses_fails_the_ingestion_and_what_was_loaded_stays(hands: IngestionHands) -> None:
    hands.texts({"a": "first"})
    hands.work()
    other = hands.texts({"b": "second"}, dimensions=2)
    hands.work()
    ingestion = hands.ingestion(other)
    assert ingestion.status is S.FAILED
    assert ingestion.error is not None
    assert ingestion.error.code == "sink_dimension_mismatch"
    assert (ingestion.counts.documents, ingestion.counts.chunks, set(hands.loaded())) == (0, 0, {"a"})
    nothing_is_left(hands, other)


def test_it_waits_for_its_model(hands: IngestionHands) -> None:
    unheard_of = hands.texts({"a": "first"}, model="other/model")
    files = hands.storage.read("models/r1/tokenizer.json")
    hands.storage.delete("models/r1/tokenizer.json")
    made = [unheard_of, *(hands.texts({f"d{n}": "first"}) for n in range(2))]
    hands.work()
    assert {(hands.ingestion(each).status, hands.ingestion(each).waiting_for) for each in made} == {(S.QUEUED, "model")}
    hands.storage.write("models/r1/tokenizer.json", files)
    hands.wait(2)
    hands.work()
    assert [hands.ingestion(each).status for each in made] == [S.QUEUED, S.COMPLETED, S.COMPLETED]


@pytest.mark.parametrize("named", [True, False], ids=["a named dataset", "a dataset of its own"])
def test_an_ingestion_that_is_deleted_leaves_its_dataset_if_that_has_a_name(hands: IngestionHands, named: bool) -> None:
    sink = {"type": "dataset", "dataset": DATASET} if named else {"type": "dataset"}
    made, other = hands.texts({"a": "first", "b": ""}, sink=sink), hands.texts({"c": "third"}, sink=sink)
    hands.work()
    assert hands.move(delete_job, hands.ingestion(made))
    hands.step()
    hands.sweep()
    assert hands.ledger.run(read_ingestion(made)) is None
    assert list(hands.storage.stored(f"anonymous/{made}")) == []
    assert [key for key in hands.ledger.client.scan_iter("eq:*") if made.encode() in key] == []
    assert hands.ledger.run(list_jobs(IngestionRecord, OPEN, limit=10))[0] == []
    assert bool(hands.rows(dataset=DATASET if named else made)) is named
    assert hands.outcomes(other)["c"].status is LOADED
    assert hands.rows(dataset=DATASET if named else other)


def test_other_metadata_of_the_same_text_is_written(hands: IngestionHands) -> None:
    def run(file: bytes, line: bytes, inline: str) -> int:
        files = [
            hands.file("a.txt", b"text"),
            hands.file("b.jsonl", b'{"id": "b", "text": "text", "title": "%s"}' % line),
        ]
        listed = [{"id": files[0], "metadata": {"url": file.decode()}}, {"id": files[1]}]
        sent = hands.ingest({"files": listed, "fields": {"metadata": ["title"]}})
        hands.documents([{"id": "c", "text": "text", "metadata": {"team": inline}}])
        hands.work()
        return hands.ingestion(sent).counts.unchanged

    assert run(b"one", b"one", "one") == 0
    assert run(b"one", b"one", "one") == 2
    assert run(b"two", b"one", "one") == 1
    assert run(b"two", b"two", "two") == 1
    kept = {row["doc_id"]: row["metadata"] for row in hands.rows()}
    assert kept == {"a.txt": '{"url":"two"}', "b": '{"title":"two"}', "c": '{"team":"two"}'}


def test_a_file_that_is_not_sent_is_unchanged_or_fails_alone_and_deletes_nothing(hands: IngestionHands) -> None:
    table = b"id,text\n1,one\n"
    contents = {"a.txt": b"a", "b.txt": b"b", "t.csv": table, "z.txt": b"z"}
    hands.ingest({"files": [hands.file(name, data) for name, data in contents.items()]})
    hands.work()
    before = hands.loaded()

    def run(files: Mapping[str, bytes], **asked: Any) -> tuple[int, set[str], int]:
        named = [{"sha256": sha256(data).hexdigest(), "document_id": name} for name, data in files.items()]
        made = hands.ingest({"files": named}, **asked)
        hands.work()
        ingestion, failed = hands.ingestion(made), hands.failed(made)
        assert ingestion.status is (S.FAILED if len(failed) == len(files) else S.COMPLETED)
        assert {(line.code, line.stage) for line in failed} <= {("not_sent", "reading"), ("not_sent", "listing")}
        return ingestion.counts.unchanged, {line.id for line in failed}, ingestion.counts.deleted

    both = {"a.txt": b"a", "b.txt": b"b"}
    assert run(both) == (2, set(), 0)
    assert run(both, dry_run=True) == (2, set(), 0)
    assert run({"a.txt": b"a", "b.txt": b"other", "new.txt": b"a"}) == (1, {"b.txt", "new.txt"}, 0)
    assert run(both, mode="upsert") == (0, {"a.txt", "b.txt"}, 0)
    assert run(both, chunking={"type": "none"}) == (0, {"a.txt", "b.txt"}, 0)
    assert run({**both, "t.csv": table}, mode="sync") == (2, {"t.csv"}, 0), "nobody knows which records it has"
    assert hands.loaded() == before
    assert run({"a.txt": b"a", "b.txt": b"other"}, mode="sync") == (1, {"b.txt"}, 2)
    assert hands.loaded() == {"a.txt": "a", "b.txt": "b"}


@pytest.mark.parametrize("stage", [Stage.PARSE, Stage.EMBED])
def test_a_dataset_that_is_deleted_under_an_ingestion_ends_it(hands: IngestionHands, stage: Stage) -> None:
    hands.texts({"a": "first"})
    hands.work()
    made = hands.texts({"a": "first", "b": "second"})
    hands.until(lambda: at(hands, made, stage), model=False)
    assert hands.datasets.delete("anonymous", DATASET)
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.error is not None
    assert (ingestion.status, ingestion.error.code, ingestion.resumable) == (S.FAILED, "dataset_deleted", False)
    assert hands.rows() == []

    hands.texts({"a": "first", "b": "second"})
    hands.work()
    assert set(hands.loaded()) == {"a", "b"}


def test_a_page_that_kills_every_worker_fails_alone(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    made = hands.ingest({"files": [hands.file("a.jsonl", JSONL[: JSONL.index(b'{"id": "d3"')])]})
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
    assert [outcomes[name].status for name in names] == [FAILED, LOADED, LOADED]
    assert (outcomes[names[0]].code, outcomes[names[0]].part) == ("worker_lost", "*")
    assert hands.ingestion(made).status is S.COMPLETED

    hands.deadly_stages.clear()
    assert hands.retry(made)
    hands.work()
    assert (hands.ingestion(made).counts.loaded, hands.ingestion(made).counts.failed) == (3, 0)
    assert hands.loaded() == {f"d{n}": f"text number {n}" for n in range(3)}


def test_a_warning_is_told_as_long_as_the_content_is_the_same(hands: IngestionHands) -> None:
    texts = {"scan": "some of its pages", "whole": "all of it"}
    warning = DocumentWarning("pages_without_text", "2 of its pages have no text. Run OCR first.", (2, 9))
    first = hands.texts(texts)
    hands.until(lambda: at(hands, first, Stage.EMBED), model=False)
    [page] = hands.ingestion(first).pages.values()
    scan, whole = read_documents(hands.storage, page.obj)
    write_documents(hands.storage, page.obj, [scan.warned([warning]), whole])

    def told(ingestion_id: str) -> tuple[int, list[tuple[DocumentStatus, tuple[DocumentWarning, ...]]]]:
        hands.work()
        outcomes = hands.outcomes(ingestion_id)
        return hands.ingestion(ingestion_id).counts.warned, [
            (outcomes[name].status, tuple(outcomes[name].warnings)) for name in ("scan", "whole")
        ]

    assert told(first) == (1, [(LOADED, (warning,)), (LOADED, ())])
    for mode in ("skip_unchanged", "sync"):
        assert told(hands.texts(texts, mode=mode)) == (1, [(UNCHANGED, (warning,)), (UNCHANGED, ())])
    assert told(hands.texts(texts, dry_run=True))[0] == 1
    for status in (LOADED, UNCHANGED):
        assert told(hands.texts(texts | {"scan": "now whole"})) == (0, [(status, ()), (UNCHANGED, ())])


@pytest.mark.parametrize(("field", "text"), [("s", f'{{"{SECRET}'), ("o1", f'{{"{SECRET}": 1}}'), ("created", "soon")])
def test_an_odd_ingestion_holds_up_no_other_one(
    hands: IngestionHands, field: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, good = hands.texts({"a": SECRET}), hands.texts({"b": "text"})
    key, redis = record_key("ingestion", made), hands.ledger.client
    before: Any = redis.hgetall(key)
    redis.hset(key, field, text)
    with caplog.at_level(logging.WARNING):
        hands.work()
    assert hands.ingestion(good).status is S.COMPLETED
    assert sum(made in record.getMessage() for record in caplog.records) == 1, "not in every round"
    assert SECRET not in caplog.text
    redis.hdel(key, field)
    redis.hset(key, mapping=before)


@pytest.mark.parametrize("pages_of_a_listing", [1, 16])
def test_the_second_document_with_an_id_fails_on_every_run(hands: IngestionHands, pages_of_a_listing: int) -> None:
    hands.at_pace(page=PageLimits(records=1), listing_pages=pages_of_a_listing)
    file_id = hands.file("a.jsonl", SAME_ID)
    for run in range(3):
        made = hands.ingest({"files": [file_id]})
        hands.work()
        counts = hands.ingestion(made).counts
        assert (counts.loaded, counts.unchanged, counts.failed) == ((2, 0, 1) if run == 0 else (0, 2, 1))
        (failed,) = hands.failed(made)
        assert (failed.code, failed.uri) == ("duplicate_document_id", f"file:{file_id}/a.jsonl#3")
        assert f"file:{file_id}/a.jsonl#1" in (failed.message or "")
        assert hands.loaded() == {"x": "version A", "y": "of y"}


def csv(hands: IngestionHands, name: str, *texts: str) -> dict[str, list[str]]:
    lines = [f"{number},{text}" for number, text in enumerate(texts, 1)]
    return {"files": [hands.file(name, "\n".join(["id,text", *lines]).encode())]}


def test_records_of_another_file_do_not_take_the_place_of_those_there(hands: IngestionHands) -> None:
    def run(source: Mapping[str, Any], **asked: str) -> tuple[int, int, int, int]:
        made = hands.ingest(source, **asked)
        hands.work()
        for failed in hands.failed(made):
            assert (failed.id, failed.code, failed.stage) == ("1", "id_conflict", "loading")
            assert "customers.csv#1'" in (failed.message or "")
        counts = hands.ingestion(made).counts
        return counts.failed, counts.unchanged, counts.loaded, counts.replaced

    assert run(csv(hands, "customers.csv", "Ann", "Bob")) == (0, 0, 2, 0)
    assert run(csv(hands, "products.csv", "pen", "Bob", "ink")) == (1, 1, 1, 0)
    assert hands.loaded() == {"1": "Ann", "2": "Bob", "3": "ink"}
    assert run(csv(hands, "products.csv", "pen"), mode="upsert", on_conflict="fail") == (1, 0, 0, 0)
    assert run(csv(hands, "customers.csv", "Anna", "Bob")) == (0, 1, 1, 1)
    for n, asked in enumerate([{"on_conflict": "replace"}, {"mode": "upsert"}, {"mode": "sync"}]):
        assert run(csv(hands, f"products{n}.csv", f"pen {n}"), **asked) == (0, 0, 1, 1)
        assert hands.loaded()["1"] == f"pen {n}"
