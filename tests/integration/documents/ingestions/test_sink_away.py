"""A sink that is away: its ingestion waits, can be cancelled, and holds up nobody else."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.ingestion.sources.page import PageLimits
from tasks.ledger.client import Ledger
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tasks.records.moves import cancel_job
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left
from tests.pg_server import PgServer
from tests.processes import free_port

S = IngestionStatus
DEAD = {"type": "postgresql", "name": "dead", "table": "docs"}


@pytest.fixture
def hands(redis_url: str, tmp_path: Path) -> Iterator[IngestionHands]:
    ledger = Ledger.connect(redis_url)
    sinks = f"dead=postgresql://nobody@127.0.0.1:{free_port()}/x"
    yield IngestionHands(ledger, tmp_path / "storage", sinks=sinks)
    ledger.close()


def away_at(hands: IngestionHands, stage: Stage, url: str, source: Mapping[str, Any], **asked: Any) -> str:
    """An ingestion whose sink goes away when all of its pages are at a stage, and no worker has taken it; its id."""
    dead = hands.settings
    hands.settings = dead.model_copy(update={"sinks": (("dead", url),)})
    made = hands.ingest(source, sink=DEAD, **asked)
    hands.until(lambda: {page.at for page in hands.ingestion(made).pages.values()} == {stage})
    hands.settings = dead
    return made


def files(hands: IngestionHands, number: int) -> dict[str, Any]:
    """A source of so many documents."""
    return {"files": [hands.file(f"{n}.txt", b"text %d" % n) for n in range(number)]}


def test_a_dead_sink_is_asked_less_and_less_and_holds_up_no_other_ingestion(
    hands: IngestionHands, postgres: PgServer, database: str
) -> None:
    made = away_at(hands, Stage.LOAD, postgres.url(database), files(hands, 1))
    other = hands.texts({"b": "second"}, owner="other")
    for _ in range(240):
        hands.step()
        hands.work_documents(limit=1)
        hands.work_model()
    assert hands.ingestion(other).status is S.COMPLETED
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.waiting_for) == (S.IN_PROGRESS, "sink")
    tries = hands.ran["1 load"] - 1  # of the other one
    assert 6 <= tries <= 7, "in a minute: after 1, 2, 4, … 60 seconds"
    assert hands.round_trips() <= 4


@pytest.mark.parametrize("at_once", [8, 1])
def test_a_dead_sink_that_is_asked_for_receipts_is_asked_as_seldom_for_many_pages(
    hands: IngestionHands, postgres: PgServer, database: str, at_once: int
) -> None:
    hands.at_pace(page=PageLimits(records=1))
    lines = b"".join(b'{"id": "d%d", "text": "text %d"}\n' % (n, n) for n in range(8))
    made = away_at(hands, Stage.PARSE, postgres.url(database), {"files": [hands.file("a.jsonl", lines)]})
    for _ in range(120):
        hands.step()
        hands.work_documents(limit=at_once)
    parsed = [hands.ran[f"{page} parse"] for page in range(1, 9)]
    assert min(parsed) > 1, "what comes of one page makes the pause of the others no longer"
    assert max(parsed) <= 5, "in half a minute"
    assert hands.ingestion(made).waiting_for == "sink"


@pytest.mark.parametrize("begun", [False, True], ids=["in the queue", "tried in vain"])
def test_an_ingestion_whose_sink_is_away_can_be_cancelled(
    hands: IngestionHands, postgres: PgServer, database: str, begun: bool
) -> None:
    made = away_at(hands, Stage.LOAD, postgres.url(database), files(hands, 2))
    hands.until(lambda: not begun or hands.ingestion(made).waiting_for == "sink")
    assert hands.move(cancel_job, hands.ingestion(made))
    assert hands.ingestion(made).status is S.CANCELLING
    for _ in range(4):
        hands.step()
        hands.work_documents()
    ingestion = hands.ingestion(made)
    assert (ingestion.status, ingestion.waiting_for) == (S.CANCELLED, None)
    assert (ingestion.counts.loaded, ingestion.counts.cancelled) == (0, 2)
    nothing_is_left(hands, made)
