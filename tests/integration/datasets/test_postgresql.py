"""What tables of PostgreSQL have of their own: several spellings of one name, tables that go away, owners, schemas."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from tasks.datasets.contents import ExportPart
from tasks.datasets.loads import Verdict
from tasks.datasets.postgresql.load import ROWS
from tasks.datasets.postgresql.schema import TableName
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


def test_sql_in_names_and_values_of_a_filter_is_text(postgresql: Place) -> None:
    store = postgresql.open()
    odd = "'); DROP TABLE docs; --"
    load(store, document("a")._replace(metadata={odd: odd}), document("b"))
    found = postgresql.contents().nearest(np.ones(8), 9, {odd: odd}, lambda: False)
    assert {each.chunk.document_id for each in found} == {"a"}
    assert postgresql.contents().nearest(np.ones(8), 9, {"document_id": odd}, lambda: False) == []
    assert postgresql.contents().words(f"{odd} one", 9, None, lambda: False) != []


_NOTE = """
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO statements SELECT TG_OP, TG_TABLE_NAME, count(*) FROM changed;
  RETURN NULL;
END $$
"""
_NOTE_SETTING = """
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO seen_setting VALUES (current_setting('idle_in_transaction_session_timeout'));
  RETURN NULL;
END $$
"""
_TRIGGER = (
    "CREATE TRIGGER {what}_{table} AFTER {what} ON {table} REFERENCING {image} TABLE AS changed"
    " FOR EACH STATEMENT EXECUTE FUNCTION note()"
)
_IMAGES = {"INSERT": "NEW", "UPDATE": "NEW", "DELETE": "OLD"}


@pytest.fixture
def watched(postgresql: Place, postgres: PgServer, database: str) -> Place:
    """A place whose server notes how many rows each statement has changed."""
    load(postgresql.open(), document("first"))
    postgres.execute("CREATE TABLE statements (what text, on_table text, rows bigint)", database)
    postgres.execute(_NOTE, database)
    for table in ("docs", "docs_documents"):
        for what, image in _IMAGES.items():
            postgres.execute(_TRIGGER.format(what=what, table=table, image=image), database)
    return postgresql


def test_no_statement_changes_many_rows_however_many_change(watched: Place, postgres: PgServer, database: str) -> None:
    many = [document(f"d{i:04}", chunks=1) for i in range(2 * ROWS)]
    large = document("large", "old", chunks=2 * ROWS + 500)
    store = watched.open()
    calls = Counter[str]()

    def noted() -> list[tuple[str, str, int]]:
        found = postgres.execute("SELECT what, on_table, rows FROM statements", database)
        postgres.execute("TRUNCATE statements", database)
        return [tuple(row) for row in found]

    store.load(iter([large, *many]), stamp(1), lambda: calls.update(["load"]))
    first = noted()
    store.load(iter([document("large", "new", chunks=1)]), stamp(2, fingerprint="e" * 64), lambda: None)
    load(store, unchanged("first"), by=stamp(3))
    later = noted()
    deleted = store.finish(stamp(3), (), lambda: calls.update(["finish"])).deleted
    last = noted()

    assert deleted == 1 + len(many)
    changed = Counter[tuple[str, str]]()
    for what, table, rows in (*first, *later, *last):
        assert rows <= ROWS
        changed[what, table] += rows
    chunks = len(large.chunks) + len(many)
    assert changed["INSERT", "docs"] == chunks + 1
    assert changed["DELETE", "docs"] == chunks + 1
    assert changed["DELETE", "docs_documents"] == deleted + 1
    assert calls["load"] >= sum(what == "INSERT" for what, *_ in first)
    assert calls["finish"] >= sum(what == "DELETE" for what, *_ in last)


def test_a_server_that_soon_ends_idle_transactions_waits_for_a_load_that_reads(
    postgresql: Place, postgres: PgServer, database: str
) -> None:
    store = postgresql.open()
    load(store, document("first"))
    store.close()
    postgres.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '20s'", database)
    postgres.execute("CREATE TABLE seen_setting (value text)", database)
    postgres.execute(_NOTE_SETTING, database)
    for when in ("INSERT ON docs", "DELETE ON docs_documents"):
        of = when.partition(" ")[0]
        postgres.execute(f"CREATE TRIGGER {of} AFTER {when} FOR EACH STATEMENT EXECUTE FUNCTION note()", database)

    load(store, document("a"))
    seen = "SELECT value FROM seen_setting"
    assert {row["value"] for row in postgres.execute(seen, database)} == {"5min"}
    postgres.execute("TRUNCATE docs, seen_setting", database)
    store.prepare(stamp(2), lambda: None)  # forgets the receipts, by the same connection
    assert {row["value"] for row in postgres.execute(seen, database)} == {"20s"}


def test_first_loads_into_tables_of_one_database_at_the_same_time(postgres: PgServer, database: str) -> None:
    workers = 6
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        store = table_store(postgres, database, f"docs{number // 2}")
        together.wait(PATIENCE_S)
        load(store, document(f"d{number}"))
        store.close()

    with ThreadPoolExecutor(workers) as pool:
        for result in [pool.submit(work, number) for number in range(workers)]:
            result.result(60)
    count = "SELECT count(*) FROM docs{}_documents"
    assert [postgres.execute(count.format(n), database)[0][0] for n in range(workers // 2)] == [2, 2, 2]
