"""What tables of PostgreSQL have of their own: several spellings of one name, tables that go away, owners, schemas."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import asyncpg
import numpy as np
import pytest

from tasks.datasets.contents import DatasetGone, ExportPart
from tasks.datasets.loads import Verdict
from tasks.datasets.postgresql.schema import CHUNK_COLUMNS, TableName, lock
from tests.integration.datasets.loads import Place, document, load, stamp, texts, unchanged
from tests.integration.datasets.tables import table_contents, table_store
from tests.pg_server import PgServer
from tests.processes import PATIENCE_S
from tests.raises_code import raises_code


def test_one_table_under_two_spellings_is_one(postgresql: Place, postgres: PgServer, database: str) -> None:
    load(postgresql.open(), document("first"))
    together = threading.Barrier(2)

    def work(number: int) -> None:
        store = table_store(postgres, database, ("docs", "public.docs")[number])
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


async def test_what_is_loaded_after_a_table_was_emptied_stays(
    postgresql: Place, postgres: PgServer, database: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(load, postgresql.open(), document("a")).result(PATIENCE_S)
    columns = ", ".join(f'"{name}"' for name in CHUNK_COLUMNS)
    other = await asyncpg.connect(postgres.url(database))
    await other.execute("CREATE TABLE kept AS SELECT * FROM docs")
    await other.execute("TRUNCATE docs")
    async with other.transaction():
        await lock(other, TableName("public", "docs"))
        with ThreadPoolExecutor(1) as pool:
            preparing = pool.submit(postgresql.open().prepare, stamp(2), lambda: None)
            while not await other.fetchval("SELECT true FROM pg_locks WHERE NOT granted"):
                assert not preparing.done()
            # As a load does.
            await other.execute(f"INSERT INTO docs ({columns}) SELECT {columns} FROM kept")  # noqa: S608 - constants
            await other.execute("COMMIT")
            preparing.result(PATIENCE_S)
            await other.execute("BEGIN")
            assert pool.submit(postgresql.open().known, ["a"]).result(PATIENCE_S).keys() == {"a"}
    await other.close()


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
    store = table_store(postgres, database, "docs")
    load(store, document("a"), document("b", "two"))
    assert store.known(["a"]).keys() == {"a"}
    contents = table_contents(postgres, database, "docs")
    assert len(contents.nearest(np.ones(8), 3, None, lambda: False)) == 3
    assert contents.head().chunks == 4
    store.close()
    contents.close()


def test_a_table_belongs_to_the_key_that_made_it(postgres: PgServer, database: str) -> None:
    one, other = (table_store(postgres, database, owner=owner) for owner in ("a", "b"))
    anybody = table_store(postgres, database, owner="c", anywhere=True)
    load(one, document("x"))
    with raises_code("sink_refused", match="another API key"):
        load(other, document("x", "new"), by=stamp(2))
    with raises_code("sink_refused", match="another API key"):
        other.known(["x"])
    assert load(anybody, document("x", "new"), by=stamp(3)) == [Verdict.REPLACED]
    reader = table_contents(postgres, database, "docs", owner="b")
    for read in (
        reader.head,
        lambda: reader.documents(-1, 1),
        lambda: reader.chunks(-1, 1),
        reader.export_parts,
        lambda: reader.export_rows(ExportPart(0, 1)),
        lambda: reader.nearest(np.ones(8), 1, None, lambda: False),
        lambda: reader.words("new", 1, None, lambda: False),
    ):
        with raises_code("sink_refused", match="another API key"):
            read()
    for each in (one, other, anybody, reader):
        each.close()


def test_a_table_made_by_a_key_that_shares_it_is_its_own(postgres: PgServer, database: str) -> None:
    maker, other = (table_store(postgres, database, owner=owner, anywhere=owner == "a") for owner in ("a", "b"))
    load(maker, document("x"))
    for attempt in (
        lambda: load(other, document("x", "new"), by=stamp(2)),
        lambda: other.finish(stamp(2), (), lambda: None),
        lambda: other.prepare(stamp(2, dimension=9), lambda: None),
    ):
        with raises_code("sink_refused", match="another API key"):
            attempt()
    postgres.execute("DROP TABLE docs_unread", database)
    with raises_code("sink_refused", match="another API key"):
        other.prepare(stamp(2), lambda: None)
    assert maker.known(["x"]) == {}, "until it makes the table again"
    load(maker, document("y"))
    assert maker.known(["x", "y"]).keys() == {"x", "y"}
    for each in (maker, other):
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
    store = table_store(postgres, database, "docs")
    with raises_code("sink_refused", match="not one of this embedq's"):
        load(store, document("a"))
    store.close()
    assert [row["mine"] for row in postgres.execute("SELECT * FROM docs_documents", database)] == ["x"]


@pytest.mark.parametrize("table", ["", "a b", 'a"b', "a;b", "a.b.c", ".a", "1a", "a" * 51, "ä", "a\n"])
def test_what_is_no_name_of_a_table_is_refused(table: str) -> None:
    with raises_code("invalid_value", match="sink.table must be table or schema.table"):
        TableName.from_text(table)


@pytest.mark.parametrize("name", ["SELECT", "Docs", "a" * 50])
def test_any_name_of_a_table_is_itself(postgres: PgServer, database: str, name: str) -> None:
    store = table_store(postgres, database, name)
    load(store, document("a"))
    assert store.known(["a"]).keys() == {"a"}
    store.close()
    tables = postgres.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relname !~ '^(pg|sql)_'", database)
    beside = ("", "_documents", "_ingestions", "_unread", "_dataset")
    assert {row["relname"] for row in tables} == {name + each for each in beside}


def test_sql_in_names_and_values_of_a_filter_is_text(postgresql: Place) -> None:
    store = postgresql.open()
    odd = "'); DROP TABLE docs; --"
    load(store, document("a")._replace(metadata={odd: odd}), document("b"))
    found = postgresql.contents().nearest(np.ones(8), 9, {odd: odd}, lambda: False)
    assert {each.chunk.document_id for each in found} == {"a"}
    assert postgresql.contents().nearest(np.ones(8), 9, {"document_id": odd}, lambda: False) == []
    assert postgresql.contents().words(f"{odd} one", 9, None, lambda: False) != []
