"""Steps that find no room, and steps that believe in an older state: they harm nobody and cost little."""

import pytest

from tasks.ledger.ingestions import IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands

S = IngestionStatus


def test_pages_that_wait_for_room_cost_nothing_until_there_may_be_some(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.documents.sources.page.PAGE_RECORDS", 1)
    monkeypatch.setattr("tasks.documents.ingestions.pages.WORKED_ON", 31)
    hands.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(31))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]})

    def waiting() -> int:
        pages = hands.ingestion(made).pages.values()
        return sum(page.stage is PageStage.EMBED and page.state is None for page in pages)

    hands.until(lambda: waiting() == 30, model=False)
    hands.wait(30)
    hands.step()
    assert len(hands.postponed) == 30, "one is in the queue, each of the others was refused"
    assert hands.round_trips() <= 3, "which are open, what they are, and a sample"
    hands.wait(30)
    assert hands.round_trips() >= 2 + 2 * 30, "each: what was found, and refused again"
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 31)
