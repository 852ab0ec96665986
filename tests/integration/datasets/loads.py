"""Documents for datasets, and what readers of one see."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.chunk import Chunk
from tasks.datasets.contents import Contents, DatasetGone, ExportPart
from tasks.datasets.export import write_part
from tasks.datasets.loads import DocumentLoad, DocumentState, LoadOutcome, Stamp, UnreadPart, Verdict
from tasks.datasets.places import Datasets
from tasks.datasets.store import Store

DIMENSION = 8

Row = Mapping[str, Any]


def ingestion(number: int) -> str:
    return f"ing_{2**32 - number:032x}"


def stamp(number: int = 1, *, dimension: int = DIMENSION, vectors: str = "a-model (rev-1)") -> Stamp:
    """Of an ingestion whose id says nothing of its order: the newer one has the lower id."""
    return Stamp(ingestion(number), number, "f" * 64, "a-model", "rev-1", dimension, vectors)


def document(
    name: str, text: str = "one", *, chunks: int = 2, place: str = "", dimension: int = DIMENSION, **metadata: Any
) -> DocumentLoad:
    """A document whose chunks and vectors follow from its text."""
    texts = [f"{text} {i}" for i in range(chunks)]
    cut = [Chunk(i, each, i * 10, i * 10 + len(each), i + 1, ("Top", "Sub"), 5) for i, each in enumerate(texts)]
    digest = hashlib.sha256(text.encode()).digest()
    vectors = np.random.default_rng(digest[0]).standard_normal((chunks, dimension)).astype(np.float32)
    uri = place or f"file:///{name}"
    return DocumentLoad(name, uri, DocumentState.NEW, digest.hex(), "", metadata, cut, vectors)


def failed(name: str, place: str = "") -> DocumentLoad:
    return DocumentLoad(name, place or f"file:///{name}", DocumentState.FAILED)


def outcomes(store: Store, *documents: DocumentLoad | UnreadPart, by: Stamp | None = None) -> Sequence[LoadOutcome]:
    return store.load(iter(documents), by or stamp(), lambda: None)


def load(store: Store, *documents: DocumentLoad | UnreadPart, by: Stamp | None = None) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes(store, *documents, by=by)]


def finish(store: Store, by: Stamp, roots: Sequence[str] = ()) -> int:
    return store.finish(by, roots, lambda: None).deleted


class Place:
    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._opened: list[Store | Contents] = []

    def open(self) -> Store:
        """A new store on the same data, as another worker would have it."""
        self._opened.append(store := self._datasets.store("me", "docs"))
        return store

    def contents(self) -> Contents:
        self._opened.append(contents := self._datasets.contents("me", "docs"))
        return contents

    def rows(self) -> list[Row]:
        reader = self.contents()
        with suppress(DatasetGone):
            return exported(reader, reader.export_parts())
        return []

    def texts(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.rows():
            found.setdefault(row["doc_id"], []).append(row["text"])
        return found

    def close(self) -> None:
        for each in self._opened:
            each.close()


def exported(reader: Contents, parts: Sequence[ExportPart]) -> list[Row]:
    """Rows of these parts, as they are in Parquet, by document and chunk."""
    rows = list[Row]()
    for part in parts:
        found = reader.export_rows(part)
        assert found is not None
        assert (len(found.rows), found.dataset_id) == (part.chunks, reader.head().id)
        data = io.BytesIO()
        write_part(data, [found.rows], found.dimension)
        rows += pq.read_table(data).to_pylist()
    return sorted(rows, key=lambda row: (row["doc_id"], row["chunk_index"]))
