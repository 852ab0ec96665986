"""What tables of PostgreSQL have of their own: names, owners, rights, and a server that is away or full."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tasks.datasets.contents import ExportPart
from tasks.datasets.loads import DocumentLoad, Verdict
from tasks.datasets.places import open_datasets
from tasks.datasets.postgresql.connection import Connection, Database
from tasks.datasets.postgresql.load import PostgresStore
from tasks.datasets.postgresql.schema import Access, TableName
from tasks.datasets.postgresql.search import PostgresContents
from tasks.errors import Invalid, SinkUnavailable
from tests.integration.datasets.loads import document, load, stamp
from tests.pg_server import PASSWORD, PgServer
from tests.processes import PATIENCE_S, free_port
from tests.raises_code import raises_code
from worker_config.settings import Settings

AWAY = SinkUnavailable.code
HERE = f"u:{PASSWORD}@127.0.0.1"
USER = "somebody"
MAKE_USER = (
    f"DO $$ BEGIN CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
)
TABLES = "docs, docs_documents, docs_ingestions, docs_unread, docs_dataset"

Open = Callable[..., PostgresStore]


def store_at(url: str, table: str = "docs", *, owner: str = "me", anywhere: bool = False) -> PostgresStore:
    return PostgresStore(Database(url, "here"), TableName.from_text(table), Access(owner, anywhere))


@pytest.fixture
def table(postgres: PgServer, database: str) -> Iterator[Open]:
    opened = list[PostgresStore]()

    def opening(table: str = "docs", *, user: str = "postgres", **access: Any) -> PostgresStore:
        opened.append(store := store_at(postgres.url(database, user=user), table, **access))
        return store

    yield opening
    for store in opened:
        store.close()


def texts(postgres: PgServer, database: str) -> dict[str, list[str]]:
    """As somebody reads them who knows the table alone."""
    found: dict[str, list[str]] = {}
    for row in postgres.execute("SELECT doc_id, text FROM docs ORDER BY doc_id, chunk_index", database):
        found.setdefault(row["doc_id"], []).append(row["text"])
    return found


def test_one_table_under_two_spellings_is_one(table: Open, postgres: PgServer, database: str) -> None:
    load(table(), document("first"))
    together = threading.Barrier(2)

    def work(number: int) -> None:
        store = table(("docs", "public.docs")[number])
        together.wait(PATIENCE_S)
        load(store, *(document(f"d{n}", f"{number} {n}", chunks=3 + number) for n in range(200)), by=stamp(2 + number))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    found = texts(postgres, database)
    assert all(found[f"d{n}"] == [f"1 {n} {at}" for at in range(4)] for n in range(200))


@pytest.mark.parametrize("how", ["DROP TABLE docs", "TRUNCATE docs", "DELETE FROM docs"])
def test_chunks_that_somebody_else_has_removed_are_loaded_anew(
    table: Open, postgres: PgServer, database: str, how: str
) -> None:
    store = table()
    seen = store.prepare(stamp(1), lambda: None)
    load(store, document("a"), document("b"), by=replace(stamp(1), dataset_id=seen))
    postgres.execute(how, database)
    with raises_code("dataset_deleted", match="start a new ingestion"):
        load(store, document("c"), by=replace(stamp(1), dataset_id=seen))
    assert store.prepare(stamp(2), lambda: None) != seen
    assert store.known(["a", "b"]) == {}
    assert load(store, document("a"), by=stamp(2)) == [Verdict.LOADED]
    assert texts(postgres, database).keys() == {"a"}


def test_a_table_belongs_to_the_key_that_made_it(table: Open, postgres: PgServer, database: str) -> None:
    load(table(owner="a"), document("x"))
    access = Database(postgres.url(database), "here"), TableName.from_text("docs"), Access("b", anywhere=False)
    other, contents = table(owner="b"), PostgresContents("docs", *access)
    for use in (
        lambda: load(other, document("x", "new"), by=stamp(2)),
        lambda: other.known(["x"]),
        contents.head,
        lambda: contents.documents(-1, 1),
        lambda: contents.chunks(-1, 1),
        contents.export_parts,
        lambda: contents.export_rows(ExportPart(0, 1)),
        lambda: contents.nearest(np.ones(8), 1, None, lambda: False),
        lambda: contents.words("new", 1, None, lambda: False),
    ):
        with raises_code("sink_refused", match="another API key"):
            use()
    contents.close()
    assert load(table(owner="c", anywhere=True), document("x", "new"), by=stamp(3)) == [Verdict.REPLACED]


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a;b", "a.b.c", ".a", "1a", "a" * 51, "ä", "a\n"])
def test_what_is_no_name_of_a_table_is_refused(name: str) -> None:
    with raises_code("invalid_value", match="sink.table must be table or schema.table"):
        TableName.from_text(name)


def test_a_server_that_dies_in_the_middle_has_nothing_of_the_load(
    table: Open, postgres: PgServer, database: str
) -> None:
    store = table()
    load(store, document("a", "old"))
    ends = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    postgres.execute(ends)
    with pytest.raises(SinkUnavailable):
        store.known(["a"])
    assert store.known(["a"]).keys() == {"a"}, "it is asked again"

    def documents() -> Iterator[DocumentLoad]:
        yield from (document(f"d{i}") for i in range(300))
        postgres.kill()
        yield document("a", "new")

    with pytest.raises(SinkUnavailable):
        store.load(documents(), stamp(2), lambda: None)
    with pytest.raises(SinkUnavailable, match="refuses connections"):
        store.known(["a"])
    postgres.start()
    assert texts(postgres, database) == {"a": ["old 0", "old 1"]}
    assert load(store, document("a", "new"), by=stamp(2)) == [Verdict.REPLACED]
    assert texts(postgres, database) == {"a": ["new 0", "new 1"]}


def said(store: PostgresStore, kind: str) -> str:
    with closing(store), raises_code(kind) as caught:
        load(store, document("a"), by=stamp(2))
    shown = f"{caught.value!r} {caught.value.detail} {caught.value.__cause__!r}"
    assert PASSWORD not in shown
    assert "//u:" not in shown
    return caught.value.detail


@pytest.mark.parametrize(
    "url",
    [
        *(f"mysql://{HERE}/d", f"postgresql://{HERE}:port/d", f"postgresql://{HERE}:1,2,3/d"),
        *(f"postgresql://u:{PASSWORD}@[127.0.0.1/d", f"postgresql://{HERE}/d?sslmode=perhaps"),
        *(f"postgresql://{HERE}/d?sslmode", f"postgresql://{HERE}/d?ssl_min_protocol_version=TLSv9"),
        f"postgresql://{HERE}/d?target_session_attrs=whatever",
        f"postgresql://{HERE}/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    mend = "Mend it in EMBEDQ_SINKS, restart the processes that have it, then retry."
    found = said(store_at(url), "sink_refused")
    assert re.fullmatch(f"The URL of the database of sink 'here' .*{mend}", found)


def test_a_url_that_does_not_fit_its_server_is_refused(postgres: PgServer, database: str) -> None:
    dead = f"postgresql://{HERE}:{free_port()}/d", f"postgresql://u:{PASSWORD}@no-such-host.invalid/d"
    for url, sentence in zip(dead, ("'here' refuses connections", "host name that cannot be resolved"), strict=True):
        assert sentence in said(store_at(url), AWAY)
    for url, sentence in (
        (postgres.url(database) + "?no_such_parameter=1", "has a parameter that its server does not take"),
        (postgres.url(database) + "?sslmode=require", "which its server does not speak"),
        (postgres.url(database, user="nobody_here"), "check them in EMBEDQ_SINKS"),
        (postgres.url("nowhere"), "does not exist; create it"),
    ):
        assert sentence in said(store_at(url), "sink_refused")


@pytest.mark.parametrize(
    ("statements", "name", "kind", "sentence"),
    [
        ([], "docs", "sink_refused", "CREATE EXTENSION vector;"),
        (["CREATE EXTENSION vector"], "docs", "sink_refused", "CREATE on the schema"),
        (["CREATE EXTENSION vector"], "no.docs", "sink_refused", "no such schema"),
        (
            ["ALTER DATABASE {database} OWNER TO somebody"],
            "docs",
            "sink_refused",
            "Have a superuser run in that database",
        ),
        (["ALTER DATABASE {database} CONNECTION LIMIT 0"], "docs", AWAY, "53300"),
    ],
    ids=["no extension", "no rights", "no schema", "owner of the database", "no connection"],
)
def test_what_an_operator_has_to_mend(
    table: Open, postgres: PgServer, database: str, *, statements: list[str], name: str, kind: str, sentence: str
) -> None:
    postgres.execute(MAKE_USER)
    for statement in statements:
        postgres.execute(statement.format(database=database), database)
    assert sentence in said(table(name, user=USER), kind)


@pytest.mark.parametrize(
    ("statement", "user", "sentence"),
    [
        (
            f"REVOKE DELETE ON docs FROM {USER}",
            USER,
            'may not change the table "public"."docs". Grant it SELECT, INSERT',
        ),
        (f"REVOKE INSERT ON docs_documents FROM {USER}", USER, 'may not change the table "public"."docs_documents"'),
        ("ALTER TABLE docs_documents DROP COLUMN how", "postgres", "it lacks how. Name another table"),
        (f"DROP TABLE {TABLES}; CREATE TABLE docs (id int)", "postgres", "is not one of this embedq's"),
        (f"DROP TABLE {TABLES}; CREATE TABLE docs_documents (mine text)", "postgres", "not one of this embedq's"),
    ],
)
def test_tables_that_cannot_be_used_are_left_alone(
    table: Open, postgres: PgServer, database: str, *, statement: str, user: str, sentence: str
) -> None:
    load(table(), document("a"))
    postgres.execute(MAKE_USER)
    for each in (f"GRANT ALL ON {TABLES} TO {USER}", *statement.split("; ")):
        postgres.execute(each, database)
    with raises_code("sink_refused") as refused:
        table(user=user).prepare(stamp(2), lambda: None)
    assert sentence in refused.value.detail
    with raises_code("sink_refused", match="16,000"):
        load(table("other"), by=stamp(dimension=16_001))


@pytest.mark.parametrize(
    ("state", "kind", "sentence"),
    [
        ("25006", AWAY, "takes no writes at present"),
        ("40P01", AWAY, "gave way to another transaction"),
        ("53000", AWAY, "lacks resources"),
        ("53100", AWAY, "has no room left on its disk"),
        ("55P03", AWAY, "waiting for a lock"),
        ("57014", AWAY, "took too long over it"),
        ("57P03", AWAY, "is starting up or shutting down"),
        ("22P05", "sink_refused", "use a database with the encoding UTF8"),
        ("23514", "sink_refused", "a constraint or a trigger"),
        ("42501", "sink_refused", "grant CONNECT"),
        ("42703", "sink_refused", "name another table"),
        ("58P01", "sink_refused", "install pgvector"),
        ("XX001", "sink_refused", "its log says why"),
    ],
)
def test_what_passes_is_waited_for_and_what_does_not_is_refused(
    state: str, kind: str, sentence: str, postgres: PgServer
) -> None:
    raises = "DO $$ BEGIN RAISE EXCEPTION 'a value of a row' USING ERRCODE = '{}'; END $$"
    with closing(Connection(Database(postgres.url(), "here"))) as here:
        with raises_code(kind, match=rf"'here' .*{sentence}.*{state}\)") as caught:
            here.run(lambda connection: connection.execute(raises.format(state)))
        assert "a value of a row" not in f"{caught.value.detail} {caught.value.__cause__}"
        assert kind != AWAY or "Nothing is half done" in caught.value.detail


def test_of_a_servers_own_database_its_setting_is_named(postgres: PgServer) -> None:
    refused = "The database of EMBEDQ_DATASETS refuses the user or the password; check them in EMBEDQ_DATASETS"
    with raises_code("sink_refused", match=refused) as caught:
        open_datasets(Settings(datasets=postgres.url(password=f"{PASSWORD}x"))).names("me")
    assert PASSWORD not in f"{caught.value!r} {caught.value.detail} {caught.value.__cause__!r}"
    assert (isinstance(caught.value, Invalid) and caught.value.param) == "sink.dataset", "a request knows the dataset"
