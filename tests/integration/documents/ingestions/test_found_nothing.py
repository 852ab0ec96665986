"""Where the parser or the listing finds nothing, what is there stays."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.records.documents import DocumentStatus
from tasks.records.ingestions import IngestionStatus
from tests.document_files import archive, docx, paragraph, pdf
from tests.integration.documents.ingestions.hands import IngestionHands

GOOD = "Refunds are paid within three days."
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"


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
    "a.txt": (
        GOOD.encode(),
        [b"\x1b\x08\x1b", b"\xef\xbb\xbf" + 500 * b"\0"],  # of a terminal; of a file that was not written to its end
    ),
    "a.eml": (f"Subject: a\nFrom: a@example.org\n\n{GOOD}".encode(), [b"\n"]),
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


@pytest.mark.parametrize(("mode", "text"), [("skip_unchanged", ""), ("upsert", " \n"), ("sync", None)])
def test_what_is_emptied_is_counted_and_said(hands: IngestionHands, mode: str, text: str | None) -> None:
    hands.documents([{"id": "a", "text": "first"}, {"id": "b", "text": "secret"}])
    hands.work()
    given: list[dict[str, str | None]] = [{"id": name, "text": text} for name in ("b", "never")]
    for code in ("emptied", "emptied" if mode == "upsert" else None):
        made = hands.documents([{"id": "a", "text": "first"}, *given], mode=mode)
        hands.work()
        counts, outcome = hands.ingestion(made).counts, hands.outcomes(made)["b"]
        assert (counts.failed, counts.emptied, outcome.code) == (1, int(code is not None), code)
        assert ("no text any more" in (outcome.message or "")) is (code is not None)
        assert hands.outcomes(made)["never"].code == "empty_document"
        assert hands.loaded() == {"a": "first"}


def sync(hands: IngestionHands, urls: Sequence[str]) -> tuple[IngestionStatus, int, str]:
    made = hands.ingest({"urls": urls}, mode="sync")
    hands.work()
    ingestion = hands.ingestion(made)
    return ingestion.status, ingestion.counts.deleted, ingestion.error.message if ingestion.error else ingestion.warning


def test_sync_deletes_nothing_of_a_root_that_lists_nothing(hands: IngestionHands, tmp_path: Path) -> None:
    handbook, wiki = folders = [tmp_path / "docs" / name for name in ("handbook", "wiki")]
    for folder in folders:
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"{number}.txt").write_text(f"{folder.name} {number}")
    urls = [f"file://{folder}/**" for folder in folders]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    before = hands.loaded()
    assert len(before) == 6

    away = wiki.rename(tmp_path / "unmounted")
    wiki.mkdir()  # the mount point
    (handbook / "0.txt").unlink()
    status, deleted, message = sync(hands, urls)
    assert (status, deleted) == (IngestionStatus.COMPLETED, 1)
    assert "source.urls[1] lists nothing" in message
    [gone] = before.keys() - hands.loaded().keys()
    assert gone.endswith("docs/handbook/0.txt")

    wiki.rmdir()
    (handbook / "1.txt").unlink()
    assert sync(hands, urls)[:2] == (IngestionStatus.COMPLETED, 1), "a root that cannot be read keeps what is of it"
    away.rename(wiki)
    assert sync(hands, urls) == (IngestionStatus.COMPLETED, 0, "")
    assert len(hands.loaded()) == 4


def test_sync_deletes_nothing_of_a_root_that_lies_in_another_one(hands: IngestionHands, tmp_path: Path) -> None:
    inner = tmp_path / "docs" / "reports"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "a.txt").write_text(GOOD)
    urls = [f"file://{inner.parent}/*.txt", f"file://{inner}/**"]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    before = hands.loaded()
    (inner / "a.txt").unlink()
    assert sync(hands, urls)[:2] == (IngestionStatus.COMPLETED, 0)
    assert hands.loaded() == before
    assert sync(hands, urls[:1])[:2] == (IngestionStatus.COMPLETED, 1)


def test_sync_deletes_no_record_that_may_be_of_an_empty_root(hands: IngestionHands, tmp_path: Path) -> None:
    files = [tmp_path / "docs" / name / "r.jsonl" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"id": f"record of {file.parent.name}", "text": GOOD}))
    urls = [f"file://{file.parent}/*.jsonl" for file in files]
    assert sync(hands, urls)[0] is IngestionStatus.COMPLETED
    files[1].unlink()
    status, deleted, message = sync(hands, urls)
    assert (status, deleted) == (IngestionStatus.COMPLETED, 0)
    assert "source.urls[1]" in message
    assert set(hands.loaded()) == {"record of a", "record of b"}
