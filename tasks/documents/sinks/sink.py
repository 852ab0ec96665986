"""What every sink does. It keeps the receipts itself, with the data, so that the two always agree."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.documents.chunking.chunk import Chunk


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


# ---- whether a document goes in, given what the sink has of it already: the same for every sink ----------------------


class Verdict(Enum):
    """What to do with a document."""

    TAKE = auto()
    """It goes in, in place of the earlier version if there is one."""
    KEEP = auto()
    """An earlier run of the same work has brought it."""
    DUPLICATE = auto()
    SUPERSEDED = auto()
    CONFLICT = auto()

    @property
    def outcome(self) -> LoadOutcome:
        """What is reported."""
        match self:
            case Verdict.DUPLICATE:
                return LoadOutcome.DUPLICATE
            case Verdict.SUPERSEDED:
                return LoadOutcome.SUPERSEDED
            case Verdict.CONFLICT:
                return LoadOutcome.CONFLICT
            case _:
                return LoadOutcome.LOADED


def judge(earlier: Receipt | None, page: int, content_hash: str, stamp: Stamp, origin: str = "") -> Verdict:
    """The verdict on a document of a page, of which the sink has an `earlier` version, or none."""
    if earlier is None:
        return Verdict.TAKE
    if earlier.ingestion != stamp.ingestion:
        if not stamp.replaces_others and _from_elsewhere(earlier, origin):
            return Verdict.CONFLICT  # whichever of the two is newer
        return Verdict.TAKE if earlier.order < stamp.order else Verdict.SUPERSEDED
    if earlier.page != page:
        return Verdict.DUPLICATE
    # The same page with other content: its source has changed between two runs of it.
    same = earlier.content_hash == content_hash and earlier.fingerprint == stamp.fingerprint
    return Verdict.KEEP if same else Verdict.TAKE


def replaces(earlier: Receipt | None, content_hash: str, stamp: Stamp) -> bool:
    """Whether a document that goes in takes the place of another content of an earlier ingestion."""
    return bool(
        earlier and earlier.chunks and earlier.ingestion != stamp.ingestion and earlier.content_hash != content_hash
    )


def _from_elsewhere(earlier: Receipt, origin: str) -> bool:
    """Whether it is a document of another file that only has the same id: what is in the sink would be lost."""
    return bool(earlier.chunks and earlier.origin and origin and earlier.origin != origin)


class Arrivals:
    """The documents of one call to `load`: what is to go in, and what to report of each.

    Attributes:
        stamp: of the one who loads.
        taken: id -> the receipt that it will have, for documents that go in.
    """

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self._outcomes: dict[str, list[LoadOutcome]] = {}
        self._takes: dict[str, int] = {}  # id -> which of its outcomes is that of the one that went in
        self.taken: dict[str, Receipt] = {}

    def add(
        self, document_id: str, page: int, content_hash: str, chunks: int, earlier: Receipt | None, *, origin: str = ""
    ) -> bool:
        """Notes one document; whether it goes in. `earlier`: what the sink has of it."""
        stamp = self.stamp
        verdict = judge(self.taken.get(document_id, earlier), page, content_hash, stamp, origin)
        if document_id in self.taken and verdict is Verdict.TAKE:
            verdict = Verdict.DUPLICATE  # twice in one page, with different content: the first stays
        outcomes = self._outcomes.setdefault(document_id, [])
        if verdict is Verdict.TAKE:
            self._takes[document_id] = len(outcomes)
            self.taken[document_id] = Receipt(
                document_id, content_hash, stamp.fingerprint, stamp.ingestion, page, chunks, stamp.order, origin
            )
        outcomes.append(verdict.outcome)
        if verdict is Verdict.TAKE:
            self.take(document_id, earlier)
        return verdict is Verdict.TAKE

    def take(self, document_id: str, earlier: Receipt | None) -> None:
        """It goes in, in place of what the sink has now."""
        replaced = replaces(earlier, self.taken[document_id].content_hash, self.stamp)
        outcome = LoadOutcome.REPLACED if replaced else LoadOutcome.LOADED
        self._outcomes[document_id][self._takes[document_id]] = outcome

    def drop(self, document_id: str, verdict: Verdict) -> None:
        """Somebody else has brought it in the meantime."""
        del self.taken[document_id]
        self._outcomes[document_id][self._takes.pop(document_id)] = verdict.outcome

    @property
    def outcomes(self) -> dict[str, list[LoadOutcome]]:
        """Of every document, by id."""
        return self._outcomes
