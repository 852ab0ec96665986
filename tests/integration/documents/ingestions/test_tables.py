"""Ingestions into a table of PostgreSQL, which may be away: they wait, can be cancelled, and hold up nobody else."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tasks.ledger.client import Ledger
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import Stage
from tasks.records.moves import cancel_job
from tests.integration.api.ledger_worker import vector
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left
from tests.pg_server import PgServer
from tests.processes import free_port

SINK = {"type": "postgresql", "name": "store", "table": "docs"}
QUERY = "SELECT doc_id, text, embedding::real[] AS v FROM docs ORDER BY doc_id, chunk_index"


@pytest.fixture
def hands(redis_url: str, tmp_path: Path, postgres: PgServer, database: str) -> Iterator[IngestionHands]:
    ledger = Ledger.connect(redis_url)
    yield IngestionHands(ledger, tmp_path / "storage", sinks=f"store={postgres.url(database)}")
    ledger.close()


def test_documents_become_rows_of_a_table(hands: IngestionHands, postgres: PgServer, database: str) -> None:
    hands.texts({"a": "first", "b": "second", "c": "third"}, sink=SINK)
    hands.work()
    made = hands.texts({"a": "first", "b": "other"}, sink=SINK, mode="sync")
    hands.work()

    ingestion = hands.ingestion(made)
    counts = ingestion.counts
    assert (ingestion.status, ingestion.error) == (IngestionStatus.COMPLETED, None)
    assert (counts.unchanged, counts.loaded, counts.deleted) == (1, 1, 1)
    rows = postgres.execute(QUERY, database)
    assert [(row["doc_id"], row["text"]) for row in rows] == [("a", "first"), ("b", "other")]
    for row in rows:
        np.testing.assert_allclose(row["v"], vector(row["text"]), rtol=1e-6)


def test_after_a_refusal_is_mended_it_goes_on_where_it_was(
    hands: IngestionHands, postgres: PgServer, database: str
) -> None:
    postgres.execute("CREATE TABLE docs (somebody_elses int)", database)
    made = hands.texts({"a": "first", "b": "second"}, sink=SINK)
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.error is not None
    assert (ingestion.error.code, ingestion.resumable) == ("sink_refused", True)

    postgres.execute("DROP TABLE docs", database)
    assert hands.retry(made)
    assert hands.ingestion(made).status is IngestionStatus.IN_PROGRESS
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (IngestionStatus.COMPLETED, 2)
    assert len(postgres.execute(QUERY, database)) == 2
    nothing_is_left(hands, made)


def test_a_database_that_dies_is_waited_for_and_the_last_job_can_be_cancelled(
    hands: IngestionHands, postgres: PgServer
) -> None:
    hands.texts({"a": "first", "b": "second"}, sink=SINK)
    hands.work()
    sync = hands.texts({"a": "first"}, sink=SINK, mode="sync")
    hands.until(lambda: hands.ingestion(sync).status is IngestionStatus.FINALIZING)
    postgres.kill()
    other = hands.texts({"c": "third"}, sink=SINK)
    hands.until(lambda: hands.ingestion(sync).waiting_for == hands.ingestion(other).waiting_for == "sink")

    assert hands.move(cancel_job, hands.ingestion(sync))
    assert hands.ingestion(sync).status is IngestionStatus.CANCELLING
    for _ in range(4):
        hands.step()
        hands.work_documents()
    hands.step()
    cancelled = hands.ingestion(sync)
    assert (cancelled.status, cancelled.counts.unchanged, cancelled.counts.deleted) == (IngestionStatus.CANCELLED, 1, 0)

    postgres.start()
    hands.wait(60)
    hands.work()
    assert (hands.ingestion(other).status, hands.ingestion(other).waiting_for) == (IngestionStatus.COMPLETED, None)
    nothing_is_left(hands, sync)


S = IngestionStatus


def away(hands: IngestionHands, number: int) -> str:
    """An ingestion whose sink goes away when all of its pages are to be loaded; its id."""
    made = hands.ingest({"files": [hands.file(f"{n}.txt", b"text %d" % n) for n in range(number)]}, sink=SINK)
    hands.until(lambda: {page.at for page in hands.ingestion(made).pages.values()} == {Stage.LOAD})
    dead = f"postgresql://nobody@127.0.0.1:{free_port()}/x"
    hands.settings = hands.settings.model_copy(update={"sinks": (("store", dead),)})
    return made


@pytest.mark.parametrize("begun", [False, True], ids=["in the queue", "tried in vain"])
def test_an_ingestion_whose_sink_is_away_can_be_cancelled(hands: IngestionHands, begun: bool) -> None:
    made = away(hands, 2)
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
