"""The order rule in both stores: the same walks as of the model's own dict."""

import sqlite3
from pathlib import Path

import pytest

from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.load import SqliteStore
from tests.dataset_checks import check_whole
from tests.order_world import Content, walk


@pytest.mark.parametrize("seed", range(12))
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
