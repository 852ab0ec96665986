"""Who calls, and with which right: the keys of this process, and the key of a request as a dependency of the routes.

Each process holds all keys in one table and asks Redis twice a second whether they have changed. So a request costs no
call, and a key that is made, limited or revoked is so in all processes within a second. While Redis is away the last
known keys stay valid; their ends are counted on. What is under way when a key is revoked ends by itself.

`Reader` and its like let in a key that has one of their scopes. FastAPI's own meaning of several scopes would be all.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import Scope as RequestScope

from api.request_limits import InFlight, RequestRates
from tasks.errors import Forbidden, RedisUnavailable, TooMany, Unauthenticated, Unavailable
from tasks.ledger import ANONYMOUS, AsyncLedger
from tasks.ledger.executor import spread
from tasks.records.api_keys import (
    ALL_SCOPES,
    USUAL_SCOPES,
    Anonymous,
    Key,
    Scope,
    StoredKeys,
    read_keys,
)
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

REFRESH_S = 0.5
_KEY = "embedq.key"
"""In the scope of a request: its key, once that is known."""


class Keys:
    """All keys as this process knows them.

    Args:
        settings: with the keys of the environment.
        ledger: holds the others.
        forget: drops what this process keeps of owners who have nothing any more.
        clock: seconds that only grow.
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
        self._required = settings.require_key
        self.environment = {
            name: Key.of_environment(name, digest, ALL_SCOPES if name in settings.admin_keys else USUAL_SCOPES)
            for name, digest in settings.api_keys
        }
        """Keys of the settings, by name."""
        self.stamp: str | None = None
        """Of the last reading; None: Redis has not answered since the start."""
        self.stored: Mapping[str, Key] = {}
        """Keys of Redis, by name."""
        self.several = False
        """Whether there are several callers, who share what there is."""
        self._closed = False
        self._anonymous = Key.anonymous(0)
        self._table: Mapping[str, Key] = {}
        self._of_owner: Mapping[str, Key] = {}
        self._trying: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._build()

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
        return not (self.environment or self._required or self._closed)

    async def known(self, headers: Headers) -> Key:
        """As `find`. A process that has not heard from Redis since its start asks once more before it refuses."""
        if self.stamp is None:
            with suppress(RedisUnavailable):
                return self.find(headers)
            await self._first_reading()
        return self.find(headers)

    def find(self, headers: Headers) -> Key:
        """The key of a request; of several keys the first that is valid.

        Many clients insist on a Bearer key. They get a placeholder there, and the real key in x-api-key.

        Raises:
            Unauthenticated: no key came, or only wrong ones.
            RedisUnavailable: Redis has not answered since the start, so that nobody knows whether it is right.
        """
        if self.is_open:
            return self._anonymous
        texts = _presented(headers)
        refusals = []
        for text in texts:
            # A look into a table tells by its time nothing that helps to find a text: what is compared is its digest,
            # and Python compares a hash of that which differs in each process.
            digest = sha256(text.encode("latin-1")).hexdigest()
            key = self._table.get(digest)
            refusal = _UNKNOWN if key is None else self._why_not(key, digest)
            if key is not None and not refusal:
                return key
            refusals.append(refusal)
        if self.stamp is None and (texts or self.may_be_open):
            raise RedisUnavailable(
                "The queue (Redis), which knows the API keys, has not answered yet; try again shortly.",
                retry_after_s=spread(3),
            )
        known = [refusal for refusal in refusals if refusal != _UNKNOWN]
        raise Unauthenticated(known[0] if known else _UNKNOWN if texts else _NEEDED)

    def require_known(self, key: Key) -> None:
        """Raises `Unauthenticated` if this key, which `find` has returned, was revoked or purged, or is gone."""
        present = self._of_owner.get(key.owner)
        if present is None or present.revoked is not None:
            raise Unauthenticated(_ENDED)

    def _why_not(self, key: Key, digest: str) -> str:
        if key.revoked is not None:
            return _REVOKED if key.has_record else _PURGED
        untils = [text.until for text in key.digests if text.sha256 == digest]
        return _EXPIRED if any(end is not None and end <= self.now_s for end in (key.expires, *untils)) else ""

    def take(self, stored: StoredKeys) -> None:
        """Takes in what Redis holds."""
        self._offset_s = stored.now_s - self._clock()
        if stored.records is not None:
            read = {name: _read(name, text) for name, text in stored.records.items()}
            self.stored = {name: key for name, key in read.items() if key is not None}
        self._anonymous = Key.anonymous(Anonymous.from_text(stored.anonymous).generation)
        self.environment = {
            name: key.model_copy(update=dict.fromkeys(("revoked", "purged"), stored.purged.get(key.owner)))
            for name, key in self.environment.items()
        }
        self.stamp = stored.stamp
        self._closed = self._closed or bool(stored.stamp)
        before = self._of_owner.keys()
        self._build()
        if gone := before - self._of_owner.keys():
            self._forget(gone)

    def _build(self) -> None:
        # Of two keys with one text the first one of the environment counts.
        keys = [*self.stored.values(), *reversed(self.environment.values())]
        self._table = {text.sha256: key for key in keys for text in key.digests}
        kept = [key for key in keys if key.purged is None]
        self._of_owner = {key.owner: key for key in [self._anonymous, *kept]}
        living = [key for key in self.stored.values() if key.revoked is None]
        self.several = len(self.environment) + len(living) > 1

    async def run(self) -> None:
        """Keeps the table up to date, for ever."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Brings the table up to date, if Redis answers."""
        try:
            await self.refresh_now()
        except Unavailable:
            pass  # the keys that are known stay valid
        except Exception as error:  # noqa: BLE001 - if this ended, no key could be revoked any more
            _log.error("the API keys cannot be read: %s", type(error).__name__)

    async def refresh_now(self) -> None:
        """Brings the table up to date; raises `RedisUnavailable`."""
        async with self._reading:  # one after the other, or an older reading could replace a newer one
            owners = [key.owner for key in self.environment.values()]
            self.take(await self._ledger.run(read_keys(self.stamp, owners)))

    async def _first_reading(self) -> None:
        """Tries to read the keys. All who come while it is tried wait for the same try."""
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self.refresh(), name="first keys")
        await asyncio.shield(self._trying)

    def scope_missing(self, key: Key, scopes: Collection[Scope]) -> Forbidden:
        """The error for a key that has none of these scopes."""
        needed = " or ".join(scope for scope in Scope if scope in scopes)
        if key.name == ANONYMOUS:
            return Forbidden(
                "scope_missing",
                f"This call needs a key with the scope {needed}. The first key is made where the service runs, through "
                "its Redis: embedq keys create NAME",
            )
        having = ",".join(scope for scope in Scope if scope in key.scopes) or "none"
        if not key.has_record:
            remedy = "It is one of EMBEDQ_API_KEYS; EMBEDQ_ADMIN_KEYS names those that have admin too"
        else:
            one = Scope.READ if Scope.READ in scopes else next(scope for scope in Scope if scope in scopes)
            all_then = ",".join(scope for scope in Scope if scope in key.scopes | {one})
            remedy = f"A key with the scope admin adds it: embedq keys limits {key.name} --scopes {all_then}"
        return Forbidden(
            "scope_missing", f"This call needs the scope {needed}; the key {key.name} has {having}. {remedy}"
        )


_REVOKED = "This API key was revoked."
_PURGED = "All that this API key owned was deleted, so its name is refused. Give the key another name."
_EXPIRED = "This API key has expired."
_ENDED = "While this request was sent, its API key was revoked, or all that its caller owned was deleted."
_UNKNOWN = "This API key is not known here."
_NEEDED = "An API key is needed: send it as `Authorization: Bearer <key>` or `x-api-key`."


def _read(name: str, text: bytes) -> Key | None:
    try:
        return Key.from_json(text)
    except ValidationError:
        _log.error("the key %s is refused: its record is of another version of embedq", name)
        return None


def _presented(headers: Headers) -> list[str]:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    keys = [bearer.strip() if scheme.lower() == "bearer" else None]
    keys += [headers.get("api-key"), headers.get("x-api-key")]  # Azure's name, and everybody else's
    return [key for key in keys if key]


def caller_of(scope: RequestScope) -> Key | None:
    """The key of a request that was let in; None: nobody has asked for one."""
    return scope.get(_KEY)


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
        key = await keys.known(request.headers)
        request.scope[_KEY] = key
        await rates.count(key)
    except (Unauthenticated, TooMany):
        in_flight: InFlight = request.app.state.in_flight
        await in_flight.pause()
        raise
    return key


def require(request: Request, key: Key, scopes: Collection[Scope]) -> None:
    """Raises `Forbidden` if the key has none of these scopes."""
    if not key.may(scopes):
        keys: Keys = request.app.state.keys
        raise keys.scope_missing(key, scopes)


def require_still_known(request: Request, key: Key) -> None:
    """To be called when the body is there, for which a caller may take hours: a purge has ended by then.

    Raises:
        Unauthenticated: the key was revoked meanwhile, or purged.
    """
    keys: Keys = request.app.state.keys
    keys.require_known(key)


async def current_key(
    needed: SecurityScopes,
    request: Request,
    key: Annotated[Key, Depends(known_key)],
    _documented: Annotated[object, Security(_DOCUMENTED)] = None,
) -> Key:
    """The key of this request, which has one of the scopes that the route needs.

    Raises:
        Forbidden: it has none of them.
    """
    require(request, key, {Scope(name) for name in needed.scopes})
    return key


AnyKey = Annotated[Key, Security(current_key, scopes=[*Scope])]
Reader = Annotated[Key, Security(current_key, scopes=["read"])]
OnlineCaller = Annotated[Key, Security(current_key, scopes=["online"])]
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
