"""API keys that the ledger holds: who may call, what the caller may do, and how much of it.

Of the text of a key only its SHA-256 is stored. A record that is revoked stays, so that its name is not given away and
a service that has had a key never opens again by itself.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.errors import KeyInUse, KeyRevoked, QuotaExceeded
from tasks.ledger.operations import Operation
from tasks.ledger.replies import fields_from_reply


class Scope(StrEnum):
    """What a key may be used for."""

    ONLINE = "online"
    BULK = "bulk"
    FILES = "files"
    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)
USUAL_SCOPES = ALL_SCOPES - {Scope.ADMIN}
"""Those of a key for which nobody has named any."""

MAX_KEYS = 10_000
"""Every process of the web tier reads all of them after a change of one."""
MAX_NAMED = 100
MAX_TEXTS = 8
"""Texts of one key that are valid at the same time: the newest one, and those in their time of grace."""
IN_USE = "A key of this name may be used, so what it owns stays. Revoke it first."
_STAMP = "@stamp"
_PREFIX = "embedq_"
_SECRET_BYTES = 32

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
    """One key. Times are Unix seconds by the clock of Redis.

    Attributes:
        digests: of its texts, the newest one last.
        expires: when it ends by itself.
        revoked: when somebody ended it.
        purged: when all that its owner had was deleted.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    digests: tuple[KeyDigest, ...]
    scopes: frozenset[Scope]
    created: float
    expires: float | None = None
    revoked: float | None = None
    purged: float | None = None
    limits: Limits = NO_LIMITS

    @property
    def owner(self) -> str:
        """Whose what its callers make is."""
        return self.name

    @classmethod
    def fixed(cls, name: str, scopes: frozenset[Scope]) -> Self:
        """A key that the ledger does not hold: of the environment, or nobody's."""
        return cls(name=name, digests=(), scopes=scopes, created=0.0)

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
        """The record of a revoked key whose owner has nothing any more.

        Raises:
            KeyInUse: it is another key, which somebody has made of the same name meanwhile.
        """
        if self.revoked is None:
            raise KeyInUse(IN_USE)
        return self.model_copy(update={"purged": now_s})

    def rotate(self, digest: str, now_s: float, grace_s: float) -> Self:
        """The record with a new text; the texts of before are valid for `grace_s` seconds.

        Raises:
            KeyRevoked: it cannot be used any more.
            QuotaExceeded: too many of its texts are still valid.
        """
        if self.revoked is not None:
            raise KeyRevoked(f"The key {self.name} is revoked; a new text would be of no use. Make another key.")
        ends = now_s + grace_s
        former = [KeyDigest(sha256=one.sha256, until=min(one.until or ends, ends)) for one in self.digests]
        valid = [one for one in former if one.until is not None and one.until > now_s]
        if len(valid) >= MAX_TEXTS:
            raise QuotaExceeded(f"{len(valid)} texts of this key are still valid. Rotate it without a time of grace.")
        return self.model_copy(update={"digests": (*valid, KeyDigest(sha256=digest))})


def new_key() -> str:
    """The text of a key. It is told once and never stored."""
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(key: str) -> str:
    """What is stored of it."""
    return sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyReading:
    """What the ledger holds.

    Attributes:
        now_s: by the clock of Redis, in Unix seconds.
        stamp: changes with each change of a key; "" if there has never been one.
        records: JSON by name; None: nothing has changed since the stamp that was known.
        purged: names of those whose things were removed.
    """

    now_s: float
    stamp: str
    records: Mapping[str, bytes] | None
    purged: Sequence[str] = ()


def read_keys(known: str | None = None, purged_since_s: float | None = None) -> Operation[KeyReading]:
    """All keys, and who was purged of late.

    Args:
        known: the stamp of an earlier reading; None: there was none.
        purged_since_s: by the clock of Redis; None: it does not matter who was purged.
    """

    def read(reply: Sequence[Any]) -> KeyReading:
        now_ms, stamp, purged, *flat = reply
        stamp = stamp.decode()
        fields = None if stamp == known and not flat else fields_from_reply(flat)
        if fields is not None:
            fields.pop(_STAMP, None)
        return KeyReading(int(now_ms) / 1000, stamp, fields, tuple(name.decode() for name in purged))

    since = "+inf" if purged_since_s is None else int(purged_since_s * 1000)
    return Operation("key_read", "", ("@none" if known is None else known, since), read)


def write_key(name: str, before: bytes, after: bytes, *, most: int = MAX_KEYS) -> Operation[bool]:
    """Stores a record; False if it is not as it was `before`. b"" stands for no record.

    Args:
        name: of the key.
        before: as it was read.
        after: as it shall be.
        most: keys that there may be.

    Raises:
        QuotaExceeded: there are `most`.
    """

    def read(reply: bytes) -> bool:
        if reply == b"full":
            raise QuotaExceeded(f"There are {most:,} keys. Purge and delete those that nobody uses.")
        return reply == b"ok"

    stamp = secrets.token_hex(8)
    return Operation("key_write", "", (name, before, after, stamp, most), read, promised=True)
