"""What tables of PostgreSQL have of their own: several spellings of one name, tables that go away, owners, schemas."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from stack.testing import PATIENCE_S
from tasks.datasets.contents import DatasetGone
from tasks.datasets.loads import Verdict
from tasks.datasets.postgresql.load import PostgresStore
from tasks.datasets.postgresql.search import PostgresContents
from tests.integration.datasets.loads import Place, document, load, stamp, texts, unchanged
from tests.pg_server import PgServer
from tests.raises_code import raises_code


def test_one_table_under_two_spellings_is_one(postgresql: Place, postgres: PgServer, database: str) -> None:
    load(postgresql.open(), document("first"))
    together = threading.Barrier(2)

    def work(number: int) -> None:
        store = PostgresStore("here", postgres.url(database), ("docs", "public.docs")[number])
        together.wait(PATIENCE_S)
        given = [document(f"d{n}", f"{number} {n}", chunks=3 + number) for n in range(200)]
        load(store, *given, by=stamp(2 + number))
        store.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    found = texts(postgresql.rows())
    assert all(found[f"d{n}"] == [f"1 {n} {at}" for at in range(4)] for n in range(200))


@pytest.mark.parametrize("how", ["DROP TABLE docs", "TRUNCATE docs", "DELETE FROM docs"])
def test_chunks_that_somebody_else_has_removed_are_loaded_anew(
    postgresql: Place, postgres: PgServer, database: str, how: str
) -> None:
    store = postgresql.open()
    seen = store.prepare(stamp(1), lambda: None)
    load(store, document("a"), document("b"), by=replace(stamp(1), dataset_id=seen))
    postgres.execute(how, database)
    with raises_code("dataset_deleted", match="start a new ingestion"):
        load(store, document("c"), by=replace(stamp(1), dataset_id=seen))
    assert store.prepare(stamp(2), lambda: None) != seen
    assert store.known(["a", "b"]) == {}
    assert load(store, document("a"), by=stamp(2)) == [Verdict.LOADED]
    assert texts(postgresql.rows()).keys() == {"a"}


def test_chunks_whose_receipts_somebody_else_has_removed_are_refused(
    postgresql: Place, postgres: PgServer, database: str
) -> None:
    store = postgresql.open()
    load(store, document("a"), document("b"))
    postgres.execute("DROP TABLE docs_documents", database)
    with raises_code("sink_refused", match="has rows.*Drop or empty it"):
        load(store, document("a", "new", chunks=1), by=stamp(2))
    postgres.execute("TRUNCATE docs", database)
    assert load(store, document("a", "new", chunks=1), by=stamp(2)) == [Verdict.LOADED]


def test_an_extension_in_a_schema_of_its_own(postgres: PgServer, database: str) -> None:
    postgres.execute("CREATE SCHEMA extensions", database)
    postgres.execute("CREATE EXTENSION vector SCHEMA extensions", database)
    store = PostgresStore("here", postgres.url(database), "docs")
    load(store, document("a"), document("b", "two"))
    assert store.known(["a"]).keys() == {"a"}
    contents = PostgresContents("here", postgres.url(database), "docs")
    assert len(contents.nearest(np.ones(8), 3, None, lambda: False)) == 3
    assert contents.head().chunks == 4
    store.close()
    contents.close()


def test_a_table_belongs_to_the_key_that_made_it(postgres: PgServer, database: str) -> None:
    one, other, anybody = (
        PostgresStore("here", postgres.url(database), "docs", owner=owner) for owner in ("a", "b", "")
    )
    load(one, document("x"))
    with raises_code("sink_refused", match="another API key"):
        load(other, document("x", "new"), by=stamp(2))
    with raises_code("sink_refused", match="another API key"):
        other.known(["x"])
    assert load(anybody, document("x", "new"), by=stamp(3)) == [Verdict.REPLACED]
    reader = PostgresContents("here", postgres.url(database), "docs", owner="b")
    with raises_code("sink_refused", match="another API key"):
        reader.head()
    for each in (one, other, anybody, reader):
        each.close()


def test_tables_that_are_not_there_are_no_dataset(postgresql: Place) -> None:
    with pytest.raises(DatasetGone):
        postgresql.contents().head()
    assert postgresql.open().known(["a"]) == {}


def test_the_head_says_what_there_is(postgresql: Place) -> None:
    store = postgresql.open()
    load(store, document("a"), document("b", chunks=0))
    head = postgresql.contents().head()
    assert (head.dimension, head.vectors, head.model) == (8, "a-model (rev-1)", "a-model")
    assert (head.documents, head.chunks) == (2, 2)
    load(store, unchanged("a"), by=stamp(2))
    assert postgresql.contents().head().version == head.version
    load(store, document("a", "new"), by=stamp(3))
    assert postgresql.contents().head().version == head.version + 1


def test_a_users_own_tables_are_left_alone(postgres: PgServer, database: str) -> None:
    postgres.execute("CREATE TABLE docs_documents (mine text)", database)
    postgres.execute("INSERT INTO docs_documents VALUES ('x')", database)
    store = PostgresStore("here", postgres.url(database), "docs")
    with raises_code("sink_refused", match="not one of this embedq's"):
        load(store, document("a"))
    store.close()
    assert [row["mine"] for row in postgres.execute("SELECT * FROM docs_documents", database)] == ["x"]
