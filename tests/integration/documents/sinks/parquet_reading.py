"""A Parquet dataset as its users get it: the parts of the present version, downloaded into a folder."""

from pathlib import Path

import pyarrow.dataset

from tasks.records import datasets
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage
from tests.integration.documents.sinks.loads import Row

OWNER, DATASET = "alice", "A.handbook"


def present(storage: Storage, dataset: str = DATASET) -> Catalog | None:
    found = datasets.present(storage, OWNER, dataset).catalog
    return found if found.exists else None


def download(storage: Storage, catalog: Catalog, folder: Path) -> list[Path]:
    """Files under the names that users know."""
    folder.mkdir()
    for part in catalog.listed:
        (folder / part.name).write_bytes(b"".join(storage.chunks(part.stored)))
        assert storage.size_bytes(part.stored) == part.size_bytes
    return sorted(folder.iterdir())


def rows_of(storage: Storage, catalog: Catalog | None, folder: Path) -> list[Row]:
    if catalog is None or not catalog.listed:
        return []
    files = download(storage, catalog, folder)
    table = pyarrow.dataset.dataset([str(file) for file in files]).to_table()
    assert table.num_rows == sum(part.rows for part in catalog.parts)
    found: list[Row] = table.sort_by([("doc_id", "ascending"), ("chunk_index", "ascending")]).to_pylist()
    return found
