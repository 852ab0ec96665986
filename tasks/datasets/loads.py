"""What an ingestion brings to a dataset, and what becomes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.chunk import Chunk
from tasks.unshown import unshown


@dataclass(frozen=True, slots=True)
class Stamp:
    """The ingestion that loads, and what its vectors are.

    Attributes:
        ingestion: its id. Two may have one order, where a Redis and its clock have gone back.
        order: of two ingestions the one that was accepted later has the higher number.
        fingerprint: 64 hexadecimal digits of all that decides the chunks of a document besides its content.
        dimension: of the vectors.
        vectors: in words, what makes vectors comparable: model, revision, dimension, prompt, normalised or not.
        replaces_others: its documents replace those of other files with the same ids.
        reloads: also what has not changed.
        dataset_id: of the dataset as the ingestion has first seen it; "" before that.
    """

    ingestion: str
    order: int
    fingerprint: str
    model: str
    model_revision: str
    dimension: int
    vectors: str
    replaces_others: bool = True
    reloads: bool = False
    dataset_id: str = ""


class DocumentState(StrEnum):
    """What an ingestion brings of a document that it has listed."""

    NEW = "new"
    UNCHANGED = "unchanged"
    """The dataset had this very content when the document was read."""
    FAILED = "failed"


NO_WARNINGS = "[]"
_NO_VECTORS: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)


@unshown("metadata")
class DocumentLoad(NamedTuple):
    """A document as an ingestion brings it: with all its chunks, or as one that is unchanged or has failed.

    Attributes:
        place: its URI, which is unique within one listing.
        content_hash: 64 hexadecimal digits; "" of one that could not be read.
        origin: the file within which the id of a record is unique; "" for an id that is unique by itself.
        vectors: float32 [number of chunks, dimension].
        warnings: JSON, as of `warnings_to_json`; stored with the content.
    """

    id: str
    place: str
    state: DocumentState
    content_hash: str = ""
    origin: str = ""
    metadata: Mapping[str, Any] = {}
    chunks: Sequence[Chunk] = ()
    vectors: npt.NDArray[np.float32] = _NO_VECTORS
    warnings: str = NO_WARNINGS


EVERYTHING = "*"
"""As a part of a source: nobody knows where its documents were listed before, such as those of an upload."""


class UnreadPart(NamedTuple):
    """A part of the source that could not be listed: what the dataset has of it stays."""

    part: str


class Finished(NamedTuple):
    """What the end of a `sync` has come to.

    Attributes:
        deleted: documents that had content.
        empty: roots of the source that have listed nothing while documents of them are known. These stay: a root
            without a single document is more likely a disk that is not mounted than one that was cleared.
    """

    deleted: int
    empty: Sequence[str] = ()


class Verdict(StrEnum):
    """What becomes of a document in a load."""

    LOADED = "loaded"
    REPLACED = "replaced"
    """Loaded, in place of other content of an earlier ingestion."""
    UNCHANGED = "unchanged"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    """This ingestion has another document with this id, in another place."""
    SUPERSEDED = "superseded"
    """An ingestion that was accepted later has decided it."""
    CONFLICT = "conflict"
    """Another file has a document with this id, and that one stays."""
    KEPT = "kept"
    """This ingestion has decided it before: an earlier run of the same load."""
    STALE = "stale"
    """It was unchanged, and is not any more: it must be read again, and nothing of this load counts."""


class LoadOutcome(NamedTuple):
    """What became of a document, and how many chunks of it the dataset has. Of a part: FAILED.

    `other`: the place of the document that has the id, of a duplicate or a conflict.
    """

    verdict: Verdict
    chunks: int = 0
    other: str = ""


class Receipt(NamedTuple):
    """What a dataset knows of a document.

    Attributes:
        content_hash: "" where there is no content: the document was listed, and has never been read.
        fingerprint: with which the content was cut.
        chunks: how many the content has.
        decided, decided_by: order and id of the ingestion that has loaded this content, or was the last to find it.
        listed, listed_by: of the last ingestion that has listed it, also where it failed.
        place: where that one has listed it.
        found: where `decided_by` has found the content.
        origin: the file of the content; "" for an id that is unique by itself.
        how: what became of it for `decided_by`.
        warnings: of the content; JSON, as of `DocumentLoad`.
    """

    document_id: str
    content_hash: str
    fingerprint: str
    chunks: int
    decided: int
    decided_by: str
    listed: int
    listed_by: str
    place: str
    found: str
    origin: str
    how: Verdict
    warnings: str = NO_WARNINGS
