"""A load into tables works in small statements, and two may begin at the same time."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from tasks.datasets.loads import Verdict
from tasks.datasets.postgresql.load import ROWS
from tests.integration.datasets.loads import Place, document, load, stamp, unchanged
from tests.integration.datasets.tables import table_store
from tests.pg_server import PgServer
from tests.processes import PATIENCE_S

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


@pytest.mark.parametrize(
    "statement", ["CREATE EXTENSION vector", 'CREATE TABLE docs_documents (doc_id text COLLATE "C" PRIMARY KEY)']
)
async def test_somebody_else_who_creates_the_same(
    statement: str, postgresql: Place, postgres: PgServer, database: str
) -> None:
    other = await asyncpg.connect(postgres.url(database))
    transaction = other.transaction()
    await transaction.start()
    await other.execute(statement)
    waiting = "SELECT true FROM pg_locks WHERE NOT granted"
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load, postgresql.open(), document("a"))
        while not await other.fetchval(waiting):
            assert not loading.done()
        await (transaction.commit() if "EXTENSION" in statement else transaction.rollback())
        assert loading.result(60) == [Verdict.LOADED]
    await other.close()
