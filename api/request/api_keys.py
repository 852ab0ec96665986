"""API keys: those of the settings and those of the ledger. The name of a key is the owner of what its callers make.

Each process holds all keys in memory and asks the ledger twice a second whether they have changed. So a request costs
no call, and a key that is made, limited or revoked is so in all processes within a second. While Redis is away the
last known keys stay valid; their ends are counted on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Protocol

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import Scope as RequestScope

from tasks.errors import EmbedqError, KeyUnknown, RedisUnavailable, ScopeMissing, Unauthenticated, Unavailable
from tasks.ledger import ANONYMOUS, AsyncLedger
from tasks.ledger.executor import spread
from tasks.ledger.operations import PURGES_TOLD_S
from tasks.records.api_keys import (
    ALL_SCOPES,
    NO_LIMITS,
    USUAL_SCOPES,
    Key,
    KeyReading,
    Limits,
    read_keys,
    write_key,
)
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

REFRESH_S = 0.5
_STILL_READ_S = 10.0
"""What was being read of the storage while its owner was purged may be kept so much later."""
_BEARER = "bearer"
_ATTEMPTS = 20
_GRANT = "embedq.grant"
"""Key in the scope of a request: by what right it was let in."""


class Leaves(Protocol):
    """What waits for somebody."""

    def leave(self) -> None:
        """Nobody waits for it any more."""


class Grant:
    """The right that one text of a key gives, as long as it lasts. Whatever waits by this right ends with it.

    Attributes:
        caller: whose it is.
        until: when it ends by itself.
        refusal: why it gives no right any more; "": it does.
    """

    __slots__ = ("_waiting", "caller", "refusal", "until")

    def __init__(self, caller: Key, until: float | None = None, refusal: str = "") -> None:
        self.caller = caller
        self.until = until
        self.refusal = refusal
        self._waiting: set[Leaves] = set()

    @contextmanager
    def followed(self, waiter: Leaves) -> Iterator[None]:
        """While inside, `waiter` leaves when the right ends."""
        self._waiting.add(waiter)
        if self.refusal:
            waiter.leave()
        try:
            yield
        finally:
            self._waiting.discard(waiter)

    def error(self) -> EmbedqError:
        """What answers whoever has waited by a right that has ended."""
        return ScopeMissing(self.refusal) if self.refusal == _CHANGED else Unauthenticated(self.refusal)

    def end(self, refusal: str) -> None:
        """It gives no right any more."""
        self.refusal = refusal
        for waiter in self._waiting:
            waiter.leave()


def grant_of(scope: RequestScope) -> Grant | None:
    """By what right a request was let in; None: it needed none."""
    return scope.get(_GRANT)


def let_in(scope: RequestScope, grant: Grant) -> None:
    """Notes by what right a request was let in."""
    scope[_GRANT] = grant


def still_let_in(scope: RequestScope) -> None:
    """For a request whose body took its time: raises the error of a right that has ended meanwhile."""
    grant = grant_of(scope)
    if grant is not None and grant.refusal:
        raise grant.error()


_REVOKED = "This API key was revoked."
_EXPIRED = "This API key has expired."
_CHANGED = "The scopes of this API key were changed while the request waited."
_UNKNOWN = "This API key is not known here."
_NEEDED = "An API key is needed: send it as `Authorization: Bearer <key>` or `x-api-key`."


class KeyRing:
    """All keys as one process knows them.

    Args:
        settings: with the keys of the environment.
        clock: seconds that only grow.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._required = settings.require_key
        self.environment = {
            name: Key.fixed(name, ALL_SCOPES if name in settings.admin_keys else USUAL_SCOPES)
            for name, _ in settings.api_keys
        }
        """Callers with a key of the settings, by name."""
        self._of_environment = {
            bytes.fromhex(digest): Grant(self.environment[name])
            for name, digest in reversed(settings.api_keys)  # of two keys with one text, the first counts
        }
        self.stamp: str | None = None
        """Of the last reading; None: the ledger has not answered since the start."""
        self.records: dict[str, Key] = {}
        """Of the ledger, by name."""
        self._stored: Mapping[str, bytes] = {}
        self._grants: dict[bytes, Grant] = {}
        """By the digest of the text: those of the ledger, also of texts that are not valid any more."""
        self._closed = False
        self._anonymous = Grant(Key.fixed(ANONYMOUS, USUAL_SCOPES))
        self._offset_s = time.time() - clock()
        self.several = False
        """Whether there are several callers, who share what there is."""
        self._replace({})

    @property
    def now_s(self) -> float:
        """The time by the clock of Redis, in Unix seconds; it goes on without Redis."""
        return self._clock() + self._offset_s

    @property
    def is_open(self) -> bool:
        """Whether everybody may call: there is no key, and there has never been one."""
        return self.stamp is not None and self.may_be_open

    @property
    def may_be_open(self) -> bool:
        """The same, as far as is known: before Redis has answered for the first time nobody knows."""
        return not (self._of_environment or self._required or self._closed)

    def limits(self, name: str) -> Limits:
        """Of the key with this name; keys of the environment have none."""
        record = self.records.get(name)
        return NO_LIMITS if record is None else record.limits

    def grant(self, headers: Headers) -> Grant:
        """By what right a request with these headers is let in; of several keys, by that of the first that is known.

        Raises:
            Unauthenticated: no key came, or only wrong ones.
            RedisUnavailable: the ledger has not been read since the start, so that nobody knows whether it is right.
        """
        if self.is_open:
            return self._anonymous
        presented = _presented(headers)
        grants = [self._find(key) for key in presented]
        valid = next((grant for grant in grants if grant is not None and not self._refusal(grant)), None)
        if valid is not None:
            return valid
        if self.stamp is None and (presented or self.may_be_open):
            raise RedisUnavailable(
                "The queue (Redis), which knows the API keys, has not answered yet; try again shortly.",
                retry_after_s=spread(3),
            )
        raise Unauthenticated(
            next((self._refusal(grant) for grant in grants if grant), _UNKNOWN) if presented else _NEEDED
        )

    def take(self, reading: KeyReading) -> None:
        """Takes in what the ledger holds."""
        self._offset_s = reading.now_s - self._clock()
        if reading.records is not None:
            self._replace(reading.records)
        self.stamp = reading.stamp
        self._closed = self._closed or bool(reading.stamp)
        if self._closed and not self._anonymous.refusal:
            self._anonymous.end(_NEEDED)
        self.expire()

    def expire(self) -> None:
        """Ends what waits by a right that has ended by itself."""
        for grant in self._grants.values():
            if not grant.refusal and (refusal := self._refusal(grant)):
                grant.end(refusal)

    def _find(self, key: str) -> Grant | None:
        # A look into a table tells by its time nothing that helps to find a text: what is compared is its digest, and
        # Python compares a hash of that which differs in each process.
        digest = sha256(key.encode("latin-1")).digest()
        return self._of_environment.get(digest) or self._grants.get(digest)

    def _refusal(self, grant: Grant) -> str:
        if not grant.refusal and grant.until is not None and grant.until <= self.now_s:
            return _EXPIRED
        return grant.refusal

    def _replace(self, stored: Mapping[str, bytes]) -> None:
        changed = {name for name, text in stored.items() if self._stored.get(name) != text}
        for name in (*(self._stored.keys() - stored.keys()), *changed):
            self._take_record(name, stored.get(name))
        self._stored = stored
        living = [record for record in self.records.values() if record.revoked is None]
        self.several = len(self.environment.keys() | {record.name for record in living}) > 1

    def _take_record(self, name: str, text: bytes | None) -> None:
        """Takes in the record of one key; None: it is gone."""
        former = self.records.pop(name, None)
        before = {digest: self._grants.pop(digest) for digest, _ in _grants(former)} if former else {}
        record = None if text is None else _record(name, text)
        if record is not None:
            self.records[name] = record
            for digest, grant in _grants(record):
                held = before.pop(digest, None)
                self._grants[digest] = grant if held is None else _renewed(held, grant)
        for grant in before.values():
            grant.end(_REVOKED)


def _record(name: str, text: bytes) -> Key | None:
    try:
        return Key.from_json(text)
    except ValidationError:
        _log.error("the key %s is refused: its record is of another version of embedq", name)
        return None


def _grants(record: Key) -> Iterator[tuple[bytes, Grant]]:
    refusal = "" if record.revoked is None else _REVOKED
    for digest in record.digests:
        ends = [at for at in (record.expires, digest.until) if at is not None]
        yield bytes.fromhex(digest.sha256), Grant(record, min(ends, default=None), refusal)


def _renewed(former: Grant, grant: Grant) -> Grant:
    """The grant of a text after a change. Who waits by the former one goes on, unless it gives less than it did."""
    if grant.refusal or former.refusal or former.caller.scopes - grant.caller.scopes:
        former.end(grant.refusal or _CHANGED)
        return grant
    former.caller, former.until = grant.caller, grant.until
    return former


def _presented(headers: Headers) -> list[str]:
    # All of them: many clients insist on a Bearer key. They get a placeholder there, and the real key in x-api-key.
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    keys = [bearer.strip() if scheme.lower() == _BEARER else None]
    keys += [headers.get("api-key"), headers.get("x-api-key")]  # Azure's name, and everybody else's
    return [key for key in keys if key]


class LedgerKeys:
    """Reads and changes the keys of the ledger for the ring of one process.

    Args:
        ledger: holds the keys.
        ring: is kept up to date.
        forget: drops what this process keeps of owners who were purged; None: of everybody.
    """

    def __init__(self, ledger: AsyncLedger, ring: KeyRing, forget: Callable[[AbstractSet[str] | None], None]) -> None:
        self._ledger = ledger
        self._ring = ring
        self._forget = forget
        self._read_s: float | None = None
        """By the clock of Redis."""
        self._reading = asyncio.Lock()
        self._trying: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Keeps the ring up to date, for ever."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Brings the ring up to date, if Redis answers."""
        try:
            await self.refresh_now()
        except Unavailable:
            self._ring.expire()
        except Exception as error:  # noqa: BLE001 - if this ended, no key could be revoked any more
            _log.error("the API keys cannot be read: %s", type(error).__name__)
            self._ring.expire()

    async def refresh_now(self) -> None:
        """Brings the ring up to date; raises `RedisUnavailable`."""
        async with self._reading:  # one after the other, or an older reading could replace a newer one
            before_s = self._read_s
            since_s = None if before_s is None else before_s - _STILL_READ_S
            reading = await self._ledger.run(read_keys(self._ring.stamp, since_s))
            self._ring.take(reading)
            self._read_s = reading.now_s
        told_s = PURGES_TOLD_S - _STILL_READ_S
        lost = before_s is not None and reading.now_s - before_s > told_s  # Redis may have told of some meanwhile
        if lost or reading.purged:  # all at once: each call looks at everything that is kept
            self._forget(None if lost else set(reading.purged))

    async def first_reading(self) -> None:
        """Tries to read the keys. All who come while it is tried wait for the same try."""
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self.refresh(), name="first keys")
        await asyncio.shield(self._trying)

    async def read(self, name: str) -> Key:
        """The record of a key as it is now.

        Raises:
            KeyUnknown: there is none.
            RedisUnavailable: no answer.
        """
        return (await self._current(name))[0]

    async def create(self, make: Callable[[float], Key]) -> Key | None:
        """Stores a new key, which `make` makes for the present time; None if one with its name is there already.

        Raises:
            QuotaExceeded: as `write_key` does.
            Unavailable: no answer, or none that was read in time.
        """
        record = make((await self._ledger.run(read_keys(self._ring.stamp))).now_s)
        text = record.to_json()
        try:
            made = await self._ledger.run(write_key(record.name, b"", text))
        except Unavailable:
            await self._undo(record.name, text, b"")
            raise
        await self.refresh()
        return record if made else None

    async def change(self, name: str, edit: Callable[[Key, float], Key], *, whole: bool = False) -> Key:
        """Stores what `edit` makes of a key and of the present time, and returns it.

        `whole`: a change that the caller is not told of is undone, because it would have made a text that nobody knows.

        Raises:
            KeyUnknown: there is none.
            EmbedqError: what `edit` raises.
            Unavailable: no answer, none that was read in time, or others change it all the time.
        """
        for _ in range(_ATTEMPTS):
            record, stored, now_s = await self._current(name)
            edited = edit(record, now_s)
            # Also where nothing changes: an earlier change may have been stored and not be on a replica yet.
            text = stored if edited == record else edited.to_json()
            try:
                written = await self._ledger.run(write_key(name, stored, text))
            except Unavailable:
                if whole:
                    await self._undo(name, text, stored)
                raise
            if written:
                await self.refresh()
                return edited
        raise self._contended()

    async def _undo(self, name: str, after: bytes, before: bytes) -> None:
        """Takes back a change that may have been stored, as far as Redis answers."""
        with suppress(Unavailable):
            await self._ledger.run(write_key(name, after, before))

    async def delete(self, name: str, check: Callable[[Key], None]) -> None:
        """Deletes a key that `check` does not refuse. Raises like `change`."""
        for _ in range(_ATTEMPTS):
            record, stored, _ = await self._current(name)
            check(record)
            if await self._ledger.run(write_key(name, stored, b"")):
                await self.refresh()
                return
        raise self._contended()

    @staticmethod
    def _contended() -> RedisUnavailable:
        return RedisUnavailable("This key is being changed by others; try again.", retry_after_s=spread(3))

    async def _current(self, name: str) -> tuple[Key, bytes, float]:
        reading = await self._ledger.run(read_keys())
        stored = (reading.records or {}).get(name)
        if stored is not None:
            record = _record(name, stored)
            if record is None:
                raise KeyUnknown("The record of this key is of another version of embedq.", param="name")
            return record, stored, reading.now_s
        if name in self._ring.environment:
            raise KeyUnknown("This key is one of EMBEDQ_API_KEYS: it is changed there.", param="name")
        raise KeyUnknown("No key has this name. GET /v1/keys lists those there are.", param="name")
