"""The PostgreSQL sink works in small statements, and two may begin at the same time."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from stack.testing import PATIENCE_S
from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink
from tasks.documents.sinks.postgresql.table_rows import ROWS
from tasks.documents.sinks.sink import LoadOutcome
from tests.integration.documents.sinks.loads import Place, document, load, stamp
from tests.pg_server import PgServer

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
    """A sink whose server notes how many rows each statement has changed."""
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
    sink = watched.open()
    calls = Counter[str]()

    sink.load(iter([large, *many]), stamp(1), lambda: calls.update(["load"]))
    sink.load(iter([document("large", "new", chunks=1)]), stamp(2, fingerprint="e" * 64), lambda: None)
    deleted = sink.keep_only(lambda: iter(["first"]), stamp(3), lambda: calls.update(["keep_only"]))

    assert deleted == 1 + len(many)
    noted = [tuple(row) for row in postgres.execute("SELECT what, on_table, rows FROM statements", database)]
    assert max(rows for *_, rows in noted) <= ROWS
    changed = Counter[tuple[str, str]]()
    for what, table, rows in noted:
        changed[what, table] += rows
    chunks = len(large.chunks) + len(many)
    assert changed["INSERT", "docs"] == chunks + 1
    assert changed["DELETE", "docs"] == chunks + 1
    assert changed["DELETE", "docs_documents"] == deleted
    assert calls["load"] >= sum(1 for what, table, _ in noted if (what, table) == ("INSERT", "docs"))
    assert calls["keep_only"] >= sum(1 for what, table, _ in noted if (what, table) == ("DELETE", "docs_documents"))


def test_a_server_that_soon_ends_idle_transactions_waits_for_a_load_that_reads(
    postgresql: Place, postgres: PgServer, database: str
) -> None:
    sink = postgresql.open()
    load(sink, document("first"))
    sink.close()
    postgres.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '20s'", database)
    postgres.execute("CREATE TABLE seen_setting (value text)", database)
    postgres.execute(_NOTE_SETTING, database)
    postgres.execute("CREATE TRIGGER i AFTER INSERT ON docs FOR EACH STATEMENT EXECUTE FUNCTION note()", database)

    load(sink, document("a"))
    assert postgres.execute("SELECT DISTINCT value FROM seen_setting", database)[0][0] == "5min"
    assert postgres.execute("SHOW idle_in_transaction_session_timeout", database)[0][0] == "20s"


def test_first_loads_into_tables_of_one_database_at_the_same_time(postgres: PgServer, database: str) -> None:
    workers = 6
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        sink = PostgresSink("here", postgres.url(database), f"docs{number // 2}")
        together.wait(PATIENCE_S)
        load(sink, document(f"d{number}"))
        sink.close()

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
        assert loading.result(60) == {"a": [LoadOutcome.LOADED]}
    await other.close()
