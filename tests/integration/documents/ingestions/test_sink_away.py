"""A sink that is away: its ingestion waits, can be cancelled, and holds up nobody else."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from stack.testing import free_port
from tasks.documents.sources.source import PageLimits
from tasks.ledger.client import Ledger
from tasks.records.ingestion_operations import Moved, cancel_ingestion
from tasks.records.ingestions import IngestionStatus, PageStage
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left
from tests.pg_server import PgServer

S = IngestionStatus
DEAD = {"type": "postgresql", "name": "dead", "table": "docs"}


@pytest.fixture
def hands(redis_url: str, tmp_path: Path) -> Iterator[IngestionHands]:
    ledger = Ledger.connect(redis_url)
    sinks = f"dead=postgresql://nobody@127.0.0.1:{free_port()}/x"
    yield IngestionHands(ledger, tmp_path / "storage", sinks=sinks)
    ledger.close()


def ready(hands: IngestionHands, url: str, texts: Mapping[str, str]) -> str:
    """An ingestion whose sink goes away when all that is left to do is to load; its id."""
    dead = hands.settings
    hands.settings = dead.model_copy(update={"sinks": (("dead", url),)})
    made = hands.texts(texts, sink=DEAD)
    hands.until(lambda: [page.stage for page in hands.ingestion(made).pages.values()] == [PageStage.READY])
    hands.settings = dead
    return made


def test_a_dead_sink_is_asked_less_and_less_and_holds_up_no_other_ingestion(
    hands: IngestionHands, postgres: PgServer, database: str
) -> None:
    made = ready(hands, postgres.url(database), {"a": "first"})
    other = hands.texts({"b": "second"}, owner="other")
    for _ in range(240):
        hands.step()
        hands.work_documents(limit=1)
        hands.work_model()
    assert hands.ingestion(other).status is S.COMPLETED
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.waiting_for) == (S.IN_PROGRESS, "sink")
    assert 6 <= hands.ran[f"load_pages {made}/0"] <= 8, "in two minutes: after 1, 2, 4, … 60 seconds"
    assert hands.round_trips() <= 4


def test_a_dead_sink_that_is_asked_for_receipts_is_asked_as_seldom_for_many_pages(hands: IngestionHands) -> None:
    hands.at_pace(page=PageLimits(records=1))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(8))
    made = hands.ingest({"files": [hands.file("a.jsonl", lines)]}, sink=DEAD)
    for _ in range(120):
        hands.step()
        hands.work_documents()
    parsed = [hands.ran[f"parse_page {made}/{page}"] for page in range(8)]
    assert max(parsed) <= 7, "in a minute"
    assert hands.ingestion(made).waiting_for == "sink"


@pytest.mark.parametrize("begun", [False, True], ids=["in the queue", "tried in vain"])
def test_an_ingestion_whose_sink_is_away_can_be_cancelled(
    hands: IngestionHands, postgres: PgServer, database: str, begun: bool
) -> None:
    made = ready(hands, postgres.url(database), {"a": "first", "b": "second"})
    hands.until(lambda: hands.ingestion(made).load_state is not None, documents=begun)
    assert hands.ledger.run(cancel_ingestion(made)) == Moved(True, S.CANCELLING)
    for _ in range(4):
        hands.step()
        hands.work_documents()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.waiting_for) == (S.CANCELLED, None)
    assert (ingestion.counts.loaded, ingestion.counts.cancelled) == (0, 2)
    nothing_is_left(hands, made)
