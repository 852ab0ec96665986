"""What a dataset holds, as it is listed and searched. Both stores have it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tasks.unshown import unshown

Scalar: TypeAlias = str | int | float | bool
Filter: TypeAlias = Mapping[str, Scalar]
"""Fields of the metadata of a document, and the value of each, with its type: 1 is not true. A list in the metadata has
each of its values."""
DOCUMENT_ID = "document_id"
"""In a filter it stands for the id of the document, and not for a field of its metadata."""


_PART = re.compile(r"part-([0-9]{1,15})-([0-9]{1,15})\.parquet")


class DatasetGone(Exception):
    """There is no dataset, or there was one and it was deleted."""


@dataclass(frozen=True, slots=True)
class DatasetHead:
    """A dataset as a whole.

    Attributes:
        id: one that is made later under the same name has another.
        version: goes up with each change of the content.
        created_ms, written_ms: Unix milliseconds.
        dimension: of all vectors; 0 where there are none.
        vectors: in words, what makes them comparable; "" where there are none.
        model: the name under which the model of a vector was served; "" where there are none.
        documents: with chunks or without.
        size_bytes: on the disk.
    """

    id: str
    name: str
    version: int
    created_ms: int
    written_ms: int
    dimension: int
    vectors: str
    model: str
    documents: int
    chunks: int
    size_bytes: int


@unshown("metadata", "headings")
class StoredDocument(NamedTuple):
    """A document that has chunks.

    Attributes:
        number: the place in a list.
        headings: JSON, above its beginning.
        warnings: JSON, as of `DocumentLoad`.
    """

    number: int
    id: str
    chunks: int
    source_uri: str
    metadata: str
    headings: str
    warnings: str


@unshown("text", "headings", "metadata")
class StoredChunk(NamedTuple):
    """A chunk. `number`: the place in a list. `headings`, `metadata`: JSON."""

    number: int
    document_id: str
    position: int
    text: str
    start: int
    end: int
    page: int | None
    headings: str
    metadata: str


class Found(NamedTuple):
    """A chunk and how well it fits, the higher the better: its cosine, its rank in full text, or that in both."""

    chunk: StoredChunk
    score: float


class DocumentPage(NamedTuple):
    """A page. `more`: of them behind it."""

    items: Sequence[StoredDocument]
    more: bool


class ChunkPage(NamedTuple):
    """Likewise."""

    items: Sequence[StoredChunk]
    more: bool


class ExportPart(NamedTuple):
    """One part: documents from number `first` on, as the dataset's version `changed` has made them."""

    first: int
    changed: int
    chunks: int = 0

    @property
    def name(self) -> str:
        """Within one dataset it stands for the same rows for ever."""
        return f"part-{self.first:09d}-{self.changed}.parquet"

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Inverse of `name`; None: it is none."""
        match = _PART.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


@unshown("text", "headings", "metadata", "embedding")
class ExportRow(NamedTuple):
    """A chunk with all that is told of it. `headings`, `metadata`: JSON. `embedding`: float32, little endian."""

    doc_id: str
    fingerprint: str
    chunk_index: int
    text: str
    start: int
    end: int
    page: int | None
    headings: str
    token_count: int
    truncated: bool
    source_uri: str
    content_hash: str
    metadata: str
    embedding: bytes
    model: str
    model_revision: str


class ExportedPart(NamedTuple):
    """The rows of a part. `dataset_id`: see `DatasetHead`. `dimension`: of the vectors."""

    dataset_id: str
    dimension: int
    rows: Sequence[ExportRow]


class Contents(Protocol):
    """One dataset, as it is read. For one thread at a time.

    All methods raise `DatasetGone`; `SinkUnavailable` where it cannot be read now, and `Invalid` where it never can.
    """

    def head(self) -> DatasetHead:
        """The dataset as a whole."""

    def documents(self, after: int, limit: int) -> DocumentPage:
        """Documents that have chunks, behind the number of one, in the order in which they were loaded."""

    def chunks(self, after: int, limit: int, document_id: str | None = None) -> ChunkPage:
        """Chunks behind the number of one, in the order of documents: of the dataset, or of one document."""

    def export_parts(self) -> Sequence[ExportPart]:
        """The parts of the dataset as it is now, in order."""

    def export_rows(self, part: ExportPart) -> ExportedPart | None:
        """The rows of a part; None: the dataset has another one in its place."""

    def nearest(
        self, vector: npt.NDArray[np.floating], k: int, fields: Filter | None, stopping: Callable[[], bool]
    ) -> list[Found]:
        """The `k` chunks nearest to a vector by cosine, best first; exact. `stopping`: nobody waits any more.

        Raises:
            ValueError: the vector has no direction, or another length than those of the dataset.
            NotReady: nobody waits any more.
        """

    def words(self, text: str, k: int, fields: Filter | None, stopping: Callable[[], bool]) -> list[Found]:
        """The `k` chunks that have most of the words of a text, best first; the rarer a word, the more it counts.

        The score is the store's own: it compares chunks of one answer. Raises `NotReady`: nobody waits any more.
        """

    def close(self) -> None:
        """Closes connections."""
