"""What makes a document another one, and how much of it there may be."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest

from tasks.ingestion.parsing import extracted
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands


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


def test_a_part_of_the_documents_with_other_vectors_is_refused_and_mixes_nothing(hands: IngestionHands) -> None:
    hands.texts({"a": "first", "b": "second"})
    hands.work()
    before = hands.rows()

    made = hands.texts({"b": "second", "c": "third"}, normalize=False)  # as another model would be
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.status is IngestionStatus.FAILED
    assert ingestion.error is not None
    assert ingestion.error.code == "sink_model_mismatch"
    assert "(revision r1), 4 dimensions, normalized, and these would be of" in ingestion.error.message
    assert hands.rows() == before
    assert not ingestion.resumable

    hands.datasets.delete("anonymous", DATASET)
    hands.texts({"b": "second", "c": "third"}, normalize=False)
    hands.work()
    assert set(hands.loaded()) == {"b", "c"}


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
