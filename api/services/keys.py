"""API keys: make, list, change, rotate, revoke, purge, delete. Those of the environment are shown and never changed."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter, ValidationError

from api.auth import Keys
from api.schemas.answer_parts import Page
from api.schemas.keys import Key as ShownKey
from api.schemas.keys import KeyChange, NewKey, ToldKey
from tasks.errors import Conflict, Forbidden, Invalid, NotFound, RedisUnavailable, Unavailable
from tasks.ledger.client import AsyncLedger, spread
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records import store
from tasks.records.api_keys import (
    ALL_SCOPES,
    MAX_KEYS,
    NO_LIMITS,
    USUAL_SCOPES,
    Key,
    KeyDigest,
    Limits,
    Mark,
    digest_of,
    make_key,
    make_mark,
    new_key,
    new_owner,
)
from tasks.records.store import Left, ReadRecord, left_of, new_change
from worker_config.setting_types import is_key_name

_ATTEMPTS = 20


class KeyService:
    """The API keys of this service.

    Args:
        keys: the table of this process, which is brought up to date after each change.
        ledger: holds the keys.
    """

    def __init__(self, keys: Keys, ledger: AsyncLedger) -> None:
        self._keys = keys
        self._ledger = ledger

    async def list(self) -> Page[ShownKey]:
        """All keys by name. Raises `RedisUnavailable`."""
        await self._keys.refresh_now()
        keys = sorted([*self._keys.environment.values(), *self._keys.stored.values()], key=lambda key: key.name)
        return Page[ShownKey].of([self._shown(key) for key in keys], more=False, name="name")

    async def read(self, name: str) -> ShownKey:
        """One key, or a purged name that none has any more. Raises `NotFound`, `Conflict`, `RedisUnavailable`."""
        await self._keys.refresh_now()
        key = self._of_name(name)
        if not key.digests and key.owner not in self._keys.marks:
            raise _unknown_key()
        return await self._with_left(key)

    def _of_name(self, name: str) -> Key:
        """The key of a name; one without digests if the settings may have had it. Raises `NotFound`, `Conflict`."""
        if name in self._keys.stored_as:
            return _known(self._keys.stored_as[name])
        if name == ANONYMOUS:
            return Key.anonymous(max(0, self._keys.generation - 1))  # which was purged last
        if not is_key_name(name):
            raise _unknown_key()
        return self._keys.environment.get(name) or Key.of_environment(name)

    def _shown(self, key: Key, left: Left | None = None) -> ShownKey:
        mark = self._keys.marks.get(key.owner)
        purged, swept = (mark.purged, mark.swept) if mark else (None, None)
        marked = {"revoked": key.revoked or purged, "purged": purged, "swept": swept, "left": left}
        return ShownKey.model_validate({**dict(key), "source": key.source, **marked})

    async def _with_left(self, key: Key) -> ShownKey:
        if key.owner not in self._keys.marks:
            return self._shown(key)
        left = await self._ledger.run(left_of(key.owner))
        return self._shown(key, left)

    async def create(self, body: NewKey, *, owner: str | None = None) -> ToldKey:
        """Makes a key. Where no scopes are named it has the usual ones, and all if no other key manages keys.

        `owner`: whose what it makes is; None: somebody new.

        Raises:
            Conflict: another key has the name or the owner, or all of the owner was deleted.
            Forbidden: there are too many keys.
            Unavailable: no answer, or none that was read in time. There is no such key then.
        """
        now_s = await self._keys.refresh_now()
        text = new_key()
        key = Key(
            name=body.name,
            owner=owner or new_owner(),
            digests=(KeyDigest(sha256=digest_of(text)),),
            scopes=frozenset(body.scopes or (USUAL_SCOPES if self._keys.managed else ALL_SCOPES)),
            created=now_s,
            expires=_end(body.expires_in, now_s),
            limits=body.limits or NO_LIMITS,
        )
        if len(self._keys.stored) >= MAX_KEYS:
            raise Forbidden("quota_exceeded", f"There are {MAX_KEYS:,} keys. Purge and delete those that nobody uses.")
        if why_not := await self._why_not(key, secret=True):
            raise Conflict("key_exists", f"There can be no such key: {why_not}.")
        return self._told(key, text)

    def _told(self, key: Key, text: str) -> ToldKey:
        return ToldKey(**dict(self._shown(key)), key=text)

    async def _why_not(self, key: Key, *, secret: bool = False) -> str:
        """Stores a new key; "", or why there can be none. `secret`: undone where nobody is told of it."""
        fixed = [part for one in self._keys.environment.values() for part in (one.name, one.owner)]
        if key.name in fixed or key.owner in fixed:
            return _FIXED
        change = new_change()
        try:
            made = await self._ledger.run(make_key(key, change))
        except Unavailable:
            if secret:
                with suppress(Unavailable):
                    await self._ledger.run(store.remove(Key, key.owner, change))
            raise
        await self._keys.refresh()
        if made:
            return ""
        return _GONE if key.owner in self._keys.marks else _OTHER

    async def export(self) -> Iterable[str]:
        """What `import_lines` reads: a line of JSON for each key of Redis, and for each mark of a purged owner.

        Raises:
            RedisUnavailable: it is away.
        """
        await self._keys.refresh_now()
        known = [*(self._keys.stored[name] for name in sorted(self._keys.stored)), *self._keys.marks.values()]
        return [key.model_dump_json(exclude_none=True) for key in known]

    async def import_lines(self, lines: Iterable[str]) -> dict[str, Any]:
        """Stores the keys and then the marks of an export, which would bar the keys of their owners.

        How many keys there are now, and by name why others are not stored.

        Raises:
            Invalid: a line is of no export. Nothing is stored.
            RedisUnavailable: keys of the lines before are stored.
        """
        given = [_of_export(line, number) for number, line in enumerate(lines, 1)]
        given.sort(key=lambda one: isinstance(one, Mark))
        await self._keys.refresh_now()
        number, refused = 0, dict[str, str]()
        for one in given:
            if isinstance(one, Mark):
                await self._ledger.run(make_mark(one))
            elif self._keys.stored.get(one.name) == one or not (why_not := await self._why_not(one)):
                number += 1
            else:
                refused[one.name] = why_not
        await self._keys.refresh()
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

        return self._shown(await self._change(name, edit))

    async def rotate(self, name: str, grace_s: float) -> ToldKey:
        """Gives the key another text. Raises `Conflict`, and as `revoke`; undone then."""
        text = new_key()
        key = await self._change(name, lambda key, now_s: key.rotate(digest_of(text), now_s, grace_s), secret=True)
        return self._told(key, text)

    async def revoke(self, name: str) -> ShownKey:
        """Ends the key for good; twice is no matter.

        Raises:
            NotFound: there is none, or it is one of the environment.
            Unavailable: no answer, none that was read in time, or others change it all the time.
        """
        return self._shown(await self._change(name, Key.revoke))

    async def delete(self, name: str) -> None:
        """Makes the name free; the mark of its owner stays. Raises `Conflict` before a purge, and as `revoke`."""
        key = _known((await self._current(name))[0])
        if key.owner not in self._keys.marks:
            missing = "purge" if key.revoked is not None else "revoke and purge"
            raise Conflict("key_in_use", f"Nobody could reach what is left of it: {missing} the key {name} first.")
        await self._ledger.run(store.remove(Key, key.owner))
        await self._keys.refresh()

    async def purge(self, name: str) -> ShownKey:
        """Marks the owner of this key: all that it has is removed, and nobody has its id again. Twice is no matter.

        Raises:
            NotFound: there is no such key, and the environment can have had none.
            Conflict: it is not revoked.
            RedisUnavailable: no answer.
        """
        now_s = await self._keys.refresh_now()
        key = self._of_name(name)
        mark = self._keys.marks.get(key.owner)
        if mark is None and key.digests and key.revoked is None:
            how = "Revoke it" if key.source == "ledger" else "Take it out of EMBEDQ_API_KEYS"
            raise Conflict("key_in_use", f"The key {name} is still valid, so more may come. {how} first.")
        if name == ANONYMOUS and mark is not None and mark.swept is not None:
            key = Key.anonymous(self._keys.generation)
        await self._ledger.run(make_mark(Mark(name=key.name, owner=key.owner, purged=now_s)))
        await self._keys.refresh_now()
        return await self._with_left(key)

    async def _change(self, name: str, edit: Callable[[Key, float], Key], *, secret: bool = False) -> Key:
        """Stores what `edit` makes of a key and of the present time.

        `secret`: undone where nobody is told of it.
        """
        for _ in range(_ATTEMPTS):
            last, now_s = await self._current(name)
            key = _known(last)
            edited = edit(key, now_s)
            # Also where nothing changes: an earlier change may have been stored and not be on a replica yet.
            if await self._store(last, edited, secret=secret):
                return edited
        raise RedisUnavailable("This key is being changed by others; try again.", retry_after_s=spread(3))

    async def _store(self, last: ReadRecord[Key], edited: Key, *, secret: bool) -> bool:
        """Stores a record if it is as it was read. `secret`: undone where no answer comes."""
        change = new_change()
        try:
            written = await self._ledger.run(store.change(last, edited, name=change))
        except Unavailable:
            if secret and last.record is not None:
                with suppress(Unavailable):
                    await self._ledger.run(store.change(ReadRecord(last.id, edited, change), last.record))
            raise
        await self._keys.refresh()
        return written

    async def _current(self, name: str) -> tuple[ReadRecord[Key], float]:
        now_s = await self._keys.refresh_now()
        last = self._keys.stored_as.get(name)
        if last is not None:
            return last, now_s
        if name in self._keys.environment:
            raise NotFound("key_not_found", "This key is one of EMBEDQ_API_KEYS: it is changed there.", param="name")
        raise _unknown_key()


def _known(last: ReadRecord[Key]) -> Key:
    if last.record is None:
        raise Conflict(
            "key_unreadable",
            f"The record of this key (R:key:{last.id}) is of another version of embedq, and lets nobody in. Use the "
            "version that wrote it, or make a key with another name.",
        )
    return last.record


def _unknown_key() -> NotFound:
    return NotFound("key_not_found", "No key has this name. GET /v1/keys lists those there are.", param="name")


_OTHER = "another key has its name or its owner; rotate that one for another text, or revoke, purge and delete it"
_FIXED = "EMBEDQ_API_KEYS has a key with its name or its owner"
_GONE = "everything of its owner was deleted, and nobody may have the id again"
_EXPORTED: TypeAdapter[Key | Mark] = TypeAdapter(Key | Mark)


def _of_export(line: str, number: int) -> Key | Mark:
    try:
        return _EXPORTED.validate_json(line)
    except ValidationError:
        raise Invalid("invalid_value", f"Line {number} is not a line of `embedq keys export`.") from None


def _end(after_s: float | None, now_s: float) -> float | None:
    return None if after_s is None else now_s + after_s


def _changed(limits: Limits, given: Limits | None) -> Limits:
    return NO_LIMITS if given is None else limits.model_copy(update=given.model_dump(exclude_unset=True))
