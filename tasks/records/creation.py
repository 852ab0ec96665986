"""How a batch or an ingestion is stored under its owner's limits, listed and deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from tasks.errors import Refused, StorageFull, TooMany
from tasks.ledger import replies
from tasks.ledger.rate_limit import key_refusal
from tasks.ledger.scripts import Argument, Operation
from tasks.records.files import above_quota, quota_argument
from worker_config.subject import request_trace

_ROOM_AFTER_S = 60
"""When one of the owner's may have ended; nobody knows."""
_MEMORY_AFTER_S = 5


class RecordKind(Enum):
    """Records that an owner creates and workers end. The value: the word for one, which keys and scripts carry."""

    BATCH = "batch"
    INGESTION = "ingestion"

    @property
    def plural(self) -> str:
        """The word for several, which the keys of lists carry."""
        return "batches" if self is RecordKind.BATCH else "ingestions"


class NewRecord(Protocol):
    """What both kinds have when they are created."""

    @property
    def id(self) -> str:
        """With the prefix of its kind."""

    @property
    def owner(self) -> str:
        """Name of the API key it belongs to."""

    @property
    def ttl_ms(self) -> int:
        """How long it is kept after its end."""

    @property
    def key(self) -> tuple[str, str] | None:
        """(name, digest) of 32 hexadecimal digits each, from an idempotency key and from all that was asked for."""


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Limits that are checked in the same step in which a record is stored.

    Attributes:
        max_open: of one owner that have not ended; None: any number.
        quota_bytes: of the owner's files. Whoever has stored more makes nothing new; None: as much as anybody likes.
        open_jobs: tasks, batches and ingestions of the owner's key that have not ended; None: any number.
    """

    max_open: int | None = None
    quota_bytes: int | None = None
    open_jobs: int | None = None


NO_LIMITS = RecordLimits()


def create_record(
    kind: RecordKind,
    record: NewRecord,
    limits: RecordLimits,
    fields: Mapping[str, str | bytes],
    **own: Argument,
) -> Operation[str]:
    """Stores a record with these fields, or finds the one that its key names; the id of either.

    If the request that is worked on is traced, the tasks of the record will be, below that request.

    `own`: arguments by name that only the script of this kind takes.

    Raises on reading:
        Refused: the key belongs to a record of another request.
        TooMany: `max_open` of its owner have not ended.
        TooMany: `open_jobs` of its owner have not ended.
        Forbidden: the owner has stored more than the quota allows.
        StorageFull: Redis is full; for a batch also above the share of its memory that `max_memory` allows.
    """
    name, digest = record.key or ("", "")

    def read(reply: list[bytes]) -> str:
        if reply[0] == b"conflict":
            raise _conflict(kind)
        if reply[0] == b"full":
            raise TooMany(
                "too_many_batches" if kind is RecordKind.BATCH else "too_many_ingestions",
                f"You have {int(reply[1]):,} {kind.plural} that have not ended; {limits.max_open or 0:,} are allowed "
                "at a time. Wait for one to end, or cancel one.",
                retry_after_s=_ROOM_AFTER_S,
            )
        if reply[0] == b"key":
            raise key_refusal(reply)
        if reply[0] == b"quota":
            raise above_quota(int(reply[1]), limits.quota_bytes)
        if reply[0] == b"memory":
            raise StorageFull.of_queue(_MEMORY_AFTER_S)
        return reply[1].decode()

    named: dict[str, Argument] = {
        "id": record.id,
        "owner": record.owner,
        "ttl_ms": record.ttl_ms,
        "alias": name,
        "digest": digest,
        "max_open": -1 if limits.max_open is None else limits.max_open,
        "max_bytes": quota_argument(limits.quota_bytes),
        "open_jobs": "" if limits.open_jobs is None else limits.open_jobs,
        **own,
    }
    trace = request_trace()
    traced = {"trace": trace.traceparent} if trace is not None else {}
    flat = tuple(part for pair in {**fields, **traced}.items() for part in pair)
    return Operation(f"{kind.value}_create", "", flat, read, named, promised=True)


def find_record(kind: RecordKind, owner: str, key: tuple[str, str]) -> Operation[str | None]:
    """The id of the record that an idempotency key names; None: it is a new one. `key`: as of a `NewRecord`.

    Raises on reading:
        Refused: the key belongs to a record of another request.
    """

    def read(reply: list[bytes]) -> str | None:
        if reply and reply[0] == b"conflict":
            raise _conflict(kind)
        return reply[1].decode() if reply else None

    return Operation("record_find", "", (kind.value, owner, *key), read)


def _conflict(kind: RecordKind) -> Refused:
    return Refused(
        "idempotency_key_reused",
        f"This idempotency key was used for another {kind.value}. Use a new key for a new request.",
    )


def list_records(kind: RecordKind, owner: str, *, after: str | None, limit: int) -> Operation[tuple[list[str], bool]]:
    """Ids of what an owner has, the newest first and older than `after`, and whether there may be more.

    It looks at few entries at a time, so there may be more although they are less than `limit`: then ask again, behind
    the last one, or as before where there was none.
    """
    arguments = (owner, after or "", limit, kind.value, kind.plural)
    return Operation("owned_list", "", arguments, replies.id_page_from_reply)


def delete_record(kind: RecordKind, record_id: str) -> Operation[tuple[bool, str | None]]:
    """Deletes one that has ended: for its owner at once, and what it has left elsewhere in its next step.

    The reply: whether it is deleted, and the status that it had; None when there is no such record.
    """

    def read(reply: list[Any]) -> tuple[bool, str | None]:
        return bool(reply[0]), reply[1].decode() or None

    return Operation("record_delete", "", (record_id, kind.value, kind.plural), read, promised=True)


def open_records(kind: RecordKind, limit: int) -> Operation[list[str]]:
    """Ids of some that need a step, by chance."""
    return Operation("open_list", "", (limit, kind.value, kind.plural), lambda reply: [name.decode() for name in reply])
