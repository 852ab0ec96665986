"""The protocol of sinks. A sink keeps the receipts itself, beside the data, so that the two always agree."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tasks.chunk import Chunk
from tasks.unshown import unshown


@dataclass(frozen=True, slots=True)
class Stamp:
    """The ingestion that loads, and what its vectors are.

    Attributes:
        fingerprint: 64 hexadecimal digits of everything besides the content that decides the chunks of a document.
        dimension: of the vectors.
        order: of two ingestions the newer one has the higher number (`Ingestion.order`). Ids do not say it: they come
            from the clocks of many hosts.
        vectors: in words, what makes vectors comparable: model, revision, dimension, prompt, normalised or not.
        replaces_others: whether its documents replace documents of other files with the same ids.
    """

    ingestion: str
    fingerprint: str
    model: str
    model_revision: str
    dimension: int
    order: int
    vectors: str
    replaces_others: bool = True


class Receipt(NamedTuple):
    """A document in the sink: its content, its pipeline, and the page and ingestion from which it came.

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


@unshown("metadata")
class LoadDocument(NamedTuple):
    """A document to be loaded, with all of its chunks; `vectors` is float32 [number of chunks, dimension]."""

    id: str
    uri: str
    content_hash: str
    page: int
    metadata: Mapping[str, Any]
    chunks: Sequence[Chunk]
    vectors: npt.NDArray[np.float32]
    origin: str = ""


class LoadOutcome(StrEnum):
    """The outcome of one document."""

    LOADED = "loaded"
    REPLACED = "replaced"
    """Loaded, in place of other content of an earlier ingestion."""
    DUPLICATE = "duplicate"
    """Another page of the same ingestion has a document with this id."""
    SUPERSEDED = "superseded"
    """A newer ingestion has loaded this document, and its version stays."""
    CONFLICT = "conflict"
    """Another file has a document with this id, and that one stays."""


class Sink(Protocol):
    """Takes documents in. Every method may be repeated, and may be called by two workers at the same time."""

    def prepare(self, stamp: Stamp, progress: Callable[[], None]) -> None:
        """Creates what is missing, and checks whether these vectors can be loaded. Raises like `load`."""

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """Receipts of the documents that are in the sink, by id."""

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """Replaces the earlier versions of documents. All of them become visible together, or none.

        An id may occur several times, from several pages; its outcomes are in that order. A document without chunks
        removes its earlier version and leaves a receipt.

        Raises:
            SinkUnavailable: the sink is down or full; nothing is visible. The call is to be repeated.
            Invalid: the sink can never take these vectors, such as those of another model. Says what to do.
        """

    def keep_only(
        self,
        seen: Callable[[], Iterator[str]],
        stamp: Stamp,
        progress: Callable[[], None],
        allow: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> int:
        """Deletes documents whose id is not among `seen` (millions, in any order), except those of newer ingestions.

        Returns their number. Raises like `load`, and what `allow` raises, which is told of all that shall go before
        anything has gone; nothing is deleted then.
        """

    def close(self) -> None:
        """Closes connections."""


_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""Of a UUID: its two upper bits are 1 and 0."""


def chunk_id(document_id: str, fingerprint: str, index: int) -> str:
    """The id of a chunk, the same at any time and place: a UUID in the form of version 5 (RFC 9562)."""
    digits = hashlib.sha256(f"{fingerprint}\0{index}\0{document_id}".encode()).hexdigest()
    # By hand: by `uuid.UUID` it took 3.5 us a chunk and takes 1.5.
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:32]}"


# ---- whether a document is loaded, given the receipt of its earlier version: the same for every sink -----------------


class Verdict(Enum):
    """What to do with a document."""

    TAKE = auto()
    """It is loaded, in place of the earlier version if there is one."""
    KEEP = auto()
    """An earlier run of the same job has loaded it."""
    DUPLICATE = auto()
    SUPERSEDED = auto()
    CONFLICT = auto()

    @property
    def outcome(self) -> LoadOutcome:
        """The outcome that is reported."""
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
    """Whether a loaded document replaces other content of an earlier ingestion."""
    return bool(
        earlier and earlier.chunks and earlier.ingestion != stamp.ingestion and earlier.content_hash != content_hash
    )


def _from_elsewhere(earlier: Receipt, origin: str) -> bool:
    """Whether the earlier version is a document of another file with the same id, which would be lost."""
    return bool(earlier.chunks and earlier.origin and origin and earlier.origin != origin)


class Arrivals:
    """The documents of one call to `load`: those that are loaded, and the outcome of each.

    Attributes:
        stamp: of the ingestion that loads.
        taken: id -> the future receipt, of documents that are loaded.
    """

    def __init__(self, stamp: Stamp) -> None:
        self.stamp = stamp
        self._outcomes: dict[str, list[LoadOutcome]] = {}
        self._takes: dict[str, int] = {}  # id -> the number of the outcome of the document that is loaded
        self.taken: dict[str, Receipt] = {}

    def add(
        self, document_id: str, page: int, content_hash: str, chunks: int, earlier: Receipt | None, *, origin: str = ""
    ) -> bool:
        """Adds one document; returns whether it is loaded. `earlier`: its receipt in the sink."""
        stamp = self.stamp
        if earlier is None and document_id not in self._outcomes:  # as nearly always: nothing is to be judged
            self._takes[document_id] = 0
            self._outcomes[document_id] = [LoadOutcome.LOADED]
            self.taken[document_id] = Receipt(
                document_id, content_hash, stamp.fingerprint, stamp.ingestion, page, chunks, stamp.order, origin
            )
            return True
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
        """Notes that a document is loaded, in place of what the sink has now."""
        replaced = replaces(earlier, self.taken[document_id].content_hash, self.stamp)
        outcome = LoadOutcome.REPLACED if replaced else LoadOutcome.LOADED
        self._outcomes[document_id][self._takes[document_id]] = outcome

    def drop(self, document_id: str, verdict: Verdict) -> None:
        """Notes that another load has loaded it in the meantime."""
        del self.taken[document_id]
        self._outcomes[document_id][self._takes.pop(document_id)] = verdict.outcome

    @property
    def outcomes(self) -> dict[str, list[LoadOutcome]]:
        """The outcomes of every document, by id."""
        return self._outcomes
