"""An ingestion: documents of a source on their way into a sink, page by page.

All frozen; times are milliseconds of the ledger's clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import orjson

from tasks.ledger.ids import RecordIds
from tasks.ledger.task import State

FOLDER = "ingestions"
"""Where everything of theirs is in the storage."""

MAX_METADATA_DEPTH = 32
"""Of a document."""

_IDS = RecordIds("ing_")
_TRACED = 100
"""Listings, pages and loads of one ingestion that are in its trace: the first ones."""
new_ingestion_id = _IDS.new
is_ingestion_id = _IDS.fits


class IngestionStatus(StrEnum):
    """States of an ingestion, in OpenAI's words."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether an ingestion in this state has ended."""
        return self in {IngestionStatus.COMPLETED, IngestionStatus.FAILED, IngestionStatus.CANCELLED}


@dataclass(frozen=True, slots=True)
class NewIngestion:
    """An ingestion as it is created.

    Attributes:
        spec: what was asked for, JSON: `source`, `inline` or `listed` (stored name of the source's `documents`, or of
            its `files` or `urls`: every step reads the spec, so it holds no more than their number), `chunking`,
            `sink`, `mode`, `model` (served name), and where they were given `urls_shown`, `dimensions`, `normalize`,
            `prompt_name`, `input_type`, `dry_run`, `metadata`, `on_conflict`.
        roots, shares_table: rights of the owner's key, as of an `Ingestion`.
        ttl_ms: how long its record and its documents' outcomes are kept after its end.
        key: (name, digest) of 32 hexadecimal digits each, from an idempotency key and from all that was asked for.
    """

    id: str
    owner: str
    spec: Mapping[str, Any]
    ttl_ms: int
    key: tuple[str, str] | None = None
    roots: Sequence[str] | None = None
    shares_table: bool = False


@dataclass(frozen=True, slots=True)
class IngestionFault:
    """Why an ingestion failed as a whole."""

    code: str
    message: str
    param: str | None = None


# Pages: listed and not begun, in flight, done.


class PageStage(StrEnum):
    """Where a page in flight is."""

    PARSE = "parse"
    EMBED = "embed"
    READY = "ready"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """A page that was listed and not begun; `fence` is that of its manifest."""

    number: int
    fence: str
    documents: int
    size_bytes: int

    def to_text(self) -> str:
        """As it stands in the list of waiting pages."""
        return f"{self.number} {self.fence} {self.documents} {self.size_bytes}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Inverse of `to_text`."""
        number, fence, documents, size_bytes = text.split(" ")
        return cls(int(number), fence, int(documents), int(size_bytes))


@dataclass(frozen=True, slots=True)
class PageInFlight:
    """A page in flight.

    Attributes:
        stage: where it is; `state` is that of the ledger's task for it, None when there is none (yet).
        manifest: stored name of the list of its documents.
        parsed: stored name of what PARSE says of each document; "" before it, and when it failed as a whole.
        source, index: stored names of its chunks as rows; "" when there are none.
        fault: code and message, when PARSE failed as a whole.
        load: number of the LOAD job that it is in.
        losses: how often PARSE was given up because its workers died.
        cut: chunks and their tokens, as PARSE has added them to the counts.
        emptied: documents that have no text any more: the sink has to learn it.
        embedded, embedding_tokens: of its embed task so far.
    """

    number: int
    stage: PageStage
    manifest: str
    documents: int
    size_bytes: int
    parsed: str = ""
    source: str = ""
    index: str = ""
    chunks: int = 0
    fault: tuple[str, str] | None = None
    load: int | None = None
    losses: int = 0
    cut: tuple[int, int] = (0, 0)
    emptied: int = 0
    state: State | None = None
    embedded: int = 0
    embedding_tokens: int = 0

    def to_json(self) -> str:
        """As it stands in Redis, without what is read of its task. Scripts read `stage`."""
        fields = {
            "stage": self.stage,
            "manifest": self.manifest,
            "documents": self.documents,
            "size": self.size_bytes,
            "parsed": self.parsed,
            "source": self.source,
            "index": self.index,
            "chunks": self.chunks,
            "fault": self.fault,
            "load": self.load,
            "losses": self.losses or None,
            "cut": self.cut if any(self.cut) else None,
            "emptied": self.emptied or None,
        }
        stored = {name: value for name, value in fields.items() if value is not None and value != ""}
        return orjson.dumps(stored).decode()

    @classmethod
    def from_reply(cls, row: Sequence[Any]) -> Self:
        """From one page of `ingestion_read.lua`."""
        number, text, state, done, tokens = row
        fields = orjson.loads(text)
        stage = PageStage(fields["stage"])
        embeds = stage is PageStage.EMBED
        return cls(
            number=int(number),
            stage=stage,
            manifest=fields["manifest"],
            documents=fields["documents"],
            size_bytes=fields["size"],
            parsed=fields.get("parsed", ""),
            source=fields.get("source", ""),
            index=fields.get("index", ""),
            chunks=fields.get("chunks", 0),
            fault=tuple(fields["fault"]) if "fault" in fields else None,
            load=fields.get("load"),
            losses=fields.get("losses", 0),
            cut=tuple(fields.get("cut", (0, 0))),
            emptied=fields.get("emptied", 0),
            state=State(state.decode()) if state else None,
            embedded=int(done) if embeds else 0,
            embedding_tokens=int(tokens) if embeds else 0,
        )

    @property
    def undone(self) -> dict[str, int]:
        """What is to be added to the counts when the page goes back to where it was listed."""
        if self.stage is PageStage.PARSE:
            return {}
        embedded = self.chunks if self.stage is not PageStage.EMBED else 0
        chunks, tokens = self.cut
        return {"chunks": -chunks, "chunk_tokens": -tokens, "pages_parsed": -1, "chunks_embedded": -embedded}

    @property
    def waiting(self) -> WaitingPage:
        """As it was before it was begun."""
        return WaitingPage(self.number, self.manifest.rpartition(".")[2], self.documents, self.size_bytes)

    @property
    def bytes_through(self) -> int:
        """The share of its bytes that needs no model any more."""
        if self.stage in (PageStage.READY, PageStage.LOADING):
            return self.size_bytes
        return self.size_bytes * min(self.embedded, self.chunks) // self.chunks if self.chunks else 0


@dataclass(frozen=True, slots=True)
class ClosedPage:
    """A page that is done: what became of its documents is in the stored object `stored`, a line each, in order."""

    number: int
    stored: str
    loaded: int
    unchanged: int
    failed: int

    def to_json(self) -> str:
        """As it stands in Redis, beside its number."""
        return orjson.dumps([self.stored, self.loaded, self.unchanged, self.failed]).decode()

    @classmethod
    def from_json(cls, number: int, text: bytes) -> Self:
        """Inverse of `to_json`."""
        return cls(number, *orjson.loads(text))


# How far an ingestion is, and how fast it gets on.


@dataclass(frozen=True, slots=True)
class Counts:
    """Of documents, chunks, bytes of the source and tokens.

    Attributes:
        documents: listed so far; `loaded`, `unchanged`, `failed` and `cancelled` of them have ended.
        deleted: documents of earlier ingestions that `sync` took away.
        replaced: of those loaded, in whose place an earlier ingestion had brought another content.
        emptied: of those loaded, those that have no text any more.
        chunks: cut so far.
        tokens: that the model has read.
        chunk_tokens: of all chunks, counted before.
    """

    documents: int = 0
    loaded: int = 0
    unchanged: int = 0
    failed: int = 0
    cancelled: int = 0
    deleted: int = 0
    chunks: int = 0
    chunks_embedded: int = 0
    chunks_loaded: int = 0
    bytes: int = 0
    bytes_done: int = 0
    tokens: int = 0
    chunk_tokens: int = 0
    pages_parsed: int = 0
    replaced: int = 0
    emptied: int = 0

    @property
    def total(self) -> int:
        """Documents that are known."""
        return self.documents

    @property
    def completed(self) -> int:
        """Documents that are where they should be."""
        return self.loaded + self.unchanged

    @property
    def done(self) -> int:
        """Documents that have ended."""
        return self.completed + self.failed + self.cancelled

    @property
    def in_progress(self) -> int:
        """Documents that have not."""
        return max(0, self.documents - self.done)


@dataclass(frozen=True, slots=True)
class Setback:
    """How often in a row a kind of job found something away, what, and until when none need be tried again.

    `since_ms`: when the first of them did; None in data of an earlier version.
    """

    times: int
    what: str
    until_ms: int
    since_ms: int | None = None

    def to_text(self) -> str:
        """As a field of the hash."""
        return f"{self.times} {self.until_ms} {self.what}"

    @classmethod
    def from_text(cls, text: str, since_ms: str | None = None) -> Self:
        """Inverse of `to_text`. `since_ms`: of a field beside it."""
        times, until_ms, what = text.split(" ")
        return cls(int(times), what, int(until_ms), None if since_ms is None else int(since_ms))


@dataclass(frozen=True, slots=True)
class Sample:
    """How far an ingestion was at a moment: `chunks` that are embedded, in a dry run those that are cut."""

    at_ms: int
    documents: int
    chunks: int
    bytes: int

    def to_text(self) -> str:
        """As a field of the hash."""
        return f"{self.at_ms} {self.documents} {self.chunks} {self.bytes}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Inverse of `to_text`."""
        return cls(*(int(number) for number in text.split()))


@dataclass(frozen=True, slots=True)
class IngestionRate:
    """Documents, chunks and source bytes in a second."""

    documents_per_s: float
    chunks_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Ingestion:
    """An ingestion as it is now.

    Attributes:
        order: of two ingestions the newer one has the higher number, whatever the clocks of hosts say.
        revision, dimension, fingerprint, vectors: of the model and the pipeline; None while it is queued.
        warning: what its owner should know of the vectors; "": nothing.
        cursor: where the next listing begins; None: at the beginning.
        list_number, next_page, load_number: of the next listing, page and load.
        waiting_pages: how many are listed and not begun; `begin_next` are the first of them.
        pages: those in flight, by number.
        loaded_pages: numbers of the pages that the last load closed, and whose tasks may still be there.
        loaded_ms: when a load ended last.
        samples: two earlier moments, the older one first.
        base: the moment at which this try began.
        times: status -> when it was reached last.
        waiting_for: `model`, `sink`, `storage` or `worker`, while it cannot go on without.
        setbacks: `list`, `parse`, `load` or `finish` -> why such jobs wait; until one of them succeeds.
        losses: the same -> how often in a row one was given up because its workers died; a page counts its own.
        estimate_s: of a dry run that has ended: how long the model would take, alone.
        list_state, load_state, finish_state: of the ledger's tasks that are the next ones of their kind, or under way.
        expires_ms: when its record goes; None while it is open.
        resumable: it has failed through no fault of its request, and can go on where it was: its pages wait.
        deleted: its owner has deleted it, and sees it no more. A step removes what is left of it.
        ids: stored name of the ids that are listed so far; "": of none, or nothing more is listed.
        trace: `traceparent` of the request that created it; empty when that is not traced.
        roots: folders and URLs that the owner's key might read when it was made; None: all that the server may.
        shares_table: the key might load into a table that another owner has made.
    """

    id: str
    owner: str
    status: IngestionStatus
    spec: Mapping[str, Any]
    created_ms: int
    now_ms: int
    counts: Counts
    listing_complete: bool
    revision: str | None = None
    dimension: int | None = None
    fingerprint: str | None = None
    cursor: Mapping[str, Any] | None = None
    list_number: int = 0
    next_page: int = 0
    load_number: int = 0
    waiting_pages: int = 0
    begin_next: Sequence[WaitingPage] = ()
    pages: Mapping[int, PageInFlight] = field(default_factory=dict)
    loaded_pages: Sequence[int] = ()
    loaded_ms: int | None = None
    samples: Sequence[Sample] = ()
    base: Sample | None = None
    times: Mapping[IngestionStatus, int] = field(default_factory=dict)
    error: IngestionFault | None = None
    waiting_for: str | None = None
    setbacks: Mapping[str, Setback] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    estimate_s: float | None = None
    list_state: State | None = None
    load_state: State | None = None
    finish_state: State | None = None
    expires_ms: int | None = None
    resumable: bool = False
    ids: str = ""
    order: int = 0
    vectors: str | None = None
    warning: str = ""
    deleted: bool = False
    trace: str = ""
    roots: Sequence[str] | None = None
    shares_table: bool = False

    def trace_of(self, number: int) -> str:
        """That of the task with this number. Later ones have none: nobody can read a trace of a million spans."""
        return self.trace if number < _TRACED else ""

    @property
    def ids_folder(self) -> str:
        """Ids that are listed, with a slash at the end; only needed while it lists."""
        return f"{self.folder}ids/"

    @property
    def model(self) -> str:
        """Served name."""
        return str(self.spec["model"])

    @property
    def dry_run(self) -> bool:
        """Whether it only counts."""
        return bool(self.spec.get("dry_run"))

    @property
    def folder(self) -> str:
        """Everything of its own in the storage, with a slash at the end."""
        return f"{FOLDER}/{self.id}/"

    @property
    def sample(self) -> Sample:
        """How far it is now."""
        at_ms = self.finished_ms or self.now_ms
        # Not those loaded: a load comes once a minute or so, and until then the rate would say that nothing moves.
        chunks = self.counts.chunks if self.dry_run else self.counts.chunks_embedded
        return Sample(at_ms, self.counts.done, chunks, self.bytes_through)

    @property
    def bytes_through(self) -> int:
        """Bytes of the source that are done, and the share of those in flight that is embedded.

        A page takes the model minutes where it is slow: counted only at their end, pages would say nothing meanwhile.
        """
        if self.status.terminal:
            return self.counts.bytes_done
        return self.counts.bytes_done + sum(page.bytes_through for page in self.pages.values())

    @property
    def started_ms(self) -> int | None:
        """When work on it began."""
        return min((at for status, at in self.times.items() if status is not IngestionStatus.QUEUED), default=None)

    @property
    def finished_ms(self) -> int | None:
        """When it ended."""
        return self.times.get(self.status) if self.status.terminal else None

    @property
    def rate(self) -> IngestionRate | None:
        """Of the last half minute or so, of all of it once it has ended; None before anything was done."""
        began = self.times.get(IngestionStatus.IN_PROGRESS)
        if began is None:
            return None
        now, then = self.sample, Sample(began, 0, 0, 0)
        if self.samples and not self.status.terminal:
            then = self.samples[0]
        elif self.base is not None:
            then = self.base
        seconds = (now.at_ms - then.at_ms) / 1000
        if seconds <= 0 or (now.documents <= 0 and now.bytes <= 0):
            return None
        return IngestionRate(
            (now.documents - then.documents) / seconds,
            max(0, now.chunks - then.chunks) / seconds,  # a page that is lost is embedded anew
            (now.bytes - then.bytes) / seconds,
        )

    @property
    def eta_s(self) -> float | None:
        """Seconds until its end at this rate; None while it lists, and when nothing moves."""
        rate = self.rate
        if rate is None or not self.listing_complete or self.status is not IngestionStatus.IN_PROGRESS:
            return None
        left, speed = self.counts.bytes - self.bytes_through, rate.bytes_per_s
        if left <= 0 or speed <= 0:
            left, speed = self.counts.in_progress, rate.documents_per_s
        return left / speed if speed > 0 else None

    def page_folder(self, page: int) -> str:
        """What is only there until a page is closed, with a slash at the end."""
        return f"{self.folder}work/{page:08d}/"

    def manifest_name(self, page: int, fence: str) -> str:
        """The list of a page's documents."""
        return f"{self.page_folder(page)}manifest.{fence}"

    def outcomes_name(self, page: int, fence: str) -> str:
        """What became of a page's documents."""
        return f"{self.folder}documents/{page:08d}.{fence}.jsonl"

    def task_id(self, kind: str, number: int) -> str:
        """The ledger's task for a job of this ingestion: `parse` or `embed` of a page, `list`, `load`, `finish`.

        `finish` has the number of the next listing, which no other try has.
        """
        return f"{self.id}-{number}-{kind}" if kind in {"parse", "embed"} else f"{self.id}-{kind}-{number}"


def is_too_deep(metadata: Any) -> bool:
    """Whether metadata has objects and lists within each other, itself counted, beyond `MAX_METADATA_DEPTH`.

    What is read of JSON can be deeper than what can be written: 254 levels.
    """
    level: list[Any] = [metadata]
    for _ in range(MAX_METADATA_DEPTH):
        values = (value for node in level for value in (node.values() if isinstance(node, Mapping) else node))
        level = [value for value in values if isinstance(value, Mapping | list | tuple)]
        if not level:
            return False
    return True
