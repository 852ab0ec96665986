"""Documents that share an id: within one ingestion, and with what another source has brought into the sink."""

import pytest

from tasks.documents.ingestions import listed_ids
from tests.integration.documents.ingestions.hands import IngestionHands

ONE = b'{"id": "x", "text": "version A"}\n{"id": "y", "text": "of y"}\n{"id": "x", "text": "version B"}\n'


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.documents.sources.page.PAGE_RECORDS", 1)


@pytest.mark.parametrize(("pages_of_a_listing", "forgetful"), [(1, False), (1, True), (16, False)])
def test_the_second_document_with_an_id_fails_on_every_run(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch, pages_of_a_listing: int, *, forgetful: bool
) -> None:
    monkeypatch.setattr("tasks.documents.ingestions.list_job.PAGES", pages_of_a_listing)
    file_id = hands.file("a.jsonl", ONE)
    for run in range(3):
        made = hands.ingest({"files": [file_id]})
        while not hands.ingestion(made).status.terminal:
            if forgetful:  # another process lists on
                listed_ids._known.clear()
            hands.step()
            hands.work_documents(limit=1)
            hands.work_model()
        counts = hands.ingestion(made).counts
        assert (counts.loaded, counts.unchanged, counts.failed) == ((2, 0, 1) if run == 0 else (0, 2, 1))
        (failed,) = hands.failed(made)
        assert (failed.code, failed.uri) == ("duplicate_document_id", f"file:{file_id}/a.jsonl#3")
        assert f"file:{file_id}/a.jsonl#1" in (failed.message or "")
        assert hands.loaded() == {"x": "version A", "y": "of y"}
        hands.step()
        assert list(hands.storage.stored(f"ingestions/{made}/ids")) == []


def test_many_pages_with_one_id_name_the_first_and_read_few(hands: IngestionHands) -> None:
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n % 20, n) for n in range(40))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})
    hands.work()
    counts = hands.ingestion(made).counts
    assert (counts.loaded, counts.failed) == (20, 20)
    named = [failed for failed in hands.failed(made) if "a.jsonl#" in (failed.message or "")]
    assert 16 <= len(named) <= 20
