"""Ingestions over real processes: a documents worker that may be killed at any time, and a model worker."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import orjson
import psutil
import pytest

from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.ledger.client import Ledger
from tasks.records.files import put_file
from tasks.records.ingestions import (
    Ingestion,
    IngestionRecord,
    IngestionStatus,
    new_ingestion_id,
    read_ingestion,
)
from tasks.records.jobs import Stage, create_job, list_jobs
from tasks.records.moves import cancel_job
from tasks.records.store import ANY_ROOM, OPEN
from tasks.storage.storage import Storage
from tests.made_files import made_file
from tests.processes import PATIENCE_S, Roles, WorkerProcess, wait_until
from worker_config.settings import DEFAULT_MODEL

HOUR_MS = 3_600_000
RECORDS = 1100  # two pages
WORDS = 3


class Pair:
    """A documents worker and a model worker on one storage."""

    def __init__(self, roles: Roles, ledger: Ledger, **changed: Any) -> None:
        self.folder = folder = roles.folder / "storage"
        settings: dict[str, Any] = {"storage_url": str(folder), "lease_s": 3} | changed
        self.ledger = ledger
        self.model: WorkerProcess = roles.worker(**settings)
        self.documents: WorkerProcess = roles.documents(**settings)
        self.storage = Storage.open(str(folder))

    def ingest(self, records: int) -> str:
        """An ingestion of a file of so many records; its id."""
        lines = [orjson.dumps({"id": f"d{n}", "text": f"document number {n} " * WORDS}) for n in range(records)]
        return self.ingest_files({"d.jsonl": b"\n".join(lines)})

    def ingest_files(self, files: Mapping[str, bytes], owner: str = "a") -> str:
        """An ingestion of these files; its id."""
        records = [made_file(len(data), owner=owner, filename=name) for name, data in files.items()]
        for record, data in zip(records, files.values(), strict=True):
            self.storage.write(record.stored, data)
            self.ledger.run(put_file(record))
        request: dict[str, Any] = {
            "source": {"files": [record.id for record in records]},
            "sink": {"type": "dataset", "dataset": "d"},
            "mode": "skip_unchanged",
            "model": DEFAULT_MODEL,
        }
        made = IngestionRecord(id=new_ingestion_id(), owner=owner, request=request, model=DEFAULT_MODEL, ttl_ms=HOUR_MS)
        return self.ledger.run(create_job(made, ANY_ROOM))

    def ingestion(self, ingestion_id: str) -> Ingestion:
        """It as it is now."""
        found = self.ledger.run(read_ingestion(ingestion_id))
        assert found is not None
        return found

    def cancel(self, ingestion_id: str) -> bool:
        """Whether nothing has moved it since it was read."""
        move = cancel_job(self.ingestion(ingestion_id))
        return move is not None and self.ledger.run(move.operation()) is not None

    def until(self, ingestion_id: str, moment: Callable[[Ingestion], bool]) -> None:
        """Returns when it is so, or too late for it."""

        def there() -> bool:
            ingestion = self.ingestion(ingestion_id)
            return moment(ingestion) or ingestion.status.terminal

        wait_until(there, message="the moment for a kill")

    def ended(self, ingestion_id: str) -> Ingestion:
        """It, once it has ended."""
        wait_until(lambda: self.ingestion(ingestion_id).status.terminal, message="the end of an ingestion")
        assert self.ledger.run(list_jobs(IngestionRecord, OPEN, limit=9))[0] == []
        return self.ingestion(ingestion_id)

    def chunks(self) -> Counter[tuple[str, int]]:
        """Document and number of each chunk in the dataset."""
        found: Counter[tuple[str, int]] = Counter()
        with closing(SqliteDatasets(self.folder / "datasets").contents("a", "d")) as contents:
            chunks = contents.chunks(-1, 1_000_000).items
        found.update((chunk.document_id, chunk.position) for chunk in chunks)
        return found


@pytest.fixture
def pair(roles: Roles, redis_url: str) -> Iterator[Pair]:
    ledger = Ledger.connect(redis_url)
    yield Pair(roles, ledger)
    ledger.close()


def everything_is_loaded_once(pair: Pair, ingestion_id: str, records: int) -> None:
    ingestion = pair.ended(ingestion_id)
    counts = ingestion.counts
    assert (ingestion.status, counts.documents, counts.loaded) == (IngestionStatus.COMPLETED, records, records)
    found = pair.chunks()
    assert set(found.values()) == {1}
    assert {name for name, _ in found} == {f"d{n}" for n in range(records)}
    assert counts.chunks == counts.chunks_loaded == len(found)


def test_from_a_file_to_a_dataset_and_again_without_the_model(pair: Pair) -> None:
    everything_is_loaded_once(pair, pair.ingest(RECORDS), RECORDS)
    before = pair.chunks()
    again = pair.ended(pair.ingest(RECORDS))
    assert (again.counts.unchanged, again.counts.chunks, again.counts.tokens) == (RECORDS, 0, 0)
    assert pair.chunks() == before


def at(stage: Stage) -> Callable[[Ingestion], bool]:
    return lambda ingestion: any(page.at is stage for page in ingestion.pages.values())


def test_cancelled_on_the_way(pair: Pair) -> None:
    made = pair.ingest(RECORDS)
    pair.until(made, at(Stage.EMBED))
    wait_until(lambda: pair.cancel(made), message="a move that was not too late")
    ingestion = pair.ended(made)
    counts = ingestion.counts
    assert ingestion.status is IngestionStatus.CANCELLED
    assert counts.loaded + counts.cancelled == counts.documents


LONG = {"long.html": b"<main>" * 40_000}
"""Its parser is busy for a second or so."""


def parsers(pair: Pair) -> list[psutil.Process]:
    """The processes that parse documents."""
    found = psutil.Process(pair.documents.child_pid).children()
    return [child for child in found if child.is_running() and "sandbox_child" in " ".join(child.cmdline())]


def test_one_owners_page_that_does_not_end_delays_nobody_else(roles: Roles, redis_url: str) -> None:
    with closing(Ledger.connect(redis_url)) as ledger:
        pair = Pair(roles, ledger, parse_timeout_s=PATIENCE_S)
        hostile = [pair.ingest_files(LONG, owner="hostile") for _ in range(3)]
        [parser] = wait_until(lambda: parsers(pair), message="a page is parsed")
        parser.suspend()
        for n in range(3):
            small = pair.ingest_files({f"{n}.txt": b"a short text"}, owner="small")
            pair.until(small, lambda _: False)
            assert pair.ingestion(small).status is IngestionStatus.COMPLETED
        assert parsers(pair) == [parser], "its owner has one stream of two"
        assert not any(pair.ingestion(each).status.terminal for each in hostile)
        parser.resume()
        for each in hostile:
            pair.until(each, lambda _: False)
