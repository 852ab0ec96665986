"""What every sink does. It keeps the receipts itself, with the data, so that the two always agree."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.documents.chunking.types import Chunk


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who loads, and what the vectors are.

    Attributes:
        fingerprint: 64 hexadecimal digits of everything but its content that decides what becomes of a document.
        dimension: of the vectors.
        order: of two ingestions the newer one has the higher number (`Ingestion.order`). Ids do not say it: they come
            from the clocks of many hosts.
        vectors: in words what makes vectors comparable: model, revision, dimension, prompt, normalised or not.
        replaces_others: whether its documents take the place of those that other files have brought under their ids.
    """

    ingestion: str
    fingerprint: str
    model: str
    model_revision: str
    dimension: int
    order: int
    vectors: str
    replaces_others: bool = True


@dataclass(frozen=True, slots=True)
class Receipt:
    """A document is in the sink: its content, under which pipeline, from which page of which ingestion.

    `order`: that of the ingestion, as in `Stamp`. `origin`: see `DocumentRef`.
    """

    document_id: str
    content_hash: str
    fingerprint: str
    ingestion: str
    page: int
    chunks: int
    order: int
    origin: str = ""


@dataclass(frozen=True, slots=True)
class LoadDocument:
    """A document to be loaded with all of its chunks; `vectors` float32 [number of chunks, dimension]."""

    id: str
    uri: str
    content_hash: str
    page: int
    metadata: Mapping[str, Any]
    chunks: Sequence[Chunk]
    vectors: npt.NDArray[np.float32]
    origin: str = ""


class LoadOutcome(StrEnum):
    """What became of one document."""

    LOADED = "loaded"
    REPLACED = "replaced"
    """Loaded, in place of another content that an earlier ingestion had brought."""
    DUPLICATE = "duplicate"
    """Another page of the same ingestion has brought a document with this id."""
    SUPERSEDED = "superseded"
    """A newer ingestion has brought it: its version stays."""
    CONFLICT = "conflict"
    """Another file has brought a document with this id: that one stays."""


class Sink(Protocol):
    """Takes documents in. Every method may be repeated, and may be called by two workers at the same time."""

    def prepare(self, stamp: Stamp, progress: Callable[[], None]) -> None:
        """Makes what is missing, and looks whether these vectors can go in. Raises like `load`."""

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """Receipts of those that are there, by id."""

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """Puts documents in place of their earlier versions: all of them become visible together, or none.

        An id may come more than once, from several pages; the outcomes of an id are in the order in which it came.
        A document without chunks takes its earlier version away and leaves a receipt.

        Raises:
            SinkUnavailable: it is down or full; nothing is visible. To be repeated.
            SinkRefused: it can never take these vectors, such as those of another model; says what to do.
        """

    def keep_only(self, seen: Callable[[], Iterator[str]], stamp: Stamp, progress: Callable[[], None]) -> int:
        """Deletes documents whose id is not among `seen` (millions, in any order), except those of newer ingestions.

        Returns how many. Raises like `load`.
        """

    def close(self) -> None:
        """Lets go of connections."""


def chunk_id(document_id: str, fingerprint: str, index: int) -> str:
    """The same for the same chunk whenever and wherever it is made: a UUID in the form of version 5 (RFC 9562)."""
    digest = hashlib.sha256(f"{fingerprint}\0{index}\0{document_id}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))
