"""An ingestion: documents of a source on their way into a dataset, page by page."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar, NamedTuple

from tasks.ledger.ids import RecordIds
from tasks.records.jobs import Job, JobError, JobRecord, JobStatus, Page, read_job, read_jobs

MAX_METADATA_DEPTH = 32
"""Of a document."""
SAMPLE_EVERY_MS = 10_000

_IDS = RecordIds("ing_")
new_ingestion_id = _IDS.new
is_ingestion_id = _IDS.fits
_OURS = {"worker_lost", "not_stored", "internal_error", "sink_refused", "quota_exceeded"}
"""Faults of the installation or of the account, not of the request: somebody mends them, and it goes on."""


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


class Sample(NamedTuple):
    """How far an ingestion was at a moment: `chunks` that are embedded, in a dry run those that are cut."""

    at_ms: int
    documents: int
    chunks: int
    bytes: int


class IngestionRecord(JobRecord):
    """The head of an ingestion.

    Attributes:
        request: `source`, `listed` (stored name of the source's `files`, `urls` or `documents`, as JSON lines: every
            round reads the request, so it holds no more than their number), `chunking`, `sink`, `mode`, `model` (served
            name), `label`, and where they were given `urls_shown`, `dimensions`, `normalize`, `prompt_name`,
            `input_type`, `dry_run`, `metadata`, `on_conflict`.
        most_stored: what the owner's account may come to: the quota without the datasets, as both were when it was made
            or tried again; None: anything.
        roots: folders and URLs that the owner's key might read when it was made; None: all that the server may.
        shares_table: the key might load into a table that another owner has made.
        revision, dimension, fingerprint, vectors: of the model and the pipeline; None while it is queued.
        warning: what its owner should know of the vectors.
        empty_roots: fields of the request that name places which list nothing, and of which documents are known.
        dataset_id: of the dataset, as it was when listing began; "" before that.
        deleted_documents: that `sync` has taken away, in all tries.
        estimate_s: of a dry run that has ended: how long the model would take, alone.
        samples: two earlier moments, the older one first. `base`: when this try began.
    """

    KIND: ClassVar = "ingestion"
    PLURAL: ClassVar = "ingestions"

    most_stored: int | None = None
    roots: tuple[str, ...] | None = None
    shares_table: bool = False
    revision: str | None = None
    dimension: int | None = None
    fingerprint: str | None = None
    vectors: str | None = None
    warning: str = ""
    empty_roots: tuple[str, ...] = ()
    dataset_id: str = ""
    deleted_documents: int = 0
    estimate_s: float | None = None
    samples: tuple[Sample, ...] = ()
    base: Sample | None = None

    def shown_status(self, pages: Mapping[int, Page]) -> str:  # noqa: ARG002 - a batch looks at its page
        """In OpenAI's words."""
        return "cancelling" if self.stop is not None and not self.status.terminal else self.status


class DocumentCounts(NamedTuple):
    """Of documents, chunks, bytes of the source and tokens.

    Attributes:
        documents: listed so far; `loaded`, `unchanged`, `failed` and `cancelled` of them have ended.
        deleted: documents of earlier ingestions that `sync` took away.
        replaced, emptied, warned: as of `Counts`.
        chunks: cut so far.
        tokens: that the model has read.
        chunk_tokens: of all chunks, counted before.
    """

    documents: int
    loaded: int
    unchanged: int
    failed: int
    cancelled: int
    deleted: int
    replaced: int
    emptied: int
    warned: int
    chunks: int
    chunks_embedded: int
    chunks_loaded: int
    bytes: int
    bytes_done: int
    tokens: int
    chunk_tokens: int

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
class IngestionRate:
    """Documents, chunks and source bytes in a second."""

    documents_per_s: float
    chunks_per_s: float
    bytes_per_s: float


class Ingestion(Job[IngestionRecord]):
    """An ingestion as it is now."""

    @property
    def status(self) -> IngestionStatus:
        """In OpenAI's words. One that is deleted has ended."""
        shown = self.record.shown_status(self.pages)
        return IngestionStatus.CANCELLED if shown == JobStatus.DELETED else IngestionStatus(shown)

    @property
    def spec(self) -> Mapping[str, Any]:
        """What was asked for."""
        return self.record.request

    @property
    def dry_run(self) -> bool:
        """Whether it only counts."""
        return self.record.dry_run

    @property
    def error(self) -> JobError | None:
        """Why it failed as a whole."""
        return next(iter(self.record.errors), None)

    @property
    def resumable(self) -> bool:
        """It has failed through no fault of its request, and can go on where it was."""
        error = self.error
        begun = self.record.revision is not None  # there is something to go on with
        return self.status is IngestionStatus.FAILED and error is not None and error.code in _OURS and begun

    @property
    def warning(self) -> str:
        """What its owner should know of the vectors, and of its end; "" for nothing."""
        empty = self.record.empty_roots
        if not empty:
            return self.record.warning
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        nothing_listed = (
            f"{empty[0]}{more} lists nothing, and documents from there are known: they were kept. Is its disk mounted, "
            "and is its path right? If it is meant to be empty, leave it out of the request."
        )
        return f"{self.record.warning} {nothing_listed}".lstrip()

    @property
    def estimate_s(self) -> float | None:
        """See `IngestionRecord`."""
        return self.record.estimate_s

    @property
    def listing_complete(self) -> bool:
        """Whether all of its documents are known."""
        return self.record.listed

    @property
    def waiting_for(self) -> str | None:
        """`model`, `sink`, `storage`, `disk_full` or `worker`, while it cannot go on without."""
        return self.record.wait.what if self.record.wait and not self.status.terminal else None

    @property
    def counts(self) -> DocumentCounts:
        """Of all that is known so far."""
        so_far, done = self.counts_so_far(), self.record.sums
        new = [(number, page) for number, page in self.pages.items() if page.was is None]
        left = sum(page.documents for _, page in new)
        return DocumentCounts(
            documents=so_far.documents,
            loaded=done.loaded,
            unchanged=done.unchanged,
            failed=done.failed,
            cancelled=left if self.status.terminal else 0,
            deleted=self.record.deleted_documents,
            replaced=done.replaced,
            emptied=done.emptied,
            warned=done.warned,
            chunks=so_far.chunks,
            chunks_embedded=0 if self.dry_run else done.chunks + sum(self.embedded_of(*each) for each in new),
            chunks_loaded=done.loaded_chunks,
            bytes=so_far.bytes,
            bytes_done=done.bytes,
            tokens=so_far.tokens,
            chunk_tokens=so_far.chunk_tokens,
        )

    @property
    def started_ms(self) -> int | None:
        """When work on it began, or began again; None before that."""
        return self.times.get(IngestionStatus.IN_PROGRESS)

    @property
    def finished_ms(self) -> int | None:
        """When it ended."""
        return self.times.get(self.status) if self.status.terminal else None

    @property
    def bytes_through(self) -> int:
        """Bytes of the source that are done, and the share of those in open pages that needs no model any more.

        A page takes the model minutes where it is slow: counted only at their end, pages would say nothing meanwhile.
        """
        through = sum(
            page.size_bytes * self.embedded_of(number, page) // page.chunks
            for number, page in self.pages.items()
            if page.chunks and page.was is None
        )
        return self.record.sums.bytes + (0 if self.status.terminal else through)

    @property
    def sample(self) -> Sample:
        """How far it is now."""
        counts = self.counts
        # Not those loaded: these come page by page, and until then the rate would say that nothing moves.
        chunks = counts.chunks if self.dry_run else counts.chunks_embedded
        again = self.record.looks_again or any(page.was is not None for page in self.pages.values())
        documents = counts.completed if again else counts.done  # what is tried again counts as failed until it is done
        return Sample(self.finished_ms or self.now_ms, documents, chunks, self.bytes_through)

    @property
    def rate(self) -> IngestionRate | None:
        """Of the last half minute or so, of all of it once it has ended; None before anything was done."""
        began = self.times.get(IngestionStatus.IN_PROGRESS)
        if began is None:
            return None
        now, then = self.sample, self.record.base or Sample(began, 0, 0, 0)
        if self.record.samples and not self.status.terminal:
            then = self.record.samples[0]
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
        counts = self.counts
        left, speed = counts.bytes - self.bytes_through, rate.bytes_per_s
        if left <= 0 or speed <= 0:
            left, speed = counts.in_progress, rate.documents_per_s
        return left / speed if speed > 0 else None


read_ingestion = partial(read_job, IngestionRecord, Ingestion)
read_ingestions = partial(read_jobs, IngestionRecord, Ingestion)


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
