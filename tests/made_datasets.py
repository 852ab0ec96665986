"""Datasets as ingestions leave them, small enough to be compared by hand."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tasks.chunk import Chunk
from tasks.datasets.contents import DatasetHead
from tasks.datasets.loads import DocumentLoad, DocumentState, Stamp
from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.records.api_keys import environment_owner

OWNER = environment_owner("ann")
"""Of the key that the settings of a test name."""
NAME = "handbook"
DIMENSION = 4
VECTORS = "test/model (revision r1), 4 dimensions, normalized"
MARKUP = "<script>alert(1)</script> &amp; \u0000 \u202e 😀"


def datasets_in(storage: Path | str) -> SqliteDatasets:
    """Those of a server with this folder as its storage."""
    return SqliteDatasets(Path(storage) / "datasets")


def document(
    name: str, *vectors: list[float], metadata: Mapping[str, Any] | None = None, text: str = "text"
) -> DocumentLoad:
    chunks = [Chunk(i, f"{text} {i}", 10 * i, 10 * i + 5, i + 1, ("Top", f"Part {i}"), 2) for i in range(len(vectors))]
    numbers = np.array(vectors, np.float32).reshape(len(vectors), len(vectors[0]) if vectors else DIMENSION)
    return DocumentLoad(name, f"file:///{name}", DocumentState.NEW, "0" * 64, "", metadata or {}, chunks, numbers)


def load(
    storage: Path | str,
    *documents: DocumentLoad,
    owner: str = OWNER,
    name: str = NAME,
    vectors: str = VECTORS,
    dimension: int = DIMENSION,
) -> DatasetHead:
    datasets = datasets_in(storage)
    with closing(datasets.store(owner, name)) as store, closing(datasets.contents(owner, name)) as contents:
        known = store.known([each.id for each in documents])
        order = 1 + max((receipt.decided for receipt in known.values()), default=0)
        stamp = Stamp(f"ing_{owner}_{order}", order, "f" * 64, "test/model", "r1", dimension, vectors, reloads=True)
        store.load(documents, stamp, lambda: None)
        return contents.head()


def random_documents(count: int, chunks: int, *, dimension: int = DIMENSION, seed: int = 1) -> list[DocumentLoad]:
    """Documents `d0000` and so on, of as many chunks, with the metadata `team` (a, b, c in turn) and `number`."""
    random = np.random.default_rng(seed)
    return [
        document(
            f"d{n:04d}",
            *random.standard_normal((chunks, dimension)).tolist(),
            metadata={"team": "abc"[n % 3], "number": n},
        )
        for n in range(count)
    ]
