"""What batches and ingestions have in common as records: how one is stored, found, listed and deleted."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from tasks.ledger.redis_keys import record_alias_key
from tasks.ledger.scripts import Argument, Operation
from tasks.records import store
from tasks.records.store import OPEN, Order, Room, Standing
from worker_config.subject import request_trace


class RecordKind(StrEnum):
    """Records that an owner creates and workers end. The value: the word for one, which keys and scripts carry."""

    BATCH = "batch"
    INGESTION = "ingestion"

    @property
    def plural(self) -> str:
        """The word for several: the folder in the storage, and what counts in the owner's account while it is open."""
        return "batches" if self is RecordKind.BATCH else "ingestions"


class NewRecord(Protocol):
    """What both kinds have when they are created."""

    @property
    def id(self) -> str:
        """With the prefix of its kind."""

    @property
    def owner(self) -> str:
        """Id of the owner it belongs to."""

    @property
    def key(self) -> tuple[str, str] | None:
        """(name, digest) of 32 hexadecimal digits each, from an idempotency key and from all that was asked for."""


def create_record(
    kind: RecordKind,
    record: NewRecord,
    room: Room,
    fields: Mapping[str, str | bytes],
    *own: Argument,
    for_ms: int = store.FOR_EVER,
) -> Operation[str]:
    """Stores a record with these fields, or finds the one that its key names; the id of either.

    If the request that is worked on is traced, the tasks of the record will be, below that request.

    `own`: arguments that only the script of this kind takes. Raises on reading as `store.create`.
    """
    name, digest = record.key or ("", "")
    standing = Standing(
        owner=record.owner,
        counts={"jobs": 1, kind.plural: 1},
        lists=(record.owner, OPEN),
        alias=f"{record.owner}:{name}" if name else "",
        litter=f"{kind.plural}/{record.id}/",
    )
    trace = request_trace()
    stored = {"owner": record.owner, **fields, **({"trace": trace.traceparent} if trace is not None else {})}
    arguments = store.creation(kind, record.id, standing.to_json(), room, for_ms=for_ms, digest=digest, fields=stored)

    def read(reply: list[Any]) -> str:
        return store.created(kind, room, reply)

    return Operation(read, f"{kind}_create", "", (*own, *arguments), promised=True)


def find_record(kind: RecordKind, owner: str, key: tuple[str, str]) -> Operation[str | None]:
    """The id of the record that an idempotency key names; None: it is a new one. `key`: as of a `NewRecord`.

    Raises on reading:
        Refused: the key belongs to a record of another request.
    """
    name, digest = key

    def read(replies: list[bytes | None]) -> str | None:
        record_id, _, of = (replies[0] or b"").decode().partition(" ")
        if record_id and of != digest:
            raise store.conflict(kind)
        return record_id or None

    return Operation(read, commands=(("GET", record_alias_key(kind, f"{owner}:{name}")),))


def list_records(kind: RecordKind, owner: str, *, after: str | None, limit: int) -> Operation[tuple[list[str], bool]]:
    """Ids of what an owner has, the newest first and older than `after`, and whether there are more."""
    return store.listed_ids(kind, owner, after=after or "", limit=limit)


def delete_record(kind: RecordKind, record_id: str) -> Operation[tuple[bool, str | None]]:
    """Deletes one that has ended: for its owner at once, and what it has left elsewhere in its next step.

    The reply: whether it is deleted, and the status that it had; None when there is no such record.
    """

    def read(reply: list[Any]) -> tuple[bool, str | None]:
        return bool(reply[0]), reply[1].decode() or None

    return Operation(read, "job_delete", "", (record_id, kind), promised=True)


def open_records(kind: RecordKind, limit: int) -> Operation[list[str]]:
    """Ids of some that need a step, by chance."""
    return store.mapped(store.listed_ids(kind, OPEN, limit=limit, order=Order.ANY), lambda found: found[0])
