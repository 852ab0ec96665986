"""API keys: who may call, what the caller may do, how much of it, and whose is what it makes.

Of the text of a key only its SHA-256 is stored. An owner is an id that is made with the key and that nobody inherits:
the name is a label, and free again when the key is deleted. A service that has had a key never opens again by itself.
"""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.errors import Conflict, Forbidden
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.ledger.replies import fields_from_reply
from tasks.ledger.scripts import Operation


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
_STAMP = "@stamp"
_GENERATION = "@anonymous"
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
    stored_bytes: int | None = Field(None, strict=True, ge=0, le=10**18, description="Of files, outputs and datasets.")
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
    fits = table.startswith(wanted[:-1]) if wanted.endswith("*") else table == wanted
    return name == connection and (not slash or fits)


NO_LIMITS = Limits.model_validate({})


class KeyDigest(BaseModel):
    """One text of a key. `until`: Unix seconds after which it is not valid any more; None: it has no end of its own."""

    model_config = ConfigDict(frozen=True)

    sha256: str
    until: float | None = None


class Key(BaseModel):
    """One key, of Redis or of the environment. Times are Unix seconds by the clock of Redis.

    Attributes:
        name: a label; another key may have it later.
        owner: whose what its callers make is: an id that is made with the key.
        digests: of its texts, the newest one last.
        expires: when it ends by itself.
        revoked: when somebody ended it: new requests are refused, accepted work goes on.
        purged: when all that its owner had was deleted.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    owner: str
    digests: tuple[KeyDigest, ...]
    scopes: frozenset[Scope]
    created: float
    expires: float | None = None
    revoked: float | None = None
    purged: float | None = None
    limits: Limits = NO_LIMITS

    @classmethod
    def of_environment(cls, name: str, digest: str, scopes: frozenset[Scope]) -> Self:
        """A key of the settings. Its owner is made from its name, so a key that comes back has what it had."""
        digests = (KeyDigest(sha256=digest),)
        return cls(name=name, owner=environment_owner(name), digests=digests, scopes=scopes, created=0.0)

    @classmethod
    def anonymous(cls, generation: int) -> Self:
        """Everybody's, where there are no keys."""
        owner = anonymous_owner(generation)
        return cls(name=ANONYMOUS, owner=owner, digests=(), scopes=OPEN_SCOPES, created=0.0)

    @property
    def source(self) -> Literal["ledger", "environment"]:
        """Where it is from; one of the settings has no time of creation."""
        return "ledger" if self.created else "environment"

    def may(self, scopes: Collection[str]) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes) or (Scope.ADMIN in self.scopes and Scope.OPERATE in scopes)

    def to_json(self) -> bytes:
        """As it is stored."""
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> Self:
        """Raises `ValueError` if it is of a version of embedq that this one does not understand."""
        return cls.model_validate_json(stored)

    def revoke(self, now_s: float) -> Self:
        """The record of a key that nobody can use any more."""
        return self if self.revoked is not None else self.model_copy(update={"revoked": now_s})

    def purge(self, now_s: float) -> Self:
        """The record of a revoked key whose owner has nothing any more."""
        return self if self.purged is not None else self.model_copy(update={"purged": now_s})

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
class Anonymous:
    """How far purges of what was made without keys have come.

    Attributes:
        generation: whose what is made now is.
        unpurged: the first generation that may still have something. All before `generation` make nothing new.
        begun: when the generation began; Unix seconds.
    """

    generation: int = 0
    unpurged: int = 0
    begun: float = 0.0

    @classmethod
    def from_text(cls, stored: bytes) -> Self:
        """As Redis holds it; b"": nobody has purged it yet."""
        if not stored:
            return cls()
        generation, unpurged, begun = stored.split()
        return cls(int(generation), int(unpurged), float(begun))

    def to_text(self) -> bytes:
        """As it is stored."""
        return b"%d %d %.3f" % (self.generation, self.unpurged, self.begun)


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """What Redis holds of keys.

    Attributes:
        now_s: by the clock of Redis, in Unix seconds.
        stamp: changes with each change of a key; "" if there has never been one.
        records: JSON by name; None: nothing has changed since the stamp that was known.
        purged: those of the owners that were asked for of whom everything was or is being removed, and since when.
        anonymous: as it is stored.
    """

    now_s: float
    stamp: str
    records: Mapping[str, bytes] | None
    purged: Mapping[str, float] = field(default_factory=dict)
    anonymous: bytes = b""


def read_keys(known: str | None = None, owners: Sequence[str] = ()) -> Operation[StoredKeys]:
    """All keys, and which of these owners are purged.

    Args:
        known: the stamp of an earlier reading; None: there was none.
        owners: who may be purged without having a record.
    """

    def read(reply: Sequence[Any]) -> StoredKeys:
        now_ms, stamp, anonymous, purged, *flat = reply
        stamp = stamp.decode()
        fields = None if stamp == known and not flat else fields_from_reply(flat)
        for name in (_STAMP, _GENERATION):
            if fields is not None:
                fields.pop(name, None)
        since = {owner.decode(): float(at_ms) / 1000 for owner, at_ms in zip(purged[::2], purged[1::2], strict=True)}
        return StoredKeys(int(now_ms) / 1000, stamp, fields, since, anonymous)

    return Operation("key_read", "", ("@none" if known is None else known, *owners), read)


def write_anonymous(before: bytes, after: Anonymous) -> Operation[bool]:
    """Stores how far purges have come; False if that is not as it was `before`. Closes no service that is open."""
    return Operation("key_write", "", (_GENERATION, before, after.to_text(), "", 0), lambda reply: reply == b"ok")


def write_key(name: str, before: bytes, after: bytes, *, most: int = MAX_KEYS) -> Operation[bool]:
    """Stores a record; False if it is not as it was `before`. b"" stands for no record.

    Args:
        name: of the key.
        before: as it was read.
        after: as it shall be.
        most: keys that there may be.

    Raises:
        Forbidden: there are `most`.
    """

    def read(reply: bytes) -> bool:
        if reply == b"full":
            raise Forbidden("quota_exceeded", f"There are {most:,} keys. Purge and delete those that nobody uses.")
        return reply == b"ok"

    stamp = secrets.token_hex(8)
    return Operation("key_write", "", (name, before, after, stamp, most), read, promised=True)
