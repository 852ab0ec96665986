"""A place for each kind of dataset: `place` runs a test over all of them."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.contents import Contents
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.load import SqliteStore
from tasks.datasets.sqlite.search import SqliteContents, VectorMemory
from tasks.datasets.store import Store, chunk_id
from tests.integration.datasets.loads import OpenPlace, Place, Row
from tests.integration.datasets.tables import table_contents, table_store
from tests.pg_server import PgServer


@pytest.fixture
def opened() -> Iterator[list[Store | Contents]]:
    """Of datasets, to be closed."""
    found: list[Store | Contents] = []
    yield found
    for each in found:
        each.close()


@pytest.fixture
def file(tmp_path: Path) -> DatasetFile:
    return DatasetFile(tmp_path, "me", "docs")


@pytest.fixture
def sqlite(file: DatasetFile, opened: list[Store | Contents]) -> Place:
    def rows() -> list[Row]:
        path = file.path()
        return [] if path is None else rows_of(path)

    def opening() -> Store:
        opened.append(store := SqliteStore(file))
        return store

    def contents() -> Contents:
        opened.append(found := SqliteContents(file, VectorMemory(2**30)))
        return found

    return OpenPlace(opening, rows, contents)


@pytest.fixture
def postgresql(postgres: PgServer, database: str, opened: list[Store | Contents]) -> Place:
    def rows() -> list[Row]:
        if not postgres.execute("SELECT 1 FROM pg_class WHERE relname = 'docs'", database):
            return []
        found = postgres.execute("SELECT *, embedding::real[] AS v FROM docs ORDER BY doc_id, chunk_index", database)
        ours = [name for name in dict(found[0]) if name not in {"v", "words"}] if found else []
        return [{name: row[name] for name in ours} | {"embedding": list(row["v"])} for row in found]

    def opening() -> Store:
        opened.append(store := table_store(postgres, database, "docs"))
        return store

    def contents() -> Contents:
        opened.append(found := table_contents(postgres, database, "docs"))
        return found

    return OpenPlace(opening, rows, contents)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def rows_of(path: Path) -> list[Row]:
    """The chunks of a file, as somebody reads them who knows the tables alone."""
    with sqlite3.connect(path) as db:
        db.row_factory = sqlite3.Row
        found = db.execute(
            "SELECT d.doc_id, c.number & 16777215 AS chunk_index, c.text, c.start, c.end, c.page, c.headings,"
            " c.token_count, c.truncated, d.found AS source_uri, d.content_hash, d.metadata, v.embedding,"
            " i.fingerprint, i.model, i.model_revision FROM chunks c JOIN vectors v USING (number)"
            " JOIN documents d ON d.number = c.number >> 24 JOIN ingestions i ON i.number = d.loaded_by"
            " ORDER BY d.doc_id, c.number"
        )
        return [_row(dict(row)) for row in found]


def _row(row: dict[str, object]) -> Row:
    vector = np.frombuffer(row["embedding"], "<f4").tolist()  # type: ignore[call-overload]
    fingerprint, name = str(row.pop("fingerprint")), str(row["doc_id"])
    of_chunk = {"chunk_id": chunk_id(name, fingerprint, int(str(row["chunk_index"])))}
    flags = {"headings": json.loads(str(row["headings"])), "truncated": bool(row["truncated"])}
    return row | of_chunk | flags | {"embedding": vector}
