"""Documents for sinks, and what readers of a sink see."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tasks.chunk import Chunk
from tasks.documents.sinks.sink import LoadDocument, LoadOutcome, Sink, Stamp

DIMENSION = 8


def ingestion(number: int) -> str:
    return f"ing_{2**32 - number:032x}"


def stamp(
    number: int = 1, *, dimension: int = DIMENSION, fingerprint: str = "f" * 64, vectors: str = "a-model (rev-1)"
) -> Stamp:
    """Of an ingestion whose id says nothing of its order: the newer one has the lower id."""
    return Stamp(ingestion(number), fingerprint, "a-model", "rev-1", dimension, number, vectors)


def document(
    name: str,
    text: str = "one",
    *,
    chunks: int = 2,
    page: int = 0,
    dimension: int = DIMENSION,
    origin: str = "",
    **metadata: Any,
) -> LoadDocument:
    """A document whose chunks and vectors follow from its text."""
    cut = [
        Chunk(i, f"{text} {i}", i * 10, i * 10 + len(f"{text} {i}"), i + 1, ("Top", "Sub"), 5) for i in range(chunks)
    ]
    digest = hashlib.sha256(text.encode()).digest()
    vectors = np.random.default_rng(digest[0]).standard_normal((chunks, dimension)).astype(np.float32)
    return LoadDocument(name, f"file:///{name}", digest.hex(), page, metadata, cut, vectors, origin)


def load(sink: Sink, *documents: LoadDocument, by: Stamp | None = None) -> Mapping[str, Sequence[LoadOutcome]]:
    return sink.load(iter(documents), by or stamp(), lambda: None)


Row = Mapping[str, Any]


class Place(Protocol):
    """Where sinks of one kind are, for a test."""

    def open(self) -> Sink:
        """A new sink on the same data, as another worker would have it."""

    def rows(self) -> list[Row]:
        """What a reader sees, by document and chunk."""


@dataclass(frozen=True)
class OpenPlace:
    open: Callable[[], Sink]
    rows: Callable[[], list[Row]]


def texts(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Texts of the chunks of each document."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["doc_id"], []).append(row["text"])
    return found
