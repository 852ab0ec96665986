"""What becomes of errors of PostgreSQL: some pass, some have to be mended, and none shows a password."""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tasks.datasets.places import open_datasets
from tasks.datasets.postgresql.connection import Connection, Database
from tasks.errors import Invalid, SinkUnavailable
from tests.integration.datasets.loads import document, load
from tests.integration.datasets.tables import store_at
from tests.pg_server import PASSWORD, PgServer
from tests.raises_code import raises_code
from worker_config.settings import Settings


def said(url: str, kind: str) -> str:
    store = store_at(url)
    with raises_code(kind) as caught:
        load(store, document("a"))
    store.close()
    shown = f"{caught.value!r} {caught.value.detail} {caught.value.__cause__!r}"
    assert PASSWORD not in shown
    assert "//u:" not in shown
    return caught.value.detail


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://u:{PASSWORD}@127.0.0.1/d",
        f"postgresql://u:{PASSWORD}@127.0.0.1:port/d",
        f"postgresql://u:{PASSWORD}@127.0.0.1:1,2,3/d",
        f"postgresql://u:{PASSWORD}@[127.0.0.1/d",
        f"postgresql://u:{PASSWORD}@127.0.0.1/d?sslmode=perhaps",
        f"postgresql://u:{PASSWORD}@127.0.0.1/d?sslmode",
        f"postgresql://u:{PASSWORD}@127.0.0.1/d?ssl_min_protocol_version=TLSv9",
        f"postgresql://u:{PASSWORD}@127.0.0.1/d?target_session_attrs=whatever",
        f"postgresql://u:{PASSWORD}@127.0.0.1/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    mend = "Mend it in EMBEDQ_SINKS, restart the processes that have it, then retry."
    assert re.fullmatch(f"The URL of the database of sink 'here' .*{mend}", said(url, "sink_refused"))


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("?no_such_parameter=1", "has a parameter that its server does not take"),
        ("?DateStyle=nonsense", "has a parameter that its server does not take"),
        ("?sslmode=require", r"asks for TLS \(sslmode\), which its server does not speak"),
    ],
)
def test_a_url_that_does_not_fit_its_server_is_refused(
    option: str, sentence: str, postgres: PgServer, database: str
) -> None:
    assert re.search(sentence, said(postgres.url(database) + option, "sink_refused"))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"password": f"{PASSWORD}x"}, "check them in EMBEDQ_SINKS"),
        ({"user": "nobody_here"}, "check them in EMBEDQ_SINKS"),
        ({"database": "nowhere"}, "does not exist; create it"),
    ],
)
def test_what_an_operator_has_to_mend(wrong: dict[str, str], sentence: str, postgres: PgServer, database: str) -> None:
    assert sentence in said(postgres.url(**{"database": database} | wrong), "sink_refused")


def test_a_host_without_an_address_is_waited_for() -> None:
    url = f"postgresql://u:{PASSWORD}@no-such-host.invalid/d"
    assert "host name that cannot be resolved" in said(url, SinkUnavailable.code)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("08006", "broke the connection"),
        ("25006", "takes no writes at present"),
        ("25P03", "stood idle"),
        ("25P04", "took too long"),
        ("40001", "gave way to another transaction"),
        ("40P01", "gave way to another transaction"),
        ("53000", "lacks resources"),
        ("53100", "has no room left on its disk"),
        ("53200", "is out of memory"),
        ("53300", "has no connection to spare"),
        ("53400", "has reached a limit"),
        ("55000", "does not take connections or writes"),
        ("55006", "has something in use"),
        ("55P03", "waiting for a lock"),
        ("57014", "took too long over it"),
        ("57P01", "was shut down"),
        ("57P02", "crashed"),
        ("57P03", "is starting up or shutting down"),
        ("57P05", "was interrupted by its operator"),
        ("58000", "an error of its system"),
        ("58030", "an error of its disk"),
    ],
)
def test_what_passes_is_waited_for(state: str, sentence: str, raising: Connection) -> None:
    with pytest.raises(SinkUnavailable, match=rf"'here' .*{sentence}.*\({state}\). Nothing is half done"):
        raising.run(lambda connection: raised(connection, state))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("0A000", "lacks something"),
        ("22P05", "use a database with the encoding UTF8"),
        ("23514", "a constraint or a trigger"),
        ("28000", "check them in EMBEDQ_SINKS"),
        ("3F000", "no such schema"),
        ("42501", "grant CONNECT"),
        ("42703", "name another table"),
        ("42P01", "retry"),
        ("58P01", "install pgvector"),
        ("P0001", "its log says why"),
        ("XX001", "its log says why"),
    ],
)
def test_what_does_not_pass_is_refused(state: str, sentence: str, raising: Connection) -> None:
    with raises_code("sink_refused", match=rf"'here' .*{sentence}.*{state}\)") as caught:
        raising.run(lambda connection: raised(connection, state))
    assert "a value of a row" not in f"{caught.value.detail} {caught.value.__cause__!r}"


@pytest.mark.parametrize(
    ("url", "code", "sentence"),
    [
        (f"postgresql://u:{PASSWORD}@127.0.0.1:port/d", "sink_refused", "Mend it in EMBEDQ_DATASETS"),
        (
            f"postgresql://u:{PASSWORD}@127.0.0.1:1/d",
            "sink_unavailable",
            "The database of EMBEDQ_DATASETS refuses connections",
        ),
    ],
)
def test_of_a_servers_own_database_its_setting_is_named(url: str, code: str, sentence: str) -> None:
    with raises_code(code, match=sentence) as caught:
        open_datasets(Settings(datasets=url)).names("me")
    assert PASSWORD not in f"{caught.value!r} {caught.value.detail} {caught.value.__cause__!r}"


def test_of_a_servers_own_database_a_request_knows_the_dataset(postgres: PgServer) -> None:
    refused = "The database of EMBEDQ_DATASETS refuses the user or the password; check them in EMBEDQ_DATASETS"
    with closing(Connection(Database(postgres.url()))) as own, raises_code("sink_refused", match=refused) as caught:
        own.run(lambda connection: raised(connection, "28000"))
    assert isinstance(caught.value, Invalid)
    assert caught.value.param == "sink.dataset"


@pytest.fixture
def raising(postgres: PgServer) -> Iterator[Connection]:
    connection = Connection(Database(postgres.url(), "here"))
    yield connection
    connection.close()


async def raised(connection: Any, state: str) -> None:
    await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'a value of a row' USING ERRCODE = '{state}'; END $$")
