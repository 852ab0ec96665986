"""The PostgreSQL sink when the server is away, full or not what it should be."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stack.testing import free_port
from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink
from tasks.documents.sinks.sink import LoadDocument, LoadOutcome, Sink
from tasks.errors import Invalid, SinkUnavailable
from tasks.ledger.redis_keys import ANONYMOUS
from tests.integration.documents.sinks.loads import Place, document, load, stamp, texts
from tests.pg_server import PASSWORD, PgServer
from tests.raises_code import raises_code

USER = "somebody"


def made(postgres: PgServer) -> str:
    """A user who may do nothing in particular."""
    postgres.execute(
        f"DO $$ BEGIN CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    return USER


@pytest.fixture
def somebody(postgres: PgServer) -> str:
    return made(postgres)


def refusal(sink: Sink, kind: str) -> str:
    with raises_code(kind) as caught:
        load(sink, document("a"))
    sink.close()
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}"
    return caught.value.detail


def test_a_server_that_dies_in_the_middle_has_nothing_of_the_load(postgresql: Place, postgres: PgServer) -> None:
    sink = postgresql.open()
    load(sink, document("a", "old"))

    def documents() -> Iterator[LoadDocument]:
        yield from (document(f"d{i}") for i in range(300))
        postgres.kill()
        yield document("a", "new")

    with pytest.raises(SinkUnavailable):
        sink.load(documents(), stamp(2), lambda: None)
    with pytest.raises(SinkUnavailable, match="does not answer"):
        sink.known(["a"])

    postgres.start()
    assert texts(postgresql.rows()) == {"a": ["old 0", "old 1"]}
    assert load(sink, document("a", "new"), by=stamp(2)) == {"a": [LoadOutcome.REPLACED]}
    assert texts(postgresql.rows()) == {"a": ["new 0", "new 1"]}


def test_a_server_that_ends_our_connection_is_asked_again(postgresql: Place, postgres: PgServer) -> None:
    sink = postgresql.open()
    load(sink, document("a"))
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )

    with pytest.raises(SinkUnavailable):
        sink.known(["a"])
    assert sink.known(["a"]).keys() == {"a"}


def test_a_table_belongs_to_the_key_that_made_it(
    postgres: PgServer, database: str, opened: list[Sink], postgresql: Place
) -> None:
    def of(owner: str, table: str = "docs") -> Sink:
        opened.append(PostgresSink("here", postgres.url(database), table, owner=owner))
        return opened[-1]

    load(of("ann"), document("a", "of ann"))
    refused = of("bob")
    for attempt in (
        lambda: refused.prepare(stamp(2), lambda: None),
        lambda: refused.known(["a"]),
        lambda: load(refused, document("a", "of bob"), by=stamp(2)),
        lambda: refused.keep_only(lambda: iter(()), stamp(2), lambda: None),
    ):
        with raises_code("sink_refused", match="belongs to another API key") as caught:
            attempt()
        assert "ann" not in caught.value.detail.replace("another", "")
    assert texts(postgresql.rows()) == {"a": ["of ann 0", "of ann 1"]}

    load(of("ann"), document("b"), by=stamp(3))
    load(of(""), document("c"), by=stamp(4))  # the limits of the key name the table
    assert set(texts(postgresql.rows())) == {"a", "b", "c"}
    # What was made without a key, or before tables had owners, is open to all.
    load(of(ANONYMOUS, "open"), document("a"))
    load(of("bob", "open"), document("b"), by=stamp(2))
    assert of("ann", "open").known(["a", "b"]).keys() == {"a", "b"}


def test_of_two_keys_that_make_a_table_at_once_one_has_it(postgres: PgServer, database: str) -> None:
    sinks = [PostgresSink("here", postgres.url(database), "docs", owner=owner) for owner in ("ann", "bob", "eve")]

    def make(sink: Sink) -> bool:
        try:
            load(sink, document("a"))
        except Invalid:
            return False
        return True

    with ThreadPoolExecutor() as threads:
        assert sum(threads.map(make, sinks)) == 1
    for sink in sinks:
        sink.close()


def test_nobody_there() -> None:
    sink = PostgresSink("here", f"postgresql://u:{PASSWORD}@127.0.0.1:{free_port()}/d", "docs")

    assert "'here' does not answer" in refusal(sink, SinkUnavailable.code)


def test_an_extension_that_may_not_be_made(postgres: PgServer, database: str, somebody: str) -> None:
    sink = PostgresSink("here", postgres.url(database, user=somebody), "docs")
    assert "CREATE EXTENSION vector;" in refusal(sink, "sink_refused")


def test_a_user_without_rights(postgres: PgServer, database: str, somebody: str) -> None:
    postgres.execute("CREATE EXTENSION vector", database)
    sink = PostgresSink("here", postgres.url(database, user=somebody), "docs")
    assert "CREATE on the schema" in refusal(sink, "sink_refused")


def test_an_owner_of_the_database_who_may_not_make_the_extension(
    postgres: PgServer, database: str, somebody: str
) -> None:
    postgres.execute(f"ALTER DATABASE {database} OWNER TO {somebody}")
    sink = PostgresSink("here", postgres.url(database, user=somebody), "docs")
    assert "Have a superuser run in that database: CREATE EXTENSION vector;" in refusal(sink, "sink_refused")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("REVOKE DELETE ON docs FROM {user}", 'may not change the table "docs". Grant it SELECT, INSERT'),
        ("REVOKE INSERT ON docs_documents FROM {user}", 'may not change the table "docs_documents"'),
        ("REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC", "Grant it TEMPORARY"),
    ],
)
def test_rights_are_looked_at_before_anything_is_loaded(
    postgresql: Place, postgres: PgServer, database: str, sql: str, said: str
) -> None:
    somebody = made(postgres)
    load(postgresql.open(), document("a"))
    postgres.execute(f"GRANT ALL ON docs, docs_documents TO {somebody}", database)
    postgres.execute(sql.format(user=somebody, database=database), database)
    sink = PostgresSink("here", postgres.url(database, user=somebody), "docs")
    with raises_code("sink_refused") as refused:
        sink.prepare(stamp(2), lambda: None)
    sink.close()
    assert said in refused.value.detail


def test_a_schema_of_its_own(postgres: PgServer, database: str, somebody: str) -> None:
    postgres.execute("CREATE EXTENSION vector", database)
    postgres.execute(f"CREATE SCHEMA mine AUTHORIZATION {somebody}", database)
    sink = PostgresSink("here", postgres.url(database, user=somebody), "mine.Docs")

    load(sink, document("a"))
    sink.close()
    assert postgres.execute('SELECT count(*) FROM mine."Docs"', database)[0][0] == 2


def test_a_missing_schema(postgres: PgServer, database: str) -> None:
    assert "no such schema" in refusal(PostgresSink("here", postgres.url(database), "no.docs"), "sink_refused")


def test_no_connection_to_be_had(postgres: PgServer, database: str, somebody: str) -> None:
    postgres.execute(f"ALTER DATABASE {database} CONNECTION LIMIT 0")
    sink = PostgresSink("here", postgres.url(database, user=somebody), "docs")
    assert "53300" in refusal(sink, SinkUnavailable.code)


def test_a_table_of_somebody_else(postgres: PgServer, database: str) -> None:
    postgres.execute("CREATE TABLE docs (id integer)", database)

    assert "is not one of this embedq's" in refusal(
        PostgresSink("here", postgres.url(database), "docs"), "sink_refused"
    )


def test_a_table_of_another_embedq(postgres: PgServer, database: str) -> None:
    sink = PostgresSink("here", postgres.url(database), "docs")
    load(sink, document("a"))
    postgres.execute("ALTER TABLE docs_documents DROP COLUMN ingestion_order, DROP COLUMN vectors", database)
    said = refusal(sink, "sink_refused")
    assert "not one of this embedq's: it lacks ingestion_order, vectors. Name another table" in said
    sink.close()


def test_too_many_dimensions(postgres: PgServer, database: str) -> None:
    sink = PostgresSink("here", postgres.url(database), "docs")
    with raises_code("sink_refused", match="16,000"):
        load(sink, by=stamp(dimension=16_001))
    sink.close()


def test_vectors_of_another_shape_are_a_defect(place: Place) -> None:
    with pytest.raises(ValueError, match="shape"):
        load(place.open(), document("a"), by=stamp(dimension=9))
    assert place.rows() == []
