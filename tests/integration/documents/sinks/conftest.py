"""A place for each kind of sink: `place` runs a test over all of them."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import redis

from tasks.documents.sinks.parquet.parquet_sink import ParquetSink
from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink
from tasks.documents.sinks.sink import Sink
from tasks.ledger.client import Ledger
from tasks.storage.storage import Storage
from tests.integration.documents.sinks.loads import OpenPlace, Place, Row
from tests.integration.documents.sinks.parquet_reading import DATASET, OWNER, present, rows_of
from tests.pg_server import PgServer


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with redis.Redis.from_url(redis_url) as client:
        yield Ledger(client)


@pytest.fixture
def opened() -> Iterator[list[Sink]]:
    """Sinks to be closed."""
    sinks: list[Sink] = []
    yield sinks
    for sink in sinks:
        sink.close()


@pytest.fixture
def parquet(storage: Storage, tmp_path: Path) -> Place:
    downloads = count()

    def rows() -> list[Row]:
        return rows_of(storage, present(storage), tmp_path / f"download-{next(downloads)}")

    # Another storage object has another index of receipts: like another process.
    url = str(tmp_path / "storage")
    return OpenPlace(lambda: ParquetSink(Storage.open(url), OWNER, DATASET), rows)


@pytest.fixture
def postgresql(postgres: PgServer, database: str, opened: list[Sink]) -> Place:
    def rows() -> list[Row]:
        if not postgres.execute("SELECT 1 FROM pg_class WHERE relname = 'docs'", database):
            return []
        found = postgres.execute("SELECT *, embedding::real[] AS v FROM docs ORDER BY doc_id, chunk_index", database)
        return [dict(row) | {"embedding": row["v"]} for row in found]

    def opening() -> Sink:
        opened.append(PostgresSink("here", postgres.url(database), "docs"))
        return opened[-1]

    return OpenPlace(opening, rows)


@pytest.fixture(params=["parquet", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sink(place: Place) -> Sink:
    return place.open()
