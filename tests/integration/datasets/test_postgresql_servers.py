"""Tables of a server that is away, full or not what it should be."""

from collections.abc import Callable, Iterator

import pytest

from tasks.datasets.contents import Contents
from tasks.datasets.loads import DocumentLoad, Verdict
from tasks.datasets.store import Store
from tasks.errors import SinkUnavailable
from tasks.records.api_keys import anonymous_owner
from tests.integration.datasets.loads import Place, document, load, stamp, texts
from tests.integration.datasets.tables import store_at, table_store
from tests.pg_server import PASSWORD, PgServer
from tests.processes import free_port
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


def refusal(store: Store, kind: str) -> str:
    with raises_code(kind) as caught:
        load(store, document("a"))
    store.close()
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}"
    return caught.value.detail


def test_a_server_that_dies_in_the_middle_has_nothing_of_the_load(postgresql: Place, postgres: PgServer) -> None:
    store = postgresql.open()
    load(store, document("a", "old"))

    def documents() -> Iterator[DocumentLoad]:
        yield from (document(f"d{i}") for i in range(300))
        postgres.kill()
        yield document("a", "new")

    with pytest.raises(SinkUnavailable):
        store.load(documents(), stamp(2), lambda: None)
    with pytest.raises(SinkUnavailable, match="refuses connections"):
        store.known(["a"])

    postgres.start()
    assert texts(postgresql.rows()) == {"a": ["old 0", "old 1"]}
    assert load(store, document("a", "new"), by=stamp(2)) == [Verdict.REPLACED]
    assert texts(postgresql.rows()) == {"a": ["new 0", "new 1"]}


def test_a_server_that_ends_our_connection_is_asked_again(postgresql: Place, postgres: PgServer) -> None:
    store = postgresql.open()
    load(store, document("a"))
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )

    with pytest.raises(SinkUnavailable):
        store.known(["a"])
    assert store.known(["a"]).keys() == {"a"}


@pytest.fixture
def of(postgres: PgServer, database: str, opened: list[Store | Contents]) -> Callable[[str], Store]:
    """The table `docs`, opened for an owner."""

    def opening(owner: str) -> Store:
        opened.append(store := table_store(postgres, database, owner=owner))
        return store

    return opening


@pytest.mark.parametrize("maker", [anonymous_owner(0), anonymous_owner(1)])
def test_a_table_that_was_made_without_a_key_is_open_to_all(of: Callable[[str], Store], maker: str) -> None:
    load(of(maker), document("a"))

    load(of("bob"), document("b"), by=stamp(2))
    assert of("ann").known(["a", "b"]).keys() == {"a", "b"}


def test_nobody_there() -> None:
    store = store_at(f"postgresql://u:{PASSWORD}@127.0.0.1:{free_port()}/d")

    assert "'here' refuses connections" in refusal(store, SinkUnavailable.code)


def test_an_extension_that_may_not_be_made(postgres: PgServer, database: str, somebody: str) -> None:
    store = table_store(postgres, database, user=somebody)
    assert "CREATE EXTENSION vector;" in refusal(store, "sink_refused")


def test_a_user_without_rights(postgres: PgServer, database: str, somebody: str) -> None:
    postgres.execute("CREATE EXTENSION vector", database)
    store = table_store(postgres, database, user=somebody)
    assert "CREATE on the schema" in refusal(store, "sink_refused")


def test_an_owner_of_the_database_who_may_not_make_the_extension(
    postgres: PgServer, database: str, somebody: str
) -> None:
    postgres.execute(f"ALTER DATABASE {database} OWNER TO {somebody}")
    store = table_store(postgres, database, user=somebody)
    assert "Have a superuser run in that database: CREATE EXTENSION vector;" in refusal(store, "sink_refused")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("REVOKE DELETE ON docs FROM {user}", 'may not change the table "public"."docs". Grant it SELECT, INSERT'),
        ("REVOKE INSERT ON docs_documents FROM {user}", 'may not change the table "public"."docs_documents"'),
    ],
)
def test_rights_are_looked_at_before_anything_is_loaded(
    postgresql: Place, postgres: PgServer, database: str, sql: str, said: str
) -> None:
    somebody = made(postgres)
    load(postgresql.open(), document("a"))
    postgres.execute(
        f"GRANT ALL ON docs, docs_documents, docs_ingestions, docs_unread, docs_dataset TO {somebody}", database
    )
    postgres.execute(sql.format(user=somebody, database=database), database)
    store = table_store(postgres, database, user=somebody)
    with raises_code("sink_refused") as refused:
        store.prepare(stamp(2), lambda: None)
    store.close()
    assert said in refused.value.detail


def test_a_missing_schema(postgres: PgServer, database: str) -> None:
    assert "no such schema" in refusal(table_store(postgres, database, "no.docs"), "sink_refused")


def test_no_connection_to_be_had(postgres: PgServer, database: str, somebody: str) -> None:
    postgres.execute(f"ALTER DATABASE {database} CONNECTION LIMIT 0")
    store = table_store(postgres, database, user=somebody)
    assert "53300" in refusal(store, SinkUnavailable.code)


def test_a_table_of_somebody_else(postgres: PgServer, database: str) -> None:
    postgres.execute("CREATE TABLE docs (id integer)", database)

    assert "is not one of this embedq's" in refusal(table_store(postgres, database), "sink_refused")


def test_a_table_of_another_embedq(postgres: PgServer, database: str) -> None:
    store = table_store(postgres, database)
    load(store, document("a"))
    postgres.execute("ALTER TABLE docs_documents DROP COLUMN listed, DROP COLUMN how", database)
    said = refusal(store, "sink_refused")
    assert "not one of this embedq's: it lacks listed, how. Name another table" in said
    store.close()


def test_too_many_dimensions(postgres: PgServer, database: str) -> None:
    store = table_store(postgres, database)
    with raises_code("sink_refused", match="16,000"):
        load(store, by=stamp(dimension=16_001))
    store.close()


def test_vectors_of_another_shape_are_a_defect(place: Place) -> None:
    with pytest.raises(ValueError, match="shape"):
        load(place.open(), document("a"), by=stamp(dimension=9))
    assert place.rows() == []
