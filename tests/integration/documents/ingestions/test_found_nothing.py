"""A document of which nothing could be read is not empty: its earlier version stays, whatever the mode."""

import email.message
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tests.document_files import archive, docx, paragraph, pdf
from tests.integration.documents.ingestions.hands import IngestionHands

GOOD = "Refunds are paid within three days."
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"


def page(body: str) -> bytes:
    return f"<html><head><title>t</title></head><body>{body}</body></html>".encode()


def mail(html: str) -> bytes:
    message = email.message.EmailMessage()
    message.set_content(html, subtype="html")
    return message.as_bytes()


def notebook(*cells: Mapping[str, object]) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


CASES = {
    "a.docx": (
        docx(paragraph(GOOD)),
        [
            docx(paragraph(" ")),
            docx('<w:altChunk r:id="x"/>'),  # the text is in a part of its own
            archive({"[Content_Types].xml": "", "word/document.xml": f'<w:document xmlns:w="{STRICT}"/>'}),
            LFS_POINTER,
            pdf([GOOD]),
        ],
    ),
    "a.html": (
        page(f"<p>{GOOD}</p>"),
        [
            page('<div id="root"></div><script>render()</script>'),
            page(f"<template>{GOOD}</template>"),
            page(f"<script>{GOOD}</script><p></p>"),
            b" \n",
        ],
    ),
    "a.ipynb": (
        notebook({"cell_type": "markdown", "source": [GOOD]}),
        [notebook(), notebook({"cell_type": "code", "source": [], "outputs": [{"text": [GOOD]}]})],
    ),
    "a.txt": (
        GOOD.encode(),
        [b"\x1b\x08\x1b", b"\xef\xbb\xbf" + 500 * b"\0"],  # of a terminal; of a file that was not written to its end
    ),
    "a.pdf": (
        pdf([GOOD]),
        [pdf([""]), LFS_POINTER, page("<p>Please log in</p>"), b"404 not found", docx(paragraph("x"))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_without_text_keeps_its_earlier_version(hands: IngestionHands, name: str) -> None:
    good, updates = CASES[name]
    hands.ingest({"files": [hands.file(name, good), hands.file("other.txt", b"other")]})
    hands.work()
    before = hands.loaded()
    assert GOOD in before[name]
    for update, mode in zip(updates, itertools.cycle(["sync", "upsert", "skip_unchanged"]), strict=False):
        made = hands.ingest({"files": [hands.file(name, update), hands.file("other.txt", b"other")]}, mode=mode)
        hands.work()
        outcome, counts = hands.outcomes(made)[name], hands.ingestion(made).counts
        assert hands.loaded() == before, update
        assert (outcome.status, counts.failed, counts.emptied, counts.deleted) == (DocumentStatus.FAILED, 1, 0, 0)
        assert outcome.code in {"no_text", "corrupt_document"}


def test_a_mail_whose_html_part_says_nothing_keeps_its_earlier_version(hands: IngestionHands) -> None:
    hands.ingest({"files": [hands.file("a.eml", mail(f"<p>{GOOD}</p>"))]})
    hands.work()
    before = hands.loaded()
    made = hands.ingest({"files": [hands.file("a.eml", b"\n")]})
    hands.work()
    assert hands.outcomes(made)["a.eml"].status is DocumentStatus.FAILED
    assert hands.loaded() == before


def test_what_is_emptied_is_counted_and_said(hands: IngestionHands) -> None:
    for data in (b"first", b" \n"):
        made = hands.ingest({"files": [hands.file("a.txt", data), hands.file("b.txt", b"other")]})
        hands.work()
    counts, outcome = hands.ingestion(made).counts, hands.outcomes(made)["a.txt"]
    assert (counts.emptied, counts.replaced, counts.loaded, counts.failed) == (1, 1, 1, 0)
    assert (outcome.status, outcome.code) == (DocumentStatus.LOADED, "emptied")
    assert "no text any more" in (outcome.message or "")
    assert set(hands.loaded()) == {"b.txt"}


# ---- a place that lists nothing


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / "docs" / name for name in ("handbook", "wiki")}
    for name, folder in found.items():
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number}.txt").write_text(f"{name} {number}")
    return found


def sync(hands: IngestionHands, urls: list[str]) -> tuple[IngestionStatus, int, str]:
    made = hands.ingest({"urls": urls}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(made)
    return ingestion.status, ingestion.counts.deleted, ingestion.error.message if ingestion.error else ingestion.warning


def test_sync_deletes_nothing_of_a_root_that_lists_nothing(
    redis_client: redis.Redis, tmp_path: Path, roots: dict[str, Path]
) -> None:
    hands = IngestionHands(Ledger(redis_client), tmp_path / "storage", ingest_roots=str(tmp_path / "docs"))
    urls = [f"file://{folder}/**" for folder in roots.values()]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    before = hands.loaded()
    assert len(before) == 6

    away = roots["wiki"].rename(tmp_path / "unmounted")
    roots["wiki"].mkdir()  # the mount point
    (roots["handbook"] / "0.txt").unlink()
    status, deleted, message = sync(hands, urls)
    assert (status, deleted) == (IngestionStatus.COMPLETED, 1)
    assert "source.urls[1] lists nothing" in message
    assert before.keys() - hands.loaded().keys() == {"docs/handbook/0.txt"}

    roots["wiki"].rmdir()
    (roots["handbook"] / "1.txt").unlink()
    assert sync(hands, urls)[:2] == (IngestionStatus.COMPLETED, 1), "a root that cannot be read keeps what is of it"
    away.rename(roots["wiki"])
    assert sync(hands, urls) == (IngestionStatus.COMPLETED, 0, "")
    assert len(hands.loaded()) == 4


def test_sync_deletes_nothing_of_a_root_that_lies_in_another_one(redis_client: redis.Redis, tmp_path: Path) -> None:
    hands = IngestionHands(Ledger(redis_client), tmp_path / "storage", ingest_roots=str(tmp_path / "docs"))
    inner = tmp_path / "docs" / "reports"
    inner.mkdir(parents=True)
    (tmp_path / "docs" / "a.txt").write_text(GOOD)
    (inner / "b.txt").write_text(GOOD)
    urls = [f"file://{tmp_path}/docs/*.txt", f"file://{inner}/**"]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    before = hands.loaded()
    (inner / "b.txt").unlink()
    assert sync(hands, urls)[:2] == (IngestionStatus.COMPLETED, 0)
    assert hands.loaded() == before
    assert sync(hands, urls[:1])[:2] == (IngestionStatus.COMPLETED, 1)


def test_sync_deletes_no_record_that_may_be_of_an_empty_root(redis_client: redis.Redis, tmp_path: Path) -> None:
    hands = IngestionHands(Ledger(redis_client), tmp_path / "storage", ingest_roots=str(tmp_path / "docs"))
    folders = [tmp_path / "docs" / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "r.jsonl").write_text(json.dumps({"id": f"record of {folder.name}", "text": GOOD}))
    urls = [f"file://{folder}/*.jsonl" for folder in folders]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    (folders[1] / "r.jsonl").unlink()
    status, deleted, message = sync(hands, urls)
    assert (status, deleted) == (IngestionStatus.COMPLETED, 0)
    assert "source.urls[1]" in message
    assert set(hands.loaded()) == {"record of a", "record of b"}
