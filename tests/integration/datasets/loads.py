"""Documents for datasets, and what readers of one see."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tasks.chunk import Chunk
from tasks.datasets.contents import Contents
from tasks.datasets.loads import DocumentLoad, DocumentState, LoadOutcome, Stamp, UnreadPart, Verdict
from tasks.datasets.store import Store

DIMENSION = 8

Row = Mapping[str, Any]


def ingestion(number: int) -> str:
    return f"ing_{2**32 - number:032x}"


def stamp(
    number: int = 1, *, dimension: int = DIMENSION, fingerprint: str = "f" * 64, vectors: str = "a-model (rev-1)"
) -> Stamp:
    """Of an ingestion whose id says nothing of its order: the newer one has the lower id."""
    return Stamp(ingestion(number), number, fingerprint, "a-model", "rev-1", dimension, vectors)


def document(
    name: str,
    text: str = "one",
    *,
    chunks: int = 2,
    place: str = "",
    dimension: int = DIMENSION,
    origin: str = "",
    **metadata: Any,
) -> DocumentLoad:
    """A document whose chunks and vectors follow from its text."""
    cut = [
        Chunk(i, f"{text} {i}", i * 10, i * 10 + len(f"{text} {i}"), i + 1, ("Top", "Sub"), 5) for i in range(chunks)
    ]
    digest = hashlib.sha256(text.encode()).digest()
    vectors = np.random.default_rng(digest[0]).standard_normal((chunks, dimension)).astype(np.float32)
    return DocumentLoad(
        name, place or f"file:///{name}", DocumentState.NEW, digest.hex(), origin, metadata, cut, vectors
    )


def unchanged(name: str, text: str = "one") -> DocumentLoad:
    """One that was found as it is in the dataset."""
    return document(name, text)._replace(state=DocumentState.UNCHANGED, chunks=())


def failed(name: str, place: str = "") -> DocumentLoad:
    """One that could not be read."""
    return DocumentLoad(name, place or f"file:///{name}", DocumentState.FAILED)


def outcomes(store: Store, *documents: DocumentLoad | UnreadPart, by: Stamp | None = None) -> Sequence[LoadOutcome]:
    return store.load(iter(documents), by or stamp(), lambda: None)


def load(store: Store, *documents: DocumentLoad | UnreadPart, by: Stamp | None = None) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes(store, *documents, by=by)]


def finish(store: Store, by: Stamp, roots: Sequence[str] = ()) -> int:
    return store.finish(by, roots, lambda: None).deleted


class Place(Protocol):
    """Where datasets of one kind are, for a test."""

    def open(self) -> Store:
        """A new store on the same data, as another worker would have it."""

    def rows(self) -> list[Row]:
        """What a reader sees, by document and chunk."""

    def contents(self) -> Contents:
        """The same as it is listed and searched."""


@dataclass(frozen=True)
class OpenPlace:
    open: Callable[[], Store]
    rows: Callable[[], list[Row]]
    contents: Callable[[], Contents]


def texts(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Texts of the chunks of each document."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["doc_id"], []).append(row["text"])
    return found
