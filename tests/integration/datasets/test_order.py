"""The order rule in both stores: the same walks as of the model's own dict."""

import sqlite3
from pathlib import Path

import pytest

from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.load import SqliteStore
from tests.dataset_checks import check_whole
from tests.integration.datasets.tables import table_store
from tests.order_world import Content, walk
from tests.pg_server import PgServer
from tests.thorough import some


@pytest.mark.parametrize("seed", some(range(12), 0, 1, 2, 3))
def test_a_file_holds_what_the_ingestions_say_in_the_order_of_their_acceptance(tmp_path: Path, seed: int) -> None:
    file = DatasetFile(tmp_path, "me", "docs")
    store = SqliteStore(file)

    def contents() -> dict[str, Content]:
        path = file.path()
        if path is None:
            return {}
        with sqlite3.connect(path) as db:
            check_whole(db)
            rows = db.execute(
                "SELECT doc_id, content_hash, fingerprint FROM documents JOIN ingestions i ON i.number = loaded_by"
            )
            return {name: (content, fingerprint) for name, content, fingerprint in rows}

    walk(seed, store, contents, 80)
    store.close()


@pytest.mark.parametrize("seed", some(range(100, 103), 100))
def test_tables_hold_what_the_ingestions_say_in_the_order_of_their_acceptance(
    postgres: PgServer, database: str, seed: int
) -> None:
    store = table_store(postgres, database, "docs")

    def contents() -> dict[str, Content]:
        if not postgres.execute("SELECT 1 FROM pg_class WHERE relname = 'docs_dataset'", database):
            return {}
        rows = postgres.execute("SELECT * FROM docs_documents WHERE content_hash <> ''", database)
        counts = postgres.execute("SELECT doc_id, count(*) AS n FROM docs GROUP BY 1", database)
        assert {row["doc_id"]: row["n"] for row in counts} == {
            row["doc_id"]: row["chunks"] for row in rows if row["chunks"]
        }
        return {row["doc_id"]: (row["content_hash"], row["fingerprint"]) for row in rows}

    walk(seed, store, contents, 50)
    store.close()
