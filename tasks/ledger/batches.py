"""A batch: many requests in one file, and where it has got to. All frozen; times are ms of the ledger's clock."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

import uuid_utils

from tasks.ledger.files import Quota, file_id_from
from tasks.ledger.types import State

ENDPOINT = "/v1/embeddings"
"""The only call that a batch can make."""

FileKind: TypeAlias = Literal["output", "error"]
KINDS: tuple[FileKind, ...] = ("output", "error")
"""Of what succeeded, and of what did not."""

_FORM = re.compile(r"batch_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


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


class Stage(StrEnum):
    """The ledger tasks of a batch, one after the other."""

    VALIDATE = "validate"
    EMBED = "embed"
    ASSEMBLE = "assemble"


@dataclass(frozen=True, slots=True)
class BatchFault:
    """Why a batch failed: one of possibly many reasons. `line` counts from 1; None: not a matter of one line."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch as it is created.

    Attributes:
        completion_window: as the client said it, `24h`; `window_ms` is its length.
        metadata: the client's own pairs.
        output_expires_s: life of the files it will make; None: as long as files live by default.
        ttl_ms: how long its record is kept after its end.
        key: (name, digest) of 32 hexadecimal digits each, from an idempotency key and from all that was asked for.
    """

    id: str
    owner: str
    input_file_id: str
    completion_window: str
    window_ms: int
    ttl_ms: int
    metadata: Mapping[str, str] | None = None
    output_expires_s: int | None = None
    key: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class BatchAdmission:
    """Limits that are checked in the same step in which a batch is stored.

    Attributes:
        max_open: batches of one owner that have not ended; None: any number.
        max_memory_percent: share of Redis's `maxmemory` above which nothing new is taken, what open tasks will need
            included.
        quota: of the owner's files. Whoever has stored more makes nothing new; None: as much as anybody likes.
    """

    max_open: int | None = None
    max_memory_percent: int = 100
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is now.

    Attributes:
        model: served name; None before its lines were read.
        total, completed, failed: requests; while it runs those of its task.
        tokens: that the model has read for it; known at its end.
        ends_as: what it becomes when its files are written.
        times: status -> when it was reached.
        stages: states of its tasks; those that do not exist are absent.
        losses: stage -> how often its task was tried again because its workers had died.
        again_ms: no task of a stage is submitted before.
        now_ms: when this was read.
    """

    id: str
    owner: str
    status: BatchStatus
    input_file_id: str
    completion_window: str
    created_ms: int
    expires_ms: int
    metadata: Mapping[str, str] | None
    output_expires_s: int | None
    model: str | None
    total: int
    completed: int
    failed: int
    tokens: int | None
    output_file_id: str | None
    error_file_id: str | None
    errors: Sequence[BatchFault]
    ends_as: BatchStatus
    times: Mapping[BatchStatus, int]
    stages: Mapping[Stage, State]
    now_ms: int
    losses: Mapping[Stage, int]
    again_ms: int

    def task_id(self, stage: Stage) -> str:
        """The ledger's task for a stage."""
        return f"{self.id}-{stage}"

    @property
    def files_ms(self) -> int:
        """When the files that it makes count as created: in all attempts at making them the same moment."""
        began = self.times.get(BatchStatus.FINALIZING) or self.times.get(BatchStatus.CANCELLING)
        return began or self.created_ms

    def file_id(self, kind: FileKind) -> str:
        """The id of a file that it makes, in all attempts the same."""
        return file_id_from(self.files_ms, f"{self.id} {kind}")

    @property
    def folder(self) -> str:
        """Where its index and its parts are stored, with a slash at the end."""
        return f"batches/{self.id}/"


def new_batch_id() -> str:
    """A fresh id: `batch_` and the digits of a UUIDv7, so that ids sort by time."""
    return f"batch_{uuid_utils.uuid7().hex}"


def is_batch_id(text: str) -> bool:
    """Whether it has the form of our ids."""
    return _FORM.fullmatch(text) is not None
