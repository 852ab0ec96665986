"""Which sink a request means, and which it cannot mean."""

import subprocess
import sys
from typing import Any

import pytest

from tasks.documents.sinks.parquet.parquet_sink import ParquetSink
from tasks.documents.sinks.postgresql.postgresql_sink import PostgresSink
from tasks.documents.sinks.postgresql.table import Table
from tasks.documents.sinks.sink import Sink
from tasks.documents.sinks.sink_kinds import SinkAccess, check_sink, open_sink
from tasks.storage.storage import Storage
from tests.raises_code import raises_code
from tests.source_tree import CHECKOUT
from worker_config.settings import Settings

POSTGRESQL = {"type": "postgresql", "name": "prod", "table": "docs"}


@pytest.fixture
def settings() -> Settings:
    return Settings(sinks="prod=postgresql://u:secret@host/db")


def opened(spec: dict[str, Any], settings: Settings) -> Sink:
    storage = Storage.open("memory://sinks")
    return open_sink(spec, SinkAccess("a", "ing_1", storage, settings))


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ({"type": "parquet"}, ParquetSink),
        ({"type": "parquet", "dataset": "A.b"}, ParquetSink),
        (POSTGRESQL, PostgresSink),
    ],
)
def test_known_sinks_are_opened_without_a_connection(
    spec: dict[str, Any], kind: type[Sink], settings: Settings
) -> None:
    sink = opened(spec, settings)
    assert isinstance(sink, kind)
    sink.close()


@pytest.mark.parametrize(
    ("spec", "error", "param"),
    [
        ({}, "invalid_value", "sink.type"),
        ({"type": "csv"}, "invalid_value", "sink.type"),
        ({"type": "parquet", "dataset": "a/b"}, "invalid_value", "sink.dataset"),
        ({"type": "parquet", "dataset": ""}, "invalid_value", "sink.dataset"),
        ({"type": "parquet", "dataset": "x" * 129}, "invalid_value", "sink.dataset"),
        ({"type": "parquet", "dataset": 7}, "invalid_value", "sink.dataset"),
        (POSTGRESQL | {"table": "a;b"}, "invalid_value", "sink.table"),
        ({"type": "postgresql", "name": "prod"}, "invalid_value", "sink.table"),
        (POSTGRESQL | {"name": "test"}, "sink_refused", "sink.name"),
    ],
)
def test_others_are_refused(spec: dict[str, Any], error: str, param: str, settings: Settings) -> None:
    with raises_code(error) as caught:
        check_sink(spec, settings)
    assert caught.value.param == param
    assert "secret" not in caught.value.detail


WITHOUT_ASYNCPG = """
import sys
sys.modules["asyncpg"] = None
from tasks.documents.sinks.sink_kinds import SinkAccess, open_sink
from tasks.errors import Invalid
from tasks.storage.storage import Storage
from worker_config.settings import Settings

settings = Settings(sinks="prod=postgresql://u@host/db")
def opened(spec):
    return open_sink(spec, SinkAccess("a", "ing_1", Storage.open("memory://sinks"), settings))

print(type(opened({"type": "parquet"})).__name__)
try:
    opened({"type": "postgresql", "name": "prod", "table": "docs"})
except Invalid as refused:
    print(refused.detail)
"""


def test_without_asyncpg_a_parquet_sink_opens_and_the_other_names_its_install_command() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_ASYNCPG], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    opened, refused = run.stdout.splitlines()
    assert opened == "ParquetSink"
    assert 'pip install "embedq[postgresql]"' in refused


@pytest.mark.parametrize(
    ("text", "rows", "documents"),
    [
        ("docs", '"docs"', '"docs_documents"'),
        ("public.Docs_2", '"public"."Docs_2"', '"public"."Docs_2_documents"'),
        ("x" * 50, f'"{"x" * 50}"', f'"{"x" * 50}_documents"'),
    ],
)
def test_names_of_tables(text: str, rows: str, documents: str) -> None:
    table = Table.from_text(text)
    assert (table.rows, table.documents) == (rows, documents)
    assert len(documents.rpartition(".")[2]) <= 65  # PostgreSQL would cut it without a word, at 63 and the quotes


@pytest.mark.parametrize("text", ["", "1a", "a b", 'a"b', "a.b.c", ".a", "a.", "é", "x" * 51, "a\n"])
def test_what_is_no_name_of_a_table(text: str) -> None:
    with raises_code("invalid_value", match=r"sink\.table"):
        Table.from_text(text)
