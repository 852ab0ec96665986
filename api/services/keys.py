"""API keys: make, list, change, rotate, revoke, purge, delete. Those of the environment are shown and never changed."""

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from api.async_storage import AsyncStorage
from api.auth import Keys
from api.schemas.answer_parts import Page
from api.schemas.keys import Key as ShownKey
from api.schemas.keys import KeyChange, NewKey, PurgeResult, ToldKey
from api.services.purge import purge
from tasks.errors import Conflict, Invalid, NotFound, RedisUnavailable, Unavailable
from tasks.ledger.client import AsyncLedger, spread
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.api_keys import (
    ALL_SCOPES,
    NO_LIMITS,
    USUAL_SCOPES,
    Anonymous,
    Key,
    KeyDigest,
    Limits,
    StoredKeys,
    anonymous_owner,
    digest_of,
    environment_owner,
    new_key,
    new_owner,
    read_keys,
    write_anonymous,
    write_key,
)
from worker_config.forms import is_key_name

_ATTEMPTS = 20
_PURGE_S = 2.0
_REFUSED_EVERYWHERE_S = 1.5
"""After it every process has refused the key for a while, bodies that came late too: the next rounds meet what was
accepted before."""


class KeyService:
    """The API keys of this service.

    Args:
        keys: the table of this process, which is brought up to date after each change.
        ledger: holds the keys.
        storage: holds what is purged.
    """

    def __init__(self, keys: Keys, ledger: AsyncLedger, storage: AsyncStorage) -> None:
        self._keys = keys
        self._ledger = ledger
        self._storage = storage

    async def list(self) -> Page[ShownKey]:
        """All keys by name. Raises `RedisUnavailable`."""
        await self._keys.refresh_now()
        keys = sorted([*self._keys.environment.values(), *self._keys.stored.values()], key=lambda key: key.name)
        return Page[ShownKey].of([ShownKey.model_validate(key) for key in keys], more=False, name="name")

    async def read(self, name: str) -> ShownKey:
        """One key. Raises `NotFound`, `RedisUnavailable`."""
        return ShownKey.model_validate(self._keys.environment.get(name) or (await self._current(name))[0])

    async def create(self, body: NewKey, *, owner: str | None = None) -> ToldKey:
        """Makes a key. Where no scopes are named it has the usual ones, and all if no other key manages keys.

        `owner`: whose what it makes is; None: somebody new.

        Raises:
            Conflict: another key has the name or the owner, or all of the owner was deleted.
            Forbidden: there are too many keys.
            Unavailable: no answer, or none that was read in time. There is no such key then.
        """
        found = await self._keys.refresh_now([owner] if owner else [])
        text = new_key()
        key = Key(
            name=body.name,
            owner=owner or new_owner(),
            digests=(KeyDigest(sha256=digest_of(text)),),
            scopes=frozenset(body.scopes or (USUAL_SCOPES if self._keys.managed else ALL_SCOPES)),
            created=found.now_s,
            expires=_end(body.expires_in, found.now_s),
            limits=body.limits or NO_LIMITS,
        )
        taken = self._taken(found)
        why_not = taken.get(key.name) or taken.get(key.owner)
        if why_not or not await self._store(key.name, b"", key.to_json(), secret=True):
            raise Conflict("key_exists", f"There can be no such key: {why_not or _OTHER}.")
        return _told(key, text)

    def _taken(self, found: StoredKeys) -> dict[str, str]:
        """The names and the owners that no other key may have, and why."""
        stored = [part for key in self._keys.stored.values() for part in (key.name, key.owner)]
        fixed = [part for key in self._keys.environment.values() for part in (key.name, key.owner)]
        return {**dict.fromkeys(stored, _OTHER), **dict.fromkeys(fixed, _FIXED), **dict.fromkeys(found.purged, _GONE)}

    async def export(self) -> Iterable[str]:
        """What `import_lines` reads: a line of JSON for each key of Redis, and one for what was made without a key.

        Raises:
            RedisUnavailable: it is away.
        """
        found = await self._keys.refresh_now()
        anonymous = [json.dumps({ANONYMOUS: found.anonymous.decode()})] if found.anonymous else []
        return anonymous + [self._keys.stored[name].to_json().decode() for name in sorted(self._keys.stored)]

    async def import_lines(self, lines: Iterable[str]) -> dict[str, Any]:
        """Stores the keys of an export; how many there are now, and by name why others are not stored.

        Raises:
            Invalid: a line is of no export. Nothing is stored.
            RedisUnavailable, Forbidden: keys of the lines before are stored.
        """
        given = [_of_export(line, number) for number, line in enumerate(lines, 1)]
        found = await self._keys.refresh_now([key.owner for key in given if isinstance(key, Key)])
        taken = self._taken(found)
        number, refused = 0, dict[str, str]()
        for key in given:
            if isinstance(key, Anonymous):
                await self._ledger.run(write_anonymous(b"", key))
                continue
            why_not = taken.get(key.name) or taken.get(key.owner)
            if self._keys.stored.get(key.name) == key:
                number += 1
            elif why_not or not await self._ledger.run(write_key(key.name, b"", key.to_json())):
                refused[key.name] = why_not or _OTHER
            else:
                taken[key.name] = taken[key.owner] = _OTHER
                number += 1
        return {"imported": number, "refused": refused}

    async def change(self, name: str, change: KeyChange) -> ShownKey:
        """Changes what is given. Raises `Conflict`, and as `revoke`."""

        def edit(key: Key, now_s: float) -> Key:
            if key.revoked is not None:
                raise Conflict("key_revoked", f"The key {name} is revoked; nothing about it can change.")
            given = change.model_fields_set
            return key.model_copy(
                update={
                    "scopes": frozenset(change.scopes or key.scopes),
                    "expires": _end(change.expires_in, now_s) if "expires_in" in given else key.expires,
                    "limits": _changed(key.limits, change.limits) if "limits" in given else key.limits,
                }
            )

        return ShownKey.model_validate(await self._change(name, edit))

    async def rotate(self, name: str, grace_s: float) -> ToldKey:
        """Gives the key another text. Raises `Conflict`, and as `revoke`; undone then."""
        text = new_key()
        key = await self._change(name, lambda key, now_s: key.rotate(digest_of(text), now_s, grace_s), secret=True)
        return _told(key, text)

    async def revoke(self, name: str) -> ShownKey:
        """Ends the key for good; twice is no matter.

        Raises:
            NotFound: there is none, or it is one of the environment.
            Unavailable: no answer, none that was read in time, or others change it all the time.
        """
        return ShownKey.model_validate(await self._change(name, Key.revoke))

    async def delete(self, name: str) -> None:
        """Deletes the record. Raises `Conflict` before a purge has ended, and as `revoke`."""

        def purged(key: Key, _now_s: float) -> Key:
            if key.purged is None:
                missing = "purge" if key.revoked is not None else "revoke and purge"
                raise Conflict("key_in_use", f"Nobody could reach what is left of it: {missing} the key {name} first.")
            return key

        await self._change(name, purged, delete=True)

    async def purge(self, name: str) -> PurgeResult:
        """Removes what the owner of this key has, for two seconds. Nobody has the owner's id again.

        Raises:
            NotFound: there is no such key, and the environment can have had none.
            Conflict: it is not revoked.
            RedisUnavailable, StorageUnavailable: a later call goes on.
        """
        if name == ANONYMOUS:
            return await self._purge_anonymous()
        owner, since_s = await self._purgeable(name)
        result = await self._purged(name, owner, since_s)
        if result.done:
            with suppress(NotFound):  # somebody else was faster, and the name may be another key's by now
                await self._change(name, lambda key, now_s: key.purge(now_s) if key.owner == owner else key)
        return result

    async def _purgeable(self, name: str) -> tuple[str, float]:
        """The owner, and since when it makes nothing new."""
        try:
            key, _, _ = await self._current(name)
        except NotFound:
            if name in self._keys.environment:
                where = "Take it out of EMBEDQ_API_KEYS first"
                raise Conflict("key_in_use", f"The key {name} is still valid, so more may come. {where}.") from None
            if not is_key_name(name):
                raise
            return environment_owner(name), 0.0  # of an earlier EMBEDQ_API_KEYS
        if key.revoked is None:
            raise Conflict("key_in_use", f"The key {name} is still valid, so more may come. Revoke it first.")
        return key.owner, key.revoked

    async def _purge_anonymous(self) -> PurgeResult:
        stored, state = await self._generations()
        result = await self._purged(ANONYMOUS, anonymous_owner(state.unpurged), state.begun)
        if result.done:
            after = Anonymous(state.generation, state.generation, state.begun)
            await self._ledger.run(write_anonymous(stored, after))
        return result

    async def _generations(self) -> tuple[bytes, Anonymous]:
        """How far purges of what has no key have come; a new generation has begun where all are purged."""
        for _ in range(_ATTEMPTS):
            found = await self._ledger.run(read_keys(self._keys.stamp))
            state = Anonymous.from_text(found.anonymous)
            if state.unpurged < state.generation:
                return found.anonymous, state
            after = Anonymous(state.generation + 1, state.generation, found.now_s)
            if await self._ledger.run(write_anonymous(found.anonymous, after)):
                await self._keys.refresh()
        raise _contended()

    async def _purged(self, name: str, owner: str, since_s: float) -> PurgeResult:
        not_before_s = time.monotonic() + max(0.0, since_s + _REFUSED_EVERYWHERE_S - self._keys.now_s)
        done, deleted = await purge(self._ledger, self._storage, owner, _PURGE_S, not_before_s=not_before_s)
        return PurgeResult(name=name, done=done, deleted=deleted)

    async def _change(
        self, name: str, edit: Callable[[Key, float], Key], *, secret: bool = False, delete: bool = False
    ) -> Key:
        """Stores what `edit` makes of a key and of the present time, or deletes the key that `edit` has let pass.

        `secret`: undone where nobody is told of it.
        """
        for _ in range(_ATTEMPTS):
            key, stored, now_s = await self._current(name)
            edited = edit(key, now_s)
            # Also where nothing changes: an earlier change may have been stored and not be on a replica yet.
            text = b"" if delete else stored if edited == key else edited.to_json()
            if await self._store(name, stored, text, secret=secret):
                return edited
        raise _contended()

    async def _store(self, name: str, before: bytes, after: bytes, *, secret: bool = False) -> bool:
        """Stores a record if it is as it was before. `secret`: undone where no answer comes."""
        try:
            written = await self._ledger.run(write_key(name, before, after))
        except Unavailable:
            if secret:
                with suppress(Unavailable):
                    await self._ledger.run(write_key(name, after, before))
            raise
        await self._keys.refresh()
        return written

    async def _current(self, name: str) -> tuple[Key, bytes, float]:
        found = await self._ledger.run(read_keys())
        stored = (found.records or {}).get(name)
        if stored is not None:
            return Key.from_json(stored), stored, found.now_s
        if name in self._keys.environment:
            raise NotFound("key_not_found", "This key is one of EMBEDQ_API_KEYS: it is changed there.", param="name")
        raise NotFound("key_not_found", "No key has this name. GET /v1/keys lists those there are.", param="name")


_OTHER = "another key has its name or its owner; rotate that one for another text, or revoke, purge and delete it"
_FIXED = "EMBEDQ_API_KEYS has a key with its name or its owner"
_GONE = "everything of its owner was deleted, and nobody may have the id again"


def _of_export(line: str, number: int) -> Key | Anonymous:
    try:
        generations = json.loads(line).get(ANONYMOUS)
        return Anonymous.from_text(generations.encode()) if generations else Key.from_json(line.encode())
    except (ValueError, AttributeError):
        raise Invalid("invalid_value", f"Line {number} is not a line of `embedq keys export`.") from None


def _told(key: Key, text: str) -> ToldKey:
    return ToldKey(**dict(ShownKey.model_validate(key)), key=text)


def _end(after_s: float | None, now_s: float) -> float | None:
    return None if after_s is None else now_s + after_s


def _changed(limits: Limits, given: Limits | None) -> Limits:
    return NO_LIMITS if given is None else limits.model_copy(update=given.model_dump(exclude_unset=True))


def _contended() -> RedisUnavailable:
    return RedisUnavailable("This key is being changed by others; try again.", retry_after_s=spread(3))
