"""An ingestion from its source to its sink, through every state, with workers by hand."""

from pathlib import Path

import numpy as np
import pytest

from tasks.errors import StorageUnavailable
from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError
from tasks.ledger.client import Ledger
from tasks.ledger.give_back import give_back
from tasks.ledger.redis_keys import DOCUMENTS, JOBS_CHANNEL
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionRecord, IngestionStatus, read_ingestion
from tasks.records.jobs import JobError, JobStatus, Stage, list_jobs
from tasks.records.moves import Move, cancel_job, delete_job
from tasks.records.store import OPEN
from tasks.storage.model_files import read_tokenizer
from tasks.storage.storage import Storage
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import HOUR_MS
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands, nothing_is_left
from tests.integration.ledger.listener import Listener

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


def test_no_step_is_left_to_the_clock(hands: IngestionHands) -> None:
    made = hands.texts({f"d{n}": f"text {n}" for n in range(30)}, mode="sync")
    driver = hands.driver
    with Listener(hands.ledger.client, JOBS_CHANNEL) as bell:
        for _ in range(100):
            driver()
            hands.work_documents()
            hands.work_model()
            if hands.ingestion(made).status.terminal:
                break
            assert bell.messages(), f"{hands.ingestion(made)} waits for the clock"
    assert hands.ingestion(made).status is S.COMPLETED


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


def test_the_second_run_does_nothing_and_a_changed_document_alone_is_done_again(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second", "c": LONG})
    hands.work()
    before = hands.rows()
    again = hands.texts({"a": "first", "b": "second", "c": LONG})
    hands.work()
    ingestion = hands.ingestion(again)
    assert (ingestion.status, ingestion.counts.unchanged, ingestion.counts.chunks) == (S.COMPLETED, 3, 0)
    assert hands.rows() == before
    changed = hands.texts({"a": "first", "b": "other", "c": "short now"})
    hands.work()
    counts = hands.ingestion(changed).counts
    assert (counts.unchanged, counts.loaded, counts.chunks) == (1, 2, 2)
    assert hands.loaded() == {"a": "first", "b": "other", "c": "short now"}


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


@pytest.mark.parametrize("newer", ["skip_unchanged", "sync"])
@pytest.mark.parametrize("closed", [True, False], ids=["it has ended", "its page is not closed"])
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


@pytest.mark.parametrize("mode", ["skip_unchanged", "upsert", "sync"])
@pytest.mark.parametrize("text", ["", " \n", None])
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


def test_an_emptied_file_loses_its_chunks_and_gets_them_again(hands: IngestionHands) -> None:
    for name in ("a.txt", "b.md", "c.html"):
        for data, left in ((b"<p>a secret", 1), (b"", 0), (b"<p>a secret", 1), (b" \n ", int(name == "c.html"))):
            made = hands.ingest({"files": [hands.file(name, data)]})
            hands.work()
            assert len(hands.rows()) == left, (name, data)
            assert hands.ingestion(made).counts.emptied == (left == 0)
        made = hands.ingest({"files": [hands.file(name, b"")]})
        hands.work()


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


def test_an_ingestion_that_takes_longer_than_it_is_kept_afterwards(redis_url: str, tmp_path: Path) -> None:
    ledger = Ledger.connect(redis_url)
    hands = IngestionHands(ledger, tmp_path / "storage", batch_ttl_s=0.001)
    made = hands.texts({"a": "first", "b": LONG}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.counts.loaded, ingestion.error) == (S.COMPLETED, 2, None)
    nothing_is_left(hands, made)
    ledger.close()


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


def test_the_same_id_in_two_pages(hands: IngestionHands) -> None:
    files = [hands.file(name, b'{"id": "x", "text": "%s"}' % name.encode()) for name in ("a.jsonl", "b.jsonl")]
    made = hands.ingest({"files": files}, mode="upsert")
    hands.work()
    counts = hands.ingestion(made).counts
    assert (counts.documents, counts.loaded, counts.failed) == (2, 1, 1)


@pytest.mark.parametrize("stage", [None, Stage.PARSE, Stage.EMBED, Stage.LOAD])
def test_cancelled_in_every_stage(hands: IngestionHands, stage: Stage | None) -> None:
    made = hands.texts({"a": "first", "b": LONG})
    if stage is not None:
        hands.until(
            lambda: [p.at for p in hands.ingestion(made).pages.values()] == [stage], model=stage is not Stage.EMBED
        )
    if stage is Stage.LOAD:
        hands.meanwhile = lambda: hands.move(cancel_job, hands.ingestion(made))
        hands.work_documents()
    else:
        hands.move(cancel_job, hands.ingestion(made))
    assert hands.ingestion(made).status is S.CANCELLING
    hands.work()
    ingestion = hands.ingestion(made)
    counts = ingestion.counts
    assert ingestion.status is S.CANCELLED
    assert counts.loaded + counts.cancelled == counts.documents
    assert set(hands.loaded()) == ({"a", "b"} if stage is Stage.LOAD else set())
    nothing_is_left(hands, made)


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


def test_a_silent_storage_takes_little_of_the_drivers_time_however_many_wait_for_it(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look_s, began = 0, 6, hands.clock_s

    def silent(_: Storage, __: str) -> bytes:
        nonlocal looked
        looked += 1
        hands.clock_s += look_s
        raise StorageUnavailable("It does not answer.")

    monkeypatch.setattr("tasks.ingestion.chunking.count_tokens.read_tokenizer", silent)
    made = [hands.texts({f"d{n}": "first"}) for n in range(5)]
    for _ in range(400):
        hands.step()
    assert looked > 2
    assert looked * look_s <= 0.25 * (hands.clock_s - began)
    assert {hands.ingestion(each).waiting_for for each in made} == {"storage"}
    monkeypatch.undo()
    hands.wait(30)
    hands.work()
    assert {hands.ingestion(each).status for each in made} == {S.COMPLETED}


def test_a_model_worker_that_dies_of_a_chunk(hands: IngestionHands) -> None:
    hands.deadly.add("deadly")
    made = hands.texts({"a": "first", "b": "deadly"})
    hands.work()
    assert hands.outcomes(made)["b"].code == "worker_lost"
    assert hands.outcomes(made)["a"].status is DocumentStatus.LOADED


def test_credit_bounds_what_is_begun(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=5))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(100))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.within(credit=12)
    for _ in range(20):
        hands.step()
        hands.work_documents()
        ingestion = hands.ingestion(made)
        assert sum(page.chunks for page in ingestion.pages.values()) <= 12
    assert ingestion.listing_complete
    assert (ingestion.counts.documents, len(ingestion.pages)) == (100, 20)
    assert sum(bool(page.chunks) for page in ingestion.pages.values()) == 2
    assert ingestion.counts.loaded == 0
    hands.work()
    assert hands.ingestion(made).counts.loaded == 100
    assert len(hands.rows()) == 100


@pytest.mark.parametrize("pages_of_a_listing", [1, 16])
@pytest.mark.parametrize("enough_s", [-1, 30])
def test_a_page_that_takes_long_is_divided(hands: IngestionHands, pages_of_a_listing: int, enough_s: float) -> None:
    hands.at_pace(page=PageLimits(records=4), listing_pages=pages_of_a_listing, parsing_s=enough_s)
    lines = [b'{"id": "d%d", "text": "text %d"}' % (n, n) for n in range(10)]
    lines[3:3] = [b"no JSON", b'{"id": "d1", "text": "again"}', b'{"id": "empty", "text": ""}']
    made = hands.ingest({"files": [hands.file("a.jsonl", b"\n".join(lines))]})
    while not hands.ingestion(made).status.terminal:
        hands.step()
        hands.work_documents(limit=1)
        hands.work_model()
        counts = hands.ingestion(made).counts
        assert counts.loaded + counts.failed <= counts.documents <= 13
    counts = hands.ingestion(made).counts
    assert (counts.documents, counts.loaded, counts.failed, counts.chunks_loaded) == (13, 10, 3, 10)
    assert counts.bytes == counts.bytes_done
    assert hands.ingestion(made).record.done_pages == (13 if enough_s < 0 else 4)
    assert sorted(str(failed.code) for failed in hands.failed(made)) == [
        "duplicate_document_id",
        "empty_document",
        "malformed_record",
    ]
    one_of_two = {"d1": hands.loaded()["d1"]}
    assert one_of_two in ({"d1": "text 1"}, {"d1": "again"})
    assert hands.loaded() == {f"d{n}": f"text {n}" for n in range(10)} | one_of_two
    nothing_is_left(hands, made)


def test_a_divided_page_goes_on_with_an_ingestion_that_had_failed(hands: IngestionHands) -> None:
    hands.at_pace(parsing_s=-1)
    made = hands.texts({f"d{n}": f"text {n}" for n in range(5)})
    hands.until(lambda: hands.ingestion(made).record.next_page > 2, model=False)
    move = Move(hands.ingestion(made))
    move.stop(JobStatus.FAILED, JobError("worker_lost", "No more."))
    assert hands.ledger.run(move.operation()) is not None
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).resumable) == (S.FAILED, True)
    assert hands.retry(made)
    hands.work()
    counts = hands.ingestion(made).counts
    assert (hands.ingestion(made).status, counts.documents, counts.loaded) == (S.COMPLETED, 5, 5)
    assert (counts.chunks, counts.chunks_loaded) == (5, 5)
    nothing_is_left(hands, made)


def test_its_work_goes_a_minute_after_its_end_and_the_rest_with_its_record(hands: IngestionHands) -> None:
    made = hands.texts({"a": "first"}, sink={"type": "dataset"})
    hands.work()
    folder = f"anonymous/{made}"
    whole = [stored.name for stored in hands.storage.stored(folder)]
    hands.sweep(after_s=30)
    assert [stored.name for stored in hands.storage.stored(folder)] == whole
    hands.storage.write("anonymous/ing_gone/1.loaded.x", b"x")
    hands.sweep()
    nothing_is_left(hands, made)
    assert hands.outcomes(made)["a"].status is DocumentStatus.LOADED

    hands.storage.write(f"{folder}/1.loaded.zombie", b"x")  # by a worker that was taken for dead
    assert hands.rows(dataset=made)
    hands.wait(HOUR_MS / 1000)
    hands.sweep()  # the record goes, and with it what it led to
    assert hands.ledger.run(read_ingestion(made)) is None
    assert list(hands.storage.stored(folder)) == []
    assert list(hands.storage.stored("anonymous/ing_gone")) != [], "no record has named it"
    assert hands.rows(dataset=made) == []


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
