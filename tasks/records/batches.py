"""A batch: many requests in one file, and where it has got to. All frozen; times are ms of the ledger's clock."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from tasks.ledger.ids import RecordIds
from tasks.ledger.read import fields_of
from tasks.ledger.scripts import Argument, Operation
from tasks.ledger.task import State
from tasks.records.files import file_id_from
from tasks.records.jobs import RecordKind, create_record, delete_record, list_records, open_records
from tasks.records.store import ANY_ROOM, Room

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
        only_file_id: an error file of another batch over the same input: only the requests with the `custom_id` of its
            lines are made; None: all.
    """

    id: str
    owner: str
    input_file_id: str
    completion_window: str
    window_ms: int
    ttl_ms: int
    metadata: Mapping[str, str] | None = field(default=None, repr=False)
    output_expires_s: int | None = None
    key: tuple[str, str] | None = None
    only_file_id: str | None = None


class BatchCounts(NamedTuple):
    """Requests, by what became of them."""

    total: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is now.

    Attributes:
        model: served name; None before its lines were read.
        total, completed, failed: requests. While it runs, by the part of all texts that is done: of a request with
            several texts nobody knows before the end whether all of them have vectors.
        tokens: that the model has read for it; known at its end.
        ends_as: what it becomes when its files are written.
        times: status -> when it was reached.
        stages: states of its tasks; those that do not exist are absent.
        losses: stage -> how often its task was tried again because its workers had died.
        again_ms: no task of a stage is submitted before.
        deleted: its owner has deleted it, and sees it no more. A step removes what is left of it.
        only_file_id: as of a `NewBatch`.
        now_ms: when this was read.
        trace: `traceparent` of the request that created it; empty when that is not traced.
    """

    id: str
    owner: str
    status: BatchStatus
    input_file_id: str
    completion_window: str
    created_ms: int
    expires_ms: int
    metadata: Mapping[str, str] | None = field(repr=False)
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
    deleted: bool = False
    only_file_id: str | None = None
    trace: str = ""

    def task_id(self, stage: Stage) -> str:
        """The ledger's task for a stage."""
        return f"{self.id}-{stage}"

    @property
    def counts(self) -> BatchCounts:
        """Of its requests."""
        return BatchCounts(self.total, self.completed, self.failed)

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


# Operations on batches: values as in `tasks.ledger.scripts`, each one script and harmless when run twice.


_PATIENCE_MS = 366 * 86_400_000
"""An open batch waits so long for its workers, however short a time it is kept after its end."""


def create_batch(batch: NewBatch, room: Room = ANY_ROOM) -> Operation[str]:
    """Stores a batch, or finds the one that its key names, see `create_record`; the id of either."""
    fields = {"input_file": batch.input_file_id, "window": batch.completion_window}
    if batch.metadata:
        fields["metadata"] = orjson.dumps(dict(batch.metadata)).decode()
    if batch.only_file_id is not None:
        fields["only_file"] = batch.only_file_id
    if batch.output_expires_s is not None:
        fields["output_expires_s"] = str(batch.output_expires_s)
    for_ms = batch.window_ms + max(batch.ttl_ms, _PATIENCE_MS)
    return create_record(RecordKind.BATCH, batch, room, fields, batch.window_ms, batch.ttl_ms, for_ms=for_ms)


delete_batch = partial(delete_record, RecordKind.BATCH)
list_batches = partial(list_records, RecordKind.BATCH)
open_batches = partial(open_records, RecordKind.BATCH)


def read_batch(batch_id: str) -> Operation[Batch | None]:
    """One batch; None when the ledger does not hold it."""
    return Operation(lambda reply: _batch_from_reply(batch_id, reply[0]), "batch_read", "", (batch_id,))


def read_batches(batch_ids: Sequence[str]) -> Operation[list[Batch]]:
    """Several batches, in the order asked for; those that are gone are left out."""
    ids = tuple(batch_ids)

    def read(reply: list[Any]) -> list[Batch]:
        read = [_batch_from_reply(i, row) for i, row in zip(ids, reply, strict=True)]
        return [batch for batch in read if batch is not None]

    return Operation(read, "batch_read", "", ids)


def move_batch(
    batch_id: str,
    to: BatchStatus,
    *,
    only_from: Collection[BatchStatus],
    fields: Mapping[str, str | int] | None = None,
) -> Operation[tuple[bool, BatchStatus | None]]:
    """Moves a batch, if it is in one of the states named, and sets fields with it. Keeps the time.

    The reply: whether it moved, and its status now; None when there is no such batch.
    """
    flat: list[Argument] = [part for pair in (fields or {}).items() for part in pair]
    states = sorted(only_from)

    def read(reply: list[Any]) -> tuple[bool, BatchStatus | None]:
        return bool(reply[0]), BatchStatus(reply[1].decode()) if reply[1] else None

    arguments = (batch_id, to, int(to.terminal), len(states), *states, *flat)
    return Operation(read, "batch_move", "", arguments, promised=True)


def close_batch(batch_id: str, *, deleted: bool = False) -> Operation[None]:
    """Nothing is left to do for a batch that has ended. `deleted`: the caller knew that, so the record goes too."""
    return Operation(lambda _: None, "batch_close", "", (batch_id, int(deleted)))


def faults_text(faults: Sequence[BatchFault]) -> str:
    """Faults as the field `errors` of a batch holds them."""
    return orjson.dumps([asdict(fault) for fault in faults]).decode()


def losses_field(stage: Stage) -> str:
    """The field of a batch with the number of tries that a stage has lost to dead workers."""
    return f"losses_{stage}"


def _batch_from_reply(batch_id: str, reply: list[Any]) -> Batch | None:
    flat, now_ms, states, ended = reply
    if not flat:
        return None
    f = {name.decode(): value.decode() for name, value in fields_of(flat).items()}
    status = BatchStatus(f["status"])
    total, texts = int(f.get("total", 0)), int(f.get("texts", 0))
    if "completed" in f:
        completed, failed = int(f["completed"]), int(f["failed"])
    else:
        completed, failed = (int(n or 0) * total // texts if texts else 0 for n in ended)
    return Batch(
        id=batch_id,
        owner=f["owner"],
        status=status,
        input_file_id=f["input_file"],
        completion_window=f["window"],
        created_ms=int(f["created"]),
        expires_ms=int(f["expires"]),
        metadata=orjson.loads(f["metadata"]) if "metadata" in f else None,
        output_expires_s=_number(f, "output_expires_s"),
        model=f.get("model"),
        total=total,
        completed=completed,
        failed=failed,
        tokens=_number(f, "tokens"),
        output_file_id=f.get("output_file"),
        error_file_id=f.get("error_file"),
        errors=[BatchFault(**fault) for fault in orjson.loads(f.get("errors", "[]"))],
        ends_as=BatchStatus(f.get("ends_as", "completed")),
        times={s: int(f[f"t_{s}"]) for s in BatchStatus if f"t_{s}" in f},
        stages={stage: State(text.decode()) for stage, text in zip(Stage, states, strict=True) if text},
        now_ms=int(now_ms),
        losses={stage: int(f[losses_field(stage)]) for stage in Stage if losses_field(stage) in f},
        again_ms=int(f.get("again_at", 0)),
        deleted="deleted_at" in f,
        only_file_id=f.get("only_file"),
        trace=f.get("trace", ""),
    )


def _number(fields: Mapping[str, str], name: str) -> int | None:
    return int(fields[name]) if name in fields else None
