"""Datasets as ingestions leave them, small enough to be compared by hand."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.chunk import Chunk
from tasks.documents.sinks.parquet.parquet_sink import ParquetSink
from tasks.documents.sinks.sink import LoadDocument, Stamp
from tasks.records import datasets
from tasks.records.api_keys import environment_owner
from tasks.records.datasets import Catalog, DatasetPart
from tasks.storage.storage import Storage

OWNER = environment_owner("ann")
"""Of the key that the settings of a test name."""
NAME = "handbook"
DIMENSION = 4
VECTORS = "test/model (revision r1), 4 dimensions, normalized"
MARKUP = "<script>alert(1)</script> &amp; \u0000 \u202e 😀"


def document(
    name: str, *vectors: list[float], metadata: Mapping[str, Any] | None = None, text: str = "text"
) -> LoadDocument:
    """A document with a chunk for each vector."""
    chunks = [Chunk(i, f"{text} {i}", 10 * i, 10 * i + 5, i + 1, ("Top", f"Part {i}"), 2) for i in range(len(vectors))]
    numbers = np.array(vectors, np.float32).reshape(len(vectors), len(vectors[0]) if vectors else DIMENSION)
    return LoadDocument(name, f"file:///{name}", "0" * 64, 0, metadata or {}, chunks, numbers)


def load(
    storage: Storage,
    *documents: LoadDocument,
    owner: str = OWNER,
    name: str = NAME,
    vectors: str = VECTORS,
    dimension: int = DIMENSION,
) -> Catalog:
    """The dataset after one more load, which makes one more part."""
    sink = ParquetSink(storage, owner, name)
    order = datasets.present(storage, owner, name).catalog.version + 1
    stamp = Stamp(f"ing_{order}", "f" * 64, "test/model", "r1", dimension, order, vectors)
    sink.load(iter(documents), stamp, lambda: None)
    return datasets.present(storage, owner, name).catalog


def regrouped(storage: Storage, catalog: Catalog, group_rows: int) -> Catalog:
    """The same version with row groups of so many rows."""

    def written(part: DatasetPart) -> DatasetPart:
        if not part.stored:
            return part
        buffer = io.BytesIO()
        pq.write_table(pq.read_table(io.BytesIO(storage.read(part.stored))), buffer, row_group_size=group_rows)
        storage.write(part.stored, buffer.getvalue())
        return replace(part, size_bytes=len(buffer.getvalue()))

    return replace(catalog, parts=tuple(written(part) for part in catalog.parts))


def random_documents(count: int, chunks: int, *, dimension: int = DIMENSION, seed: int = 1) -> list[LoadDocument]:
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
