"""API keys: who may call, what the caller may do, how much of it, and whose is what it makes.

Of the text of a key only its SHA-256 is stored. An owner is an id that is made with the key and that nobody inherits:
the name is a label, and free again when the key is deleted. A service that has had a key never opens again by itself.

Two things can be marked, and the owner's account in Redis says both too. *Revoked*, by the record of the key: new
requests are refused, accepted work goes on to its end. *Purged*, by a record of its own: nothing new is stored for the
owner, open work ends, and a documents worker, which reads no keys, removes what there is. That mark stays for ever,
also when the key is deleted, so nothing that comes late follows it.
"""

import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.errors import Conflict
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.ledger.scripts import Operation
from tasks.records import store
from tasks.records.store import ALL, AnyRecord, ReadRecord, Room, Standing


class Scope(StrEnum):
    """What a key may be used for."""

    ONLINE = "online"
    BULK = "bulk"
    FILES = "files"
    INGEST = "ingest"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)
"""Those of the first key that manages keys. `admin` has `operate` in it."""
USUAL_SCOPES = ALL_SCOPES - {Scope.OPERATE, Scope.ADMIN}
"""Those of a tenant: of a key for which nobody has named any."""
OPEN_SCOPES = ALL_SCOPES - {Scope.ADMIN}
"""Those of everybody where there are no keys: whoever may call there sees the operator's figures too."""

MAX_KEYS = 10_000
"""Every process of the web tier reads all of them after a change of one."""
MAX_NAMED = 100
PURGE, GONE = "@purge", "@gone"
"""Lists of marks: the owner may still have something, has nothing any more."""
_PREFIX = "embedq_"
_SECRET_BYTES = 32
_OWNER_HEX = 20
_OWNER = re.compile(r"(owner|environment)_[0-9a-f]{20}")

Named = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class Limits(BaseModel):
    """What one key may use. None: it has no limit of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    requests_per_second: float | None = Field(
        None, strict=True, ge=0.001, le=1_000_000, description="Requests of any kind."
    )
    tokens_per_minute: int | None = Field(
        None, strict=True, ge=1, le=10**12, description="Estimated tokens of accepted texts."
    )
    queued_tokens: int | None = Field(
        None, strict=True, ge=1, le=10**12, description="Estimated tokens that wait at a time."
    )
    open_jobs: int | None = Field(
        None, strict=True, ge=1, le=10**9, description="Tasks, batches and ingestions that have not ended."
    )
    stored_bytes: int | None = Field(
        None, strict=True, ge=0, le=10**18, description="Of files, outputs, outcomes and datasets."
    )
    sinks: tuple[Named, ...] | None = Field(
        None, max_length=MAX_NAMED, description="Names of `EMBEDQ_SINKS`, or `name/table`; a table may end with `*`."
    )
    roots: tuple[Named, ...] | None = Field(
        None, max_length=MAX_NAMED, description="Prefixes below `EMBEDQ_INGEST_ROOTS` that ingestions may read."
    )

    def may_load_into(self, connection: str, table: str) -> bool:
        """Whether `sinks` lets this key load into a table of a connection."""
        return self.sinks is None or any(_names_table(entry, connection, table) for entry in self.sinks)

    def shares_table(self, connection: str, table: str) -> bool:
        """Whether `sinks` names the table itself, so that the key may load into it although another key has made it."""
        return any("/" in entry and _names_table(entry, connection, table) for entry in self.sinks or ())


def _names_table(entry: str, connection: str, table: str) -> bool:
    name, slash, wanted = entry.partition("/")
    if wanted.endswith("*"):
        rest = table.removeprefix(wanted[:-1])
        # "*" alone is all tables; behind a name it stays in its schema.
        fits = wanted == "*" or (table.startswith(wanted[:-1]) and "." not in rest)
    else:
        fits = table == wanted
    return name == connection and (not slash or fits)


NO_LIMITS = Limits.model_validate({})


class KeyDigest(BaseModel):
    """One text of a key. `until`: Unix seconds after which it is not valid any more; None: it has no end of its own."""

    model_config = ConfigDict(frozen=True)

    sha256: str
    until: float | None = None


class Key(AnyRecord):
    """One key, of Redis or of the environment. Times are Unix seconds by the clock of Redis.

    Attributes:
        name: a label; another key may have it later.
        owner: whose what its callers make is: an id that is made with the key. No other key ever has it.
        digests: of its texts, the newest one last.
        expires: when it ends by itself.
        revoked: since when nobody can use it any more.
    """

    KIND: ClassVar[str] = "key"

    name: str
    owner: str
    digests: tuple[KeyDigest, ...]
    scopes: frozenset[Scope]
    created: float
    expires: float | None = None
    revoked: float | None = None
    limits: Limits = NO_LIMITS

    @classmethod
    def of_environment(cls, name: str, digest: str = "", scopes: frozenset[Scope] = frozenset()) -> Self:
        """A key of the settings. Its owner is made from its name, so a key that comes back has what it had."""
        digests = (KeyDigest(sha256=digest),) if digest else ()
        return cls(name=name, owner=environment_owner(name), digests=digests, scopes=scopes, created=0.0)

    @classmethod
    def anonymous(cls, generation: int) -> Self:
        """Everybody's, where there are no keys."""
        owner = anonymous_owner(generation)
        return cls(name=ANONYMOUS, owner=owner, digests=(), scopes=OPEN_SCOPES, created=0.0)

    @property
    def record_id(self) -> str:
        """Its owner: two keys cannot have the same."""
        return self.owner

    def standing(self) -> Standing:
        """It counts where it is revoked, and is found by its name."""
        return Standing(self.owner, {"revoked": int(self.revoked is not None)}, (ALL,), alias=f"{ALL}:{self.name}")

    @property
    def source(self) -> Literal["ledger", "environment"]:
        """Where it is from; one of the settings has no time of creation."""
        return "ledger" if self.created else "environment"

    def may(self, scopes: Collection[str]) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes) or (Scope.ADMIN in self.scopes and Scope.OPERATE in scopes)

    def revoke(self, now_s: float) -> Self:
        """The record of a key that nobody can use any more."""
        return self if self.revoked is not None else self.model_copy(update={"revoked": now_s})

    def rotate(self, digest: str, now_s: float, grace_s: float) -> Self:
        """The record with a new text; the texts of before are valid for `grace_s` seconds.

        Raises:
            Conflict: it cannot be used any more.
        """
        if self.revoked is not None:
            raise Conflict(
                "key_revoked", f"The key {self.name} is revoked; a new text would be of no use. Make another key."
            )
        ends = now_s + grace_s
        former = [KeyDigest(sha256=one.sha256, until=min(one.until or ends, ends)) for one in self.digests]
        valid = [one for one in former if one.until is not None and one.until > now_s]
        return self.model_copy(update={"digests": (*valid, KeyDigest(sha256=digest))})


class Mark(AnyRecord):
    """Of a purged owner: of a key in Redis, of a name of the settings, or of a generation of `anonymous`.

    Attributes:
        name: of the owner's key.
        purged, swept: Unix seconds, since when nothing is stored for it, and since when it has nothing.
    """

    KIND: ClassVar[str] = "mark"

    name: str
    owner: str
    purged: float
    swept: float | None = None

    @property
    def record_id(self) -> str:
        """The owner, who has one mark."""
        return self.owner

    def standing(self) -> Standing:
        """It bars its owner, and is listed by whether it is swept."""
        return Standing(self.owner, {"revoked": 1, "purged": 1}, (ALL, PURGE if self.swept is None else GONE))


def new_key() -> str:
    """The text of a key. It is told once and never stored."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(key: str) -> str:
    """What is stored of it."""
    return sha256(key.encode()).hexdigest()


def new_owner() -> str:
    """The id of an owner who has nothing yet."""
    return f"owner_{secrets.token_hex(_OWNER_HEX // 2)}"


def environment_owner(name: str) -> str:
    """The owner of the key with this name in the settings, whatever its text."""
    return f"environment_{sha256(f'embedq environment {name}'.encode()).hexdigest()[:_OWNER_HEX]}"


def anonymous_owner(generation: int) -> str:
    """The owner of what is made without a key. Each purge of it begins a new generation."""
    return f"{ANONYMOUS}-{generation}" if generation else ANONYMOUS


def is_owner(text: str) -> bool:
    """Whether a key may be made for an owner with this id."""
    return _OWNER.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """What Redis holds of keys.

    Attributes:
        now_s: by the clock of Redis, in Unix seconds.
        stamps: of the last changes of a key and of a mark; the first is "" if there has never been a key.
        keys, marks: all of them; None: nothing has changed since the stamps that were known.
    """

    now_s: float
    stamps: tuple[str, ...]
    keys: Sequence[ReadRecord[Key]] | None = None
    marks: Sequence[ReadRecord[Mark]] = ()


KINDS = (Key.KIND, Mark.KIND)


def make_key(key: Key, change: str) -> Operation[bool]:
    """Stores a new key; False if another has its owner or its name, or the owner is purged. `change`: a new name."""
    arguments = store.creation(key.KIND, key.record_id, key.to_json(), store.ANY_ROOM, digest=change, change=change)
    made = {b"ok", b"joined"}  # or this very call, again
    return Operation(lambda reply: reply[0] in made, "record_create", "", arguments, promised=True)


def make_mark(mark: Mark) -> Operation[str]:
    """Marks an owner as purged; the mark of one who is purged stays as it is."""
    return store.create(mark, Room(part=True))  # or a revoked owner could have none
