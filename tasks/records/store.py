"""One store for records: create, change, read, list, remove. The only place that knows their scripts.

A record is a value with an id, an owner, and JSON that only its kind understands. Beside it Redis holds the random name
of its last change: a change that names another one than the last is refused, and its caller reads again. What a record
stands for in its owner's account, in which lists it is, and what of the storage goes with it, says its `Standing`.
"""

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar, cast

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.errors import Forbidden, Refused, StorageFull, TooMany, Unauthenticated
from tasks.ledger.key_limits import key_refusal
from tasks.ledger.overview import Account, read_account
from tasks.ledger.redis_keys import CHANGES, record_key
from tasks.ledger.scripts import Argument, Operation

ALL, OPEN = "@all", "@open"
"""Lists of a kind that are nobody's: of all records of it, of those that are open."""
MOST = 500
"""Records that one call reads: Redis serves nobody else meanwhile."""
FOR_EVER, AS_BEFORE = 0, -1
"""Lives of a record that are no milliseconds."""

_OWNER_SHARE = 4.0
"""An owner may fill as many times the memory that is left, with tasks and records together."""
_ROOM_AFTER_S = 60
"""When one of the owner's may have ended; nobody knows."""
_MEMORY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger looks at of a record.

    Attributes:
        owner: in whose account it counts.
        counts: name -> what it stands for there: {"stored": 600, "files": 1}, {"jobs": 1}, {"revoked": 1}.
        lists: of its kind, by the ids of their owners or as above.
        alias: "scope:name" that leads to it while it is there; "": none does. Two records cannot have the same.
        litter: stored name that the sweep may delete a minute after the record is gone; "": none.
    """

    owner: str
    counts: Mapping[str, int] = field(default_factory=dict)
    lists: Sequence[str] = ()
    alias: str = ""
    litter: str = ""

    def to_json(self, record: bytes = b"null") -> bytes:
        """As it is stored, with the record in it."""
        return orjson.dumps({**asdict(self), "record": orjson.Fragment(record)})


class AnyRecord(BaseModel):
    """A record of some kind. Frozen: what has changed is another one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    KIND: ClassVar[str]

    @property
    @abstractmethod
    def record_id(self) -> str:
        """Its id among those of its kind."""

    @abstractmethod
    def standing(self) -> Standing:
        """Where it counts, stands and leads."""

    def to_json(self) -> bytes:
        """As it is stored."""
        return self.standing().to_json(self.model_dump_json(exclude_none=True).encode())


R = TypeVar("R", bound=AnyRecord)
T = TypeVar("T")
S = TypeVar("S")


class Order(StrEnum):
    """Of a list, by the ids of its records, which begin with their time. `ANY`: by chance, so none waits for ever."""

    ASC = "asc"
    DESC = "desc"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[R]):
    """A record as it was read.

    Attributes:
        record: None: it was written by a version of embedq that this one does not understand.
        change: random name of its last change.
        alias: that leads to it.
    """

    id: str
    record: R | None = field(repr=False)
    change: str
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """What may be taken of Redis and of an account.

    Attributes:
        limits: name of a count -> what the owner's account may come to with the record.
        max_memory_percent: of the memory of Redis, above which nothing new is taken, and nothing of an owner who
            has more than a share of it; 0: the limit of Redis alone counts.
        beside: name of a count -> what the owner has of it that no account knows.
        part: it belongs to work that was let in, so a revoked owner has it too.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    max_memory_percent: float = 0
    beside: Mapping[str, int] = field(default_factory=dict)
    part: bool = False

    def to_json(self) -> bytes:
        """The limits of the account, as scripts read them."""
        return orjson.dumps([[name, most - self.beside.get(name, 0)] for name, most in self.limits.items()])


ANY_ROOM = Room()


def create(
    record: AnyRecord, room: Room = ANY_ROOM, *, for_ms: int = FOR_EVER, digest: str = "", change: str = ""
) -> Operation[str]:
    """Stores a record, unless one is there with its alias or its id; the id of the one that is there now.

    Args:
        record: the new one.
        room: limits that are checked in the same step.
        for_ms: it is removed after so long, by the clock of Redis.
        digest: of all that was asked for, where it has an alias.
        change: its name; "": a new one.

    Raises on reading:
        Refused: the alias belongs to a record of another request.
        Unauthenticated: the owner is revoked or purged.
        Forbidden: above a limit of what the owner may store.
        TooMany: above another limit.
        StorageFull: Redis is full, or the owner's share of it.
    """
    arguments = creation(
        record.KIND, record.record_id, record.to_json(), room, for_ms=for_ms, digest=digest, change=change
    )
    return Operation(lambda reply: created(record.KIND, room, reply), "record_create", "", arguments, promised=True)


def creation(
    kind: str,
    record_id: str,
    text: bytes,
    room: Room,
    *,
    for_ms: int = FOR_EVER,
    digest: str = "",
    change: str = "",
) -> tuple[Argument, ...]:
    """Arguments of a script that creates a record."""
    own = (for_ms, room.to_json(), int(room.part), room.max_memory_percent, _OWNER_SHARE)
    return (kind, record_id, text, change or new_change(), digest, *own)


def created(kind: str, room: Room, reply: Sequence[bytes]) -> str:
    """The id, from the reply of such a script; raises as `create`."""
    what = reply[0].decode()
    if what == "conflict":
        raise conflict(kind)
    if what == "revoked":
        raise Unauthenticated(ENDED)
    if what == "full":
        name, comes_to = reply[1].decode(), int(reply[2])
        raise _above(name, comes_to + room.beside.get(name, 0), room.limits[name])
    if what == "memory":
        raise StorageFull.of_queue(_MEMORY_AFTER_S)
    if what == "share":
        raise StorageFull(
            "Your share of the queue's memory is full; delete what you no longer need. Nothing was stored.",
            retry_after_s=_ROOM_AFTER_S,
        )
    return reply[1].decode()


ENDED = "While this request was sent, its API key was revoked, or all that its caller owned was deleted."


def conflict(kind: str) -> Refused:
    """The error for an idempotency key that names a record of another request."""
    return Refused(
        "idempotency_key_reused",
        f"This idempotency key was used for another {kind}. Use a new key for a new request.",
    )


def _above(name: str, comes_to: int, most: int) -> Exception:
    if name == "stored":
        return Forbidden(
            "quota_exceeded",
            f"Your files, datasets and ingestions hold {comes_to:,} bytes with this, and {most:,} are allowed. "
            "Delete some first, or send less.",
        )
    if name == "files":
        return Forbidden("quota_exceeded", f"You have {most:,} files, and no more are allowed. Delete some first.")
    if name == "jobs":
        return key_refusal([b"open_jobs", b"%d" % most, b"%d" % (comes_to - 1), b"%d" % _ROOM_AFTER_S])
    of_batches = name == "batches"
    return TooMany(
        "too_many_batches" if of_batches else "too_many_ingestions",
        f"You have {comes_to - 1:,} {name} that have not ended; {most:,} are allowed at a time. Wait for one to end, "
        "or cancel one.",
        retry_after_s=_ROOM_AFTER_S,
    )


def new_change() -> str:
    """A name that no other change has."""
    return secrets.token_hex(8)


def change(
    before: ReadRecord[R], record: R, room: Room = ANY_ROOM, *, for_ms: int = AS_BEFORE, name: str = ""
) -> Operation[bool]:
    """Puts a record in the place of the one that was read; False if that is not the present one any more.

    Args:
        before: as it was read.
        record: as it shall be.
        room: of it only the limits of the account.
        for_ms: it is removed after so long from now.
        name: of this change; "": a new one. Running it again says True as long as it is the last change.

    Raises on reading:
        Forbidden, TooMany: as `create`.
    """
    own = (record.KIND, before.id, before.change, name or new_change(), record.to_json(), for_ms, room.to_json())

    def read(reply: list[Any]) -> bool:
        return reply[0] != b"changed" and bool(created(record.KIND, room, reply))

    return Operation(read, "record_change", "", own, promised=True)


def remove(kind: type[R], record_id: str, change: str = "") -> Operation[R | None]:
    """Removes a record, and what it stands for; what it was, None where there was none or nobody understands it.

    `change`: a record whose last change is another one stays.
    """

    def read(text: bytes) -> R | None:
        return record_of(kind, text) if text else None

    return Operation(read, "record_remove", "", (kind.KIND, record_id, change), promised=True)


def read(kind: type[R], record_ids: Sequence[str]) -> Operation[list[ReadRecord[R] | None]]:
    """The records with these ids, in the order asked for; None where there is none (any more)."""
    ids = tuple(record_ids)

    def read(reply: list[Any]) -> list[ReadRecord[R] | None]:
        rows = zip(ids, reply, strict=True)
        return [_stored(kind, name, text, last) if text else None for name, (text, last) in rows]

    return Operation(read, commands=tuple(("HMGET", record_key(kind.KIND, name), "s", "change") for name in ids))


@dataclass(frozen=True, slots=True)
class RecordPage(Generic[R]):
    """Some records of a list. `more`: there are others behind the last one."""

    records: tuple[ReadRecord[R], ...]
    more: bool


def listed(
    kind: type[R], of: str, *, after: str = "", limit: int = MOST, order: Order = Order.DESC
) -> Operation[RecordPage[R]]:
    """Up to `limit` records of a list, `MOST` at most, behind the one with the id `after`, which may be gone by now."""

    def read(reply: list[Any]) -> RecordPage[R]:
        more, *rows = reply
        return RecordPage(tuple(_stored(kind, i.decode(), text, last) for i, text, last in rows), bool(more))

    return Operation(read, "record_list", "", (kind.KIND, of, after, min(limit, MOST), order, 1))


def listed_ids(
    kind: str, of: str, *, after: str = "", limit: int, order: Order = Order.DESC
) -> Operation[tuple[list[str], bool]]:
    """The ids alone, and whether there are more."""
    return Operation(
        lambda reply: ([row[0].decode() for row in reply[1:]], bool(reply[0])),
        "record_list",
        "",
        (kind, of, after, min(limit, MOST), order, 0),
    )


def listed_changes(kind: str, of: str, *, after: str = "") -> Operation[list[tuple[str, str]]]:
    """Ids of some records of a list behind `after`, the oldest first, each with its last change; none at the end."""
    return Operation(
        lambda reply: [(record_id.decode(), (change or b"").decode()) for record_id, _, change in reply[1:]],
        "record_list",
        "",
        (kind, of, after, MOST, Order.ASC, 0),
    )


@dataclass(frozen=True, slots=True)
class Left:
    """What an owner has, by its account: open jobs, files, bytes in the storage and in Redis."""

    jobs: int
    files: int
    stored_bytes: int
    memory_bytes: int

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return any(astuple(self))


def left_of(owner: str) -> Operation[Left]:
    """What is in the account of an owner. Datasets are in none."""

    def left(account: Account) -> Left:
        return Left(*(account.numbers.get(name, 0) for name in ("jobs", "files", "stored", "bytes")))

    return mapped(read_account(owner), left)


@dataclass(frozen=True, slots=True)
class News:
    """The time of Redis in Unix seconds, and the names of the last changes of some kinds, "" where there was none."""

    now_s: float
    changes: tuple[str, ...]


def news(*kinds: str) -> Operation[News]:
    """Whether records of these kinds have changed: one look at a hash. A name comes only once; a number would not."""

    def read(replies: list[Any]) -> News:
        (seconds, microseconds), *names = replies
        return News(int(seconds) + int(microseconds) / 1e6, tuple((name or b"").decode() for name in names))

    return Operation(read, commands=(("TIME",), *(("HGET", CHANGES, kind) for kind in kinds)))


def mapped(operation: Operation[T], then: Callable[[T], S]) -> Operation[S]:
    """The same call, with something made of its value."""
    return replace(cast("Operation[Any]", operation), read=lambda reply: then(operation.read(reply)))


def _stored(kind: type[R], record_id: str, text: bytes, last: bytes) -> ReadRecord[R]:
    return ReadRecord(record_id, record_of(kind, text), last.decode(), orjson.loads(text)["alias"])


def record_of(kind: type[R], text: bytes) -> R | None:
    """From what is stored; None: another version of embedq wrote it."""
    try:
        return kind.model_validate(orjson.loads(text)["record"])
    except ValidationError:
        return None
