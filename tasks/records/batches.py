"""A batch: many requests in one file. A job of one page; in OpenAI's words."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import Field

from tasks.ledger.ids import RecordIds
from tasks.records.files import file_id_from
from tasks.records.jobs import Counts, Job, JobError, JobRecord, JobStatus, Page, Stage, read_job, read_jobs

ENDPOINT = "/v1/embeddings"
"""The only call that a batch can make."""

FileKind: TypeAlias = Literal["output", "error"]
KINDS: tuple[FileKind, ...] = ("output", "error")
"""Of what succeeded, and of what did not."""

_IDS = RecordIds("batch_")
new_batch_id = _IDS.new
is_batch_id = _IDS.fits


class BatchStatus(StrEnum):
    """States of a batch, in OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether a batch in this state has ended."""
        return self in {BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}


_SHOWN = {Stage.PARSE: "validating", Stage.EMBED: "in_progress", Stage.LOAD: "finalizing"}


class BatchRecord(JobRecord):
    """The head of a batch.

    Attributes:
        request: `input_file_id`, `completion_window` as the client said it, and where they were given `metadata`,
            `output_expires_s` and `only_file_id`: an error file of another batch over the same input; only the requests
            with the `custom_id` of its lines are made.
        window_ms: how long it may take.
        files: kind -> id of the file that it has made.
    """

    KIND: ClassVar = "batch"
    PLURAL: ClassVar = "batches"

    listed: bool = True
    window_ms: int
    files: Mapping[FileKind, str] = Field(default_factory=dict)

    def shown_status(self, pages: Mapping[int, Page]) -> str:
        """In OpenAI's words."""
        if self.status.terminal:
            return self.status
        if self.stop is not None:
            return "finalizing" if self.stop is JobStatus.EXPIRED else "cancelling"
        return _SHOWN[pages[1].at] if pages else "validating"


class BatchCounts(NamedTuple):
    """Requests, by what became of them."""

    total: int
    completed: int
    failed: int


class Batch(Job[BatchRecord]):
    """A batch as it is now."""

    @property
    def status(self) -> BatchStatus:
        """In OpenAI's words. One that is deleted has ended."""
        shown = self.record.shown_status(self.pages)
        return BatchStatus.CANCELLED if shown == JobStatus.DELETED else BatchStatus(shown)

    @property
    def input_file_id(self) -> str:
        """Of its requests."""
        return str(self.record.request["input_file_id"])

    @property
    def only_file_id(self) -> str | None:
        """See `BatchRecord.request`."""
        return self.record.request.get("only_file_id")

    @property
    def completion_window(self) -> str:
        """As the client said it."""
        return str(self.record.request["completion_window"])

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """The client's own pairs."""
        return self.record.request.get("metadata")

    @property
    def output_expires_s(self) -> int | None:
        """Life of the files that it makes; None: as long as files live by default."""
        return self.record.request.get("output_expires_s")

    @property
    def until_ms(self) -> int:
        """The end of its window."""
        return self.created_ms + self.record.window_ms

    @property
    def errors(self) -> Sequence[JobError]:
        """Why it failed."""
        return self.record.errors

    @property
    def output_file_id(self) -> str | None:
        """Of the file with the answers."""
        return self.record.files.get("output")

    @property
    def error_file_id(self) -> str | None:
        """Of the file with the requests that failed."""
        return self.record.files.get("error")

    @property
    def tokens(self) -> int | None:
        """That the model has read for it; known at its end."""
        return self.record.sums.tokens if self.record.done_pages else None

    @property
    def counts(self) -> BatchCounts:
        """Of its requests. While it runs, by the part of all texts that is done.

        Of a request with several texts nobody knows before the end whether all of them have vectors.
        """
        if self.record.done_pages:
            sums = self.record.sums
            return BatchCounts(sums.documents, sums.loaded, sums.failed)
        page = self.pages.get(1)
        if page is None or not page.chunks:
            return BatchCounts(0, 0, 0)
        task = self.tasks.get(self.record.task_id(1, Stage.EMBED)) if page.at is Stage.EMBED else None
        completed, failed = (task.completed, task.failed) if task else (0, 0)
        if page.at is Stage.LOAD:
            completed, failed = page.chunks - page.failed_texts, page.failed_texts
        return BatchCounts(page.documents, *(n * page.documents // page.chunks for n in (completed, failed)))

    def file_id(self, kind: FileKind) -> str:
        """The id of a file that it makes, in all attempts the same."""
        return file_id_from(self.files_ms, f"{self.id} {kind}")

    @property
    def files_ms(self) -> int:
        """When the files that it makes count as created: in all attempts at making them the same moment."""
        began = self.times.get(BatchStatus.FINALIZING) or self.times.get(BatchStatus.CANCELLING)
        return began or self.created_ms


def counts_of_lines(total: int, completed: int, failed: int, texts: int, tokens: int) -> Counts:
    """Of the page of a batch that is done."""
    return Counts(documents=total, loaded=completed, failed=failed, chunks=texts, loaded_chunks=texts, tokens=tokens)


read_batch = partial(read_job, BatchRecord, Batch)
read_batches = partial(read_jobs, BatchRecord, Batch)
