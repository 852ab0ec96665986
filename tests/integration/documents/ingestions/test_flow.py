"""An ingestion from its source to its sink, through every state, with workers by hand."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from tasks.document_error import DocumentWarning
from tasks.ingestion.parsing import extracted
from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError
from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS, record_key
from tasks.records.batches import BatchStatus
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.records.ingestions import IngestionRecord, IngestionStatus, read_ingestion
from tasks.records.jobs import Stage, list_jobs
from tasks.records.moves import delete_job
from tasks.records.store import OPEN
from tasks.storage.model_files import read_tokenizer
from tasks.storage.storage import Storage
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import request
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands, nothing_is_left

S = IngestionStatus
LONG = " ".join(f"word{n}" for n in range(700))
JSONL = b"".join(b'{"id": "d%d", "text": "text number %d", "year": %d}\n' % (n, n, n) for n in range(30))


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
    assert {outcome.status for outcome in hands.outcomes(made).values()} == {DocumentStatus.LOADED}
    nothing_is_left(hands, made)


def test_a_long_document_becomes_chunks_that_cover_it(hands: IngestionHands) -> None:
    made = hands.texts({"long": LONG, "short": "one"})
    hands.work()
    assert hands.ingestion(made).status is S.COMPLETED
    assert len([row for row in hands.rows() if row["doc_id"] == "long"]) > 4
    assert hands.loaded() == {"long": LONG, "short": "one"}


def test_files_of_every_kind_and_a_bad_one(hands: IngestionHands) -> None:
    files = [
        hands.file("a.md", b"# Title\n\ntext"),
        hands.file("b.txt", b""),
        hands.file("c.txt", b"\x00\x01\x02" * 50),
    ]
    made = hands.ingest({"files": [*files, "file-unknown"]})
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.counts.failed) == (S.COMPLETED, 1, 3)
    outcomes = hands.outcomes(made)
    assert outcomes["a.md"].status is DocumentStatus.LOADED
    assert (outcomes["b.txt"].code, outcomes["c.txt"].code) == ("empty_document", "binary_file")
    assert len(outcomes) == 4
    nothing_is_left(hands, made)


def test_another_chunk_size_does_everything_again(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": LONG})
    hands.work()
    static = {"type": "static", "static": {"max_chunk_size_tokens": 5, "chunk_overlap_tokens": 0}}
    again = hands.texts({"a": "first", "b": LONG}, chunking=static)
    hands.work()
    assert hands.ingestion(again).counts.loaded == 2
    assert hands.loaded() == {"a": "first", "b": LONG}


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


@pytest.mark.parametrize(("newer", "closed"), [("skip_unchanged", True), ("sync", False)])
def test_an_older_sync_that_ends_later_leaves_what_a_newer_run_has_seen(
    hands: IngestionHands, newer: str, *, closed: bool
) -> None:
    hands.texts({"a": "first", "b": "second", "c": "third"})
    hands.work()
    older = hands.texts({"a": "first"}, mode="sync")
    hands.until(lambda: hands.ingestion(older).status is S.FINALIZING)
    hands.step()
    finish = hands.claim(DOCUMENTS, 1)
    assert len(finish.pieces) == 1
    made = hands.texts({"a": "first", "b": "second"}, mode=newer)
    if closed:
        hands.work()
    else:
        hands.until(lambda: [p.at for p in hands.ingestion(made).pages.values()] == [Stage.LOAD])
        assert hands.work_documents() == 1
    hands.ledger.run(give_back(DOCUMENTS, finish.token))
    hands.work()
    assert (
        hands.ingestion(older).status,
        hands.ingestion(older).counts.deleted + hands.ingestion(made).counts.deleted,
    ) == (S.COMPLETED, 1)
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.unchanged) == (S.COMPLETED, 2)
    assert set(hands.loaded()) == {"a", "b"}


def test_a_source_without_documents_deletes_nothing(hands: IngestionHands) -> None:
    hands.texts({"a": "first"})
    hands.work()
    empty = hands.ingest({"files": [hands.file("books.jsonl", b"\n\n")]}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(empty)
    assert ingestion.status is S.FAILED
    assert ingestion.error is not None
    assert ingestion.error.code == "nothing_listed"
    assert set(hands.loaded()) == {"a"}


def test_an_upload_with_a_hole_deletes_nothing(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second"})
    hands.work()
    file_id = hands.file("books.jsonl", b'{"id": "a", "text": "first"}\n{"id": "b", "te\n')
    sync = hands.ingest({"files": [file_id]}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(sync)
    counts = ingestion.counts
    assert (ingestion.status, counts.unchanged, counts.failed, counts.deleted) == (S.COMPLETED, 1, 1, 0)
    assert set(hands.loaded()) == {"a", "b"}


def test_a_document_that_cannot_be_read_is_no_hole_in_the_listing(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second", "c": "third"})
    hands.work()
    lines = [
        b'{"id": "a", "text": "first"}',
        b'{"id": "b", "text": 5}',
        b'{"id": "a", "text": "again"}',
        b'{"id": "d", "text": "x", "metadata": {"page": "\\u0000"}}',
    ]
    sync = hands.ingest({"files": [hands.file("books.jsonl", b"\n".join(lines))]}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(sync)
    assert (ingestion.status, ingestion.counts.failed, ingestion.counts.deleted) == (S.COMPLETED, 2, 1)
    assert set(hands.loaded()) == {"a", "b", "d"}  # of b the earlier version, which is better than none


@pytest.mark.parametrize(("mode", "text"), [("skip_unchanged", ""), ("upsert", " \n"), ("sync", None)])
def test_an_emptied_document_loses_its_chunks(hands: IngestionHands, mode: str, text: str | None) -> None:
    hands.documents([{"id": "a", "text": "first"}, {"id": "b", "text": "secret"}])
    hands.work()
    given: list[dict[str, str | None]] = [
        {"id": "b", "text": text},
        {"id": "a", "text": "first"},
        {"id": "never", "text": text},
    ]
    for run in range(2):
        emptied = hands.documents(given, mode=mode)
        hands.work()
        counts = hands.ingestion(emptied).counts
        done = mode == "upsert" or run == 0
        assert (counts.failed, counts.chunks) == (1, mode == "upsert")
        assert (hands.outcomes(emptied)["b"].status == DocumentStatus.LOADED) is done
        assert hands.outcomes(emptied)["b"].code == ("emptied" if done else None)
        assert hands.outcomes(emptied)["never"].code == "empty_document"
        assert hands.loaded() == {"a": "first"}
        nothing_is_left(hands, emptied)


@pytest.mark.parametrize("stage", [None, Stage.EMBED])
def test_another_revision_of_the_model_does_not_go_under_the_old_name(
    hands: IngestionHands, stage: Stage | None
) -> None:
    made = hands.texts({"a": "first", "b": LONG})
    hands.step()
    if stage is not None:
        hands.until(lambda: [p.at for p in hands.ingestion(made).pages.values()] == [stage], model=False)
        hands.work_model(limit=1)
    hands.serve_revision("r2")
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.cancelled) == (S.FAILED, 2)
    assert ingestion.error is not None
    assert ingestion.error.code == "model_changed"
    assert hands.loaded() == {}
    nothing_is_left(hands, made)


def test_a_dry_run_counts_and_loads_nothing(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first", "b": LONG}, dry_run=True)
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded) == (S.COMPLETED, 2)
    assert ingestion.counts.chunks > 5
    assert ingestion.counts.chunk_tokens > 40
    assert ingestion.estimate_s is not None
    assert ingestion.counts.tokens == ingestion.counts.chunks_loaded == 0
    assert hands.rows() == []
    assert {each.status for each in hands.outcomes(made).values()} == {DocumentStatus.COUNTED}
    nothing_is_left(hands, made)


def test_all_failed_is_failed(hands: IngestionHands) -> None:
    hands.bad["bad"] = TextError("encoding_failed", "No.")
    made = hands.texts({"b": "bad"})
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).error) == (S.FAILED, None)


def test_a_source_outside_of_the_roots_fails_the_ingestion(hands: IngestionHands) -> None:
    made = hands.ingest({"urls": ["/etc/*.conf"]})
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.status is S.FAILED
    assert ingestion.error is not None
    assert ingestion.error.message
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
    made = hands.texts({"a": "first"}, model="other/model")
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).waiting_for) == (S.QUEUED, "model")


def test_files_of_a_model_that_are_missing_are_looked_for_now_and_then(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def read(storage: Storage, revision: str) -> bytes:
        nonlocal looked
        looked += 1
        return read_tokenizer(storage, revision)

    monkeypatch.setattr("tasks.ingestion.chunking.count_tokens.read_tokenizer", read)
    files = hands.storage.read("models/r1/tokenizer.json")
    hands.storage.delete("models/r1/tokenizer.json")
    made = [hands.texts({f"d{n}": "first"}) for n in range(3)]
    for _ in range(40):  # ten seconds
        hands.step()
    assert 2 <= looked <= 6
    assert {hands.ingestion(each).waiting_for for each in made} == {"model"}
    hands.storage.write("models/r1/tokenizer.json", files)
    hands.wait(2)
    hands.work()
    assert {hands.ingestion(each).status for each in made} == {S.COMPLETED}


def test_credit_bounds_what_is_begun(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=5))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(40))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.within(credit=12)
    for _ in range(10):
        hands.step()
        hands.work_documents()
        ingestion = hands.ingestion(made)
        assert sum(page.chunks for page in ingestion.pages.values()) <= 12
    assert ingestion.listing_complete
    assert (ingestion.counts.documents, len(ingestion.pages)) == (40, 8)
    assert sum(bool(page.chunks) for page in ingestion.pages.values()) == 2
    assert ingestion.counts.loaded == 0
    hands.work()
    assert hands.ingestion(made).counts.loaded == 40
    assert len(hands.rows()) == 40


@pytest.mark.parametrize("named", [True, False], ids=["a named dataset", "a dataset of its own"])
def test_an_ingestion_that_is_deleted_leaves_its_dataset_if_that_has_a_name(hands: IngestionHands, named: bool) -> None:
    sink = {"type": "dataset", "dataset": DATASET} if named else {"type": "dataset"}
    made = hands.texts({"a": "first", "b": ""}, sink=sink)
    other = hands.texts({"c": "third"}, sink=sink)
    hands.work()
    dataset = DATASET if named else made
    assert hands.rows(dataset=dataset)
    assert list(hands.storage.stored(f"anonymous/{made}"))
    assert hands.move(delete_job, hands.ingestion(made))
    assert hands.ingestion(made).deleted

    hands.step()
    hands.sweep()

    assert hands.ledger.run(read_ingestion(made)) is None
    assert list(hands.storage.stored(f"anonymous/{made}")) == []
    assert [key for key in hands.ledger.client.scan_iter("eq:*") if made.encode() in key] == []
    assert hands.ledger.run(list_jobs(IngestionRecord, OPEN, limit=10))[0] == []
    assert bool(hands.rows(dataset=dataset)) is named
    assert hands.outcomes(other)["c"].status is DocumentStatus.LOADED
    assert hands.rows(dataset=DATASET if named else other)


def test_a_record_has_no_more_text_than_a_file_may_have(hands: IngestionHands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracted, "MAX_TEXT_CHARS", 100)
    made = hands.texts({"a": "x " * 51, "b": "x " * 50})
    hands.work()
    failed = hands.outcomes(made)["a"]
    assert (failed.status, failed.stage, failed.code) == (DocumentStatus.FAILED, "parsing", "document_too_large")
    assert set(hands.loaded()) == {"b"}


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
    sent = [
        hands.file(name, data) for name, data in (("a.txt", b"a"), ("b.txt", b"b"), ("t.csv", table), ("z.txt", b"z"))
    ]
    hands.ingest({"files": sent})
    hands.work()
    before = hands.loaded()

    def run(files: Mapping[str, bytes], **asked: Any) -> tuple[int, set[str], int]:
        named = [{"sha256": sha256(data).hexdigest(), "document_id": name} for name, data in files.items()]
        made = hands.ingest({"files": named}, **asked)
        hands.work()
        ingestion = hands.ingestion(made)
        failed = hands.failed(made)
        all_failed = len(failed) == len(files)
        assert ingestion.status is (IngestionStatus.FAILED if all_failed else IngestionStatus.COMPLETED)
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


@pytest.mark.parametrize("when", ["listed", "parsed"])
def test_a_dataset_that_is_deleted_under_an_ingestion_ends_it(when: str, hands: IngestionHands) -> None:
    hands.texts({"a": "first"})
    hands.work()
    made = hands.texts({"a": "first", "b": "second"})

    def reached() -> bool:
        stages = [page.at for page in hands.ingestion(made).pages.values()]
        return stages != [] and (when == "listed" or stages != [Stage.PARSE])

    hands.until(reached, model=False)
    assert hands.datasets.delete("anonymous", DATASET)
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.error is not None
    assert (ingestion.status, ingestion.error.code) == (IngestionStatus.FAILED, "dataset_deleted")
    assert not ingestion.resumable
    assert hands.rows() == []

    hands.texts({"a": "first", "b": "second"})
    hands.work()
    assert set(hands.loaded()) == {"a", "b"}


DEATHS = 4
"""Of a worker in one and the same stage, until the ledger gives it up."""


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


TEXTS = {"scan": "some of its pages", "whole": "all of it"}
SCANNED = DocumentWarning("pages_without_text", "2 of its pages have no text. Run OCR first.", (2, 9))


def read_in_part(hands: IngestionHands, ingestion_id: str, **warnings: DocumentWarning) -> None:
    """The parser warns of these documents."""
    hands.until(
        lambda: [page.at for page in hands.ingestion(ingestion_id).pages.values()] == [Stage.EMBED], model=False
    )
    [page] = hands.ingestion(ingestion_id).pages.values()
    lines = list(read_documents(hands.storage, page.obj))
    warned = [line.warned([warnings[line.id]]) if line.id in warnings else line for line in lines]
    write_documents(hands.storage, page.obj, warned)


def told(
    hands: IngestionHands, ingestion_id: str
) -> tuple[int, dict[str, tuple[DocumentStatus, tuple[DocumentWarning, ...]]]]:
    """How many documents are counted as warned, and of each its state and warnings."""
    hands.work()
    outcomes: dict[str, Document] = hands.outcomes(ingestion_id)
    said = {name: (line.status, tuple(line.warnings)) for name, line in outcomes.items()}
    return hands.ingestion(ingestion_id).counts.warned, said


def test_a_warning_is_told_as_long_as_the_content_is_the_same(hands: IngestionHands) -> None:
    first = hands.texts(TEXTS)
    read_in_part(hands, first, scan=SCANNED)
    assert told(hands, first) == (
        1,
        {"scan": (DocumentStatus.LOADED, (SCANNED,)), "whole": (DocumentStatus.LOADED, ())},
    )
    for mode in ("skip_unchanged", "sync"):
        same = {"scan": (DocumentStatus.UNCHANGED, (SCANNED,)), "whole": (DocumentStatus.UNCHANGED, ())}
        assert told(hands, hands.texts(TEXTS, mode=mode)) == (1, same)
    assert told(hands, hands.texts(TEXTS, dry_run=True))[0] == 1

    other = {"scan": (DocumentStatus.LOADED, ()), "whole": (DocumentStatus.UNCHANGED, ())}
    assert told(hands, hands.texts(TEXTS | {"scan": "now whole"})) == (0, other)
    assert told(hands, hands.texts(TEXTS | {"scan": "now whole"}))[0] == 0


SECRET = "somebody's words"


@contextmanager
def odd(hands: IngestionHands, kind: str, job_id: str, field: str, text: bytes) -> Iterator[None]:
    """The stored record of a job, changed as a bug might do it; at the end as it was."""
    key = record_key(kind, job_id)
    before = hands.ledger.client.hget(key, field)
    hands.ledger.client.hset(key, field, text)
    yield
    if before is None:
        hands.ledger.client.hdel(key, field)
    else:
        hands.ledger.client.hset(key, field, before)


@pytest.mark.parametrize(
    ("field", "text", "times"),
    [
        ("s", f'{{"{SECRET}', 1),
        ("o1", f'{{"{SECRET}": 1}}', 1),
        ("s", f'{{"record": {{"status": "{SECRET}"}}}}', 0),
    ],
    ids=["unreadable", "senseless", "of another version"],
)
def test_an_odd_ingestion_holds_up_no_other_one(
    hands: IngestionHands, field: str, text: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    made, good = hands.texts({"a": SECRET}), [hands.texts({f"{n}": "text"}) for n in range(3)]
    with odd(hands, "ingestion", made, field, text.encode()), caplog.at_level(logging.WARNING):
        hands.work()
    assert {hands.ingestion(each).status for each in good} == {S.COMPLETED}
    said = [record.getMessage() for record in caplog.records if made in record.getMessage()]
    assert len(said) == times, "not in every round"
    assert SECRET not in caplog.text


def test_an_odd_batch_holds_up_no_other_one(hands: IngestionHands) -> None:
    made, good = (hands.create([request("a", "x")]) for _ in range(2))
    with odd(hands, "batch", made, "created", b"soon"):
        hands.work()
    assert hands.batch(good).status is BatchStatus.COMPLETED
