"""Who calls, and with which right: the keys of this process, and the key of a request as a dependency of the routes.

Each process holds all keys in one table and asks Redis twice a second whether they have changed. So a request costs no
call, and a key that is made, limited or revoked is so in all processes within a second. While Redis is away the last
known keys stay valid; their ends are counted on. What is under way when a key is revoked ends by itself.

`Reader` and its like let in a key that has one of their scopes. FastAPI's own meaning of several scopes would be all.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.datastructures import Headers
from starlette.types import Scope as RequestScope

from api.load_limits import InFlight, RequestRates
from tasks.errors import Forbidden, RedisUnavailable, TooMany, Unauthenticated, Unavailable
from tasks.ledger.client import AsyncLedger, spread
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records import store
from tasks.records.api_keys import ALL_SCOPES, KINDS, USUAL_SCOPES, Key, Mark, Scope, StoredKeys
from tasks.records.store import ALL, Order, R, ReadRecord
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

REFRESH_S = 0.5


class Keys:
    """All keys as this process knows them.

    Args:
        settings: with the keys of the environment.
        ledger: holds the others.
        forget: drops what this process keeps of owners who have nothing any more.
        clock: seconds that only grow.

    Attributes:
        environment: keys of the settings, by name.
        stored: keys of Redis, by name; of `stored_as` those too that cannot be read.
        marks: of purged owners, by owner.
        stamps: of the last reading; None: Redis has not answered since the start.
        several: whether there are several callers, who share what there is.
        may_be_open: there is no key, and there has never been one, as far as is known: then everybody may call.
    """

    def __init__(
        self,
        settings: Settings,
        ledger: AsyncLedger,
        forget: Callable[[AbstractSet[str]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._forget, self._clock = ledger, forget, clock
        self._offset_s = time.time() - clock()
        self.environment = {
            name: Key.of_environment(name, digest, ALL_SCOPES if admin else USUAL_SCOPES)
            for name, digest, admin in settings.api_keys
        }
        self.stored_as: Mapping[str, ReadRecord[Key]] = {}
        self.stored: Mapping[str, Key] = {}
        self.marks: Mapping[str, Mark] = {}
        self.stamps: tuple[str, ...] | None = None
        self._unread = "The queue (Redis), which knows the API keys, has not answered yet."
        self.may_be_open = settings.open_without_keys and not self.environment
        self._anonymous = Key.anonymous(0)
        self._reading = asyncio.Lock()
        self._build()

    def _build(self) -> None:
        # Of two keys with one text the first one of the environment counts.
        keys = [*self.stored.values(), *reversed(self.environment.values())]
        self._table = {text.sha256: key for key in keys for text in key.digests}
        self._of_owner = {key.owner: key for key in [self._anonymous, *keys] if key.owner not in self.marks}
        living = [key for key in self.stored.values() if key.revoked is None]
        self.several = len(self.environment) + len(living) > 1

    @property
    def generation(self) -> int:
        """Of `anonymous`: how often what was made without a key was purged."""
        return sum(mark.name == ANONYMOUS for mark in self.marks.values())

    @property
    def managed(self) -> bool:
        """Whether somebody can make keys over HTTP."""
        return any(
            Scope.ADMIN in key.scopes and key.revoked is None and (key.expires or math.inf) > self.now_s
            for key in self._of_owner.values()
        )

    @property
    def now_s(self) -> float:
        """The time by the clock of Redis, in Unix seconds; it goes on without Redis."""
        return self._clock() + self._offset_s

    async def known(self, headers: Headers) -> Key:
        """As `find`. A process that has not heard from Redis since its start asks once more before it refuses."""
        try:
            return self.find(headers)
        except RedisUnavailable:
            if self._reading.locked():  # all who come while it is tried wait for the same try
                async with self._reading:
                    pass
            else:
                await self.refresh()
        return self.find(headers)

    def find(self, headers: Headers) -> Key:
        """The key of a request; of several keys the first that is valid.

        Many clients insist on a Bearer key. They get a placeholder there, and the real key in x-api-key.

        Raises:
            Unauthenticated: no key came, or only wrong ones.
            RedisUnavailable: Redis has not answered since the start, so that nobody knows whether it is right.
        """
        if self.may_be_open and self.stamps is not None:
            return self._anonymous
        refusal = ""
        for text in _presented(headers):
            # A look into a table tells by its time nothing that helps to find a text: what is compared is its digest,
            # and Python compares a hash of that which differs in each process.
            digest = sha256(text.encode("latin-1")).hexdigest()
            key = self._table.get(digest)
            if key is not None and not (why := self._why_not(key, digest)):
                return key
            if refusal in {"", _UNKNOWN}:
                refusal = _UNKNOWN if key is None else why
        if self.stamps is None and (refusal or self.may_be_open):
            raise RedisUnavailable(self._unread, retry_after_s=spread(3))
        raise Unauthenticated(refusal or _NEEDED)

    def _why_not(self, key: Key, digest: str) -> str:
        if key.revoked is not None or key.owner in self.marks:
            return _REVOKED if key.source == "ledger" else _PURGED
        ends = [key.expires, *(text.until for text in key.digests if text.sha256 == digest)]
        return _EXPIRED if any(end is not None and end <= self.now_s for end in ends) else ""

    def require_known(self, key: Key) -> None:
        """Raises `Unauthenticated` if this key, which `find` has returned, was revoked or purged, or is gone."""
        present = self._of_owner.get(key.owner)
        if present is None or present.revoked is not None:
            raise Unauthenticated(_ENDED)

    def take(self, found: StoredKeys) -> None:
        """Takes in what Redis holds."""
        self._offset_s = found.now_s - self._clock()
        if found.keys is not None:
            self.stored_as = {one.alias.partition(":")[2]: one for one in found.keys}
            self.stored = {name: one.record for name, one in self.stored_as.items() if one.record is not None}
            for name in self.stored_as.keys() - self.stored.keys():
                _log.error("the key %s is refused: its record is of another version of embedq", name)
            self.marks = {one.id: one.record for one in found.marks if one.record is not None}
            self._anonymous = Key.anonymous(self.generation)
        self.stamps = found.stamps
        self.may_be_open = self.may_be_open and not found.stamps[0]
        before = self._of_owner.keys()
        self._build()
        if gone := before - self._of_owner.keys():
            self._forget(gone)

    async def run(self) -> None:
        """Keeps the table up to date, for ever."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Brings the table up to date, if Redis answers."""
        try:
            await self.refresh_now()
        except Unavailable as error:
            self._unread = error.detail  # the keys that are known stay valid
        except Exception as error:  # noqa: BLE001 - if this ended, no key could be revoked any more
            _log.error("the API keys cannot be read: %s", type(error).__name__)

    async def refresh_now(self) -> float:
        """Brings the table up to date; the time of Redis. Raises `RedisUnavailable`."""
        async with self._reading:  # one after the other, or an older reading could replace a newer one
            news = await self._ledger.run(store.news(*KINDS))
            found = StoredKeys(news.now_s, news.changes)
            if news.changes != self.stamps:  # what changes while they are read is read again the next time
                keys, marks = await self._all(Key), await self._all(Mark)
                found = StoredKeys(news.now_s, news.changes, keys, marks)
            self.take(found)
        return news.now_s

    async def _all(self, kind: type[R]) -> list[ReadRecord[R]]:
        found: list[ReadRecord[R]] = []
        while True:
            after = found[-1].id if found else ""
            page = await self._ledger.run(store.listed(kind, ALL, after=after, order=Order.ASC))
            found += page.records
            if not page.more:
                return found


_REVOKED = "This API key was revoked."
_PURGED = "All that this API key owned was deleted, so its name is refused. Give the key another name."
_EXPIRED = "This API key has expired."
_ENDED = "While this request was sent, its API key was revoked, or all that its caller owned was deleted."
_UNKNOWN = "This API key is not known here."
_NEEDED = "An API key is needed: send it as `Authorization: Bearer <key>` or `x-api-key`."


def _presented(headers: Headers) -> list[str]:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    keys = [bearer.strip() if scheme.lower() == "bearer" else None]
    keys += [headers.get("api-key"), headers.get("x-api-key")]  # Azure's name, and everybody else's
    return [key for key in keys if key]


_DOCUMENTED = HTTPBearer(
    scheme_name="key",
    auto_error=False,
    description="Needed where keys are set; the headers `api-key` and `x-api-key` do as well.",
)
"""For the document. The keys themselves are read from all three headers, where several may come at once."""


async def known_key(request: Request) -> Key:
    """The key of this request; counts the request where the key has a limit of requests.

    Raises:
        Unauthenticated: no key came, or only wrong ones.
        TooMany: the key may not make another request now.
        RedisUnavailable: the keys are not known yet.
    """
    keys: Keys = request.app.state.keys
    rates: RequestRates = request.app.state.rates
    try:
        key = request.state.key = await keys.known(request.headers)
        await rates.count(key)
    except (Unauthenticated, TooMany):
        in_flight: InFlight = request.app.state.in_flight
        await in_flight.pause()
        raise
    return key


def caller_of(scope: RequestScope) -> Key | None:
    """The key of a request that was let in; None: nobody has asked for one."""
    key: Key | None = scope.get("state", {}).get("key")
    return key


def require_still_known(request: Request, key: Key) -> None:
    """To be called when the body is there, for which a caller may take hours: a purge has ended by then.

    Raises:
        Unauthenticated: the key was revoked meanwhile, or purged.
    """
    keys: Keys = request.app.state.keys
    keys.require_known(key)


def require_scope(key: Key, scopes: Collection[str]) -> None:
    """Raises `Forbidden`, which says how to get one, if the key has none of these scopes."""
    if key.may(scopes):
        return
    wanted = [scope for scope in Scope if scope in scopes]
    having = ",".join(scope for scope in Scope if scope in key.scopes) or "none"
    lacks = f"This call needs the scope {' or '.join(wanted)}; the key {key.name} has {having}."
    if key.name == ANONYMOUS:
        remedy = "The first key is made where the service runs, through its Redis: embedq keys create NAME"
    elif key.source == "environment":
        remedy = "It is one of EMBEDQ_API_KEYS; an entry name:sha256:admin has all scopes"
    else:
        one = Scope.READ if Scope.READ in wanted else wanted[0]
        all_then = ",".join(scope for scope in Scope if scope in key.scopes | {one})
        remedy = f"A key with the scope admin adds it: embedq keys limits {key.name} --scopes {all_then}"
    raise Forbidden("scope_missing", f"{lacks} {remedy}")


async def current_key(
    needed: SecurityScopes,
    key: Annotated[Key, Depends(known_key)],
    _documented: Annotated[object, Security(_DOCUMENTED)] = None,
) -> Key:
    """The key of this request, which has one of the scopes that the route needs.

    Raises:
        Forbidden: it has none of them.
    """
    require_scope(key, needed.scopes)
    return key


AnyKey = Annotated[Key, Security(current_key, scopes=[*Scope])]
Reader = Annotated[Key, Security(current_key, scopes=["read"])]
# Whoever may make a thing may read it.
TaskMaker = Annotated[Key, Security(current_key, scopes=["online", "bulk"])]
TaskReader = Annotated[Key, Security(current_key, scopes=["online", "bulk", "read"])]
BatchMaker = Annotated[Key, Security(current_key, scopes=["bulk"])]
BatchReader = Annotated[Key, Security(current_key, scopes=["bulk", "read"])]
FileMaker = Annotated[Key, Security(current_key, scopes=["files"])]
FileReader = Annotated[Key, Security(current_key, scopes=["bulk", "files", "read"])]  # outputs of batches are files
IngestionMaker = Annotated[Key, Security(current_key, scopes=["ingest"])]
IngestionReader = Annotated[Key, Security(current_key, scopes=["ingest", "read"])]
Operator = Annotated[Key, Security(current_key, scopes=["operate"])]  # `admin` has it too
Admin = Annotated[Key, Security(current_key, scopes=["admin"])]
