"""What one process takes at a time: bytes that requests hold, and submissions in flight; and how often a key may call.

Without such limits thousands of requests share the event loop, each of them waits in it for longer than callers and the
time limits of Redis allow, and all end as errors: work is done and nobody gets an answer.
"""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.error_responses import CallerGone
from api.offload import offload
from tasks.errors import Invalid, Overloaded, RedisUnavailable, Refused, TooMany
from tasks.ledger import AsyncLedger, KeyRoom
from tasks.ledger.executor import spread
from tasks.ledger.operations import Taken, retry_after_of_key, take_request
from tasks.records.api_keys import Key
from tasks.wire.json_limits import MAX_PARTS, has_more_parts

_RETRY_AFTER_S = 5
"""At most. Spread, or those who are refused together would come back together."""

# Bytes.

SMALL_BYTES = 64 * 1024
"""Less than this is not counted and never refused: small requests go on while large ones fill the limit."""
_PIECE_BYTES = 256 * 1024


class HeldBytes:
    """Limits the bytes that all requests of this process hold at a time. One owner may hold half of them.

    Args:
        limit_bytes: of all together.
        what: is held, for the message.
        shared: whether there are several owners; one alone may hold all.
    """

    def __init__(self, limit_bytes: int, what: str, *, shared: Callable[[], bool] = lambda: False) -> None:
        self.limit_bytes = limit_bytes
        self._shared = shared
        self._what = what
        self._of_owners: Counter[str] = Counter()

    @property
    def held_bytes(self) -> int:
        """All that is held now."""
        return self._of_owners.total()

    def require_room(self, owner: str, held_bytes: int, more_bytes: int) -> None:
        """For a request that holds so much already. Raises `Overloaded`; one that is alone is never refused."""
        share_bytes = self.limit_bytes // 2 if self._shared() else self.limit_bytes
        for all_bytes, limit_bytes in ((self.held_bytes, self.limit_bytes), (self._of_owners[owner], share_bytes)):
            if all_bytes > held_bytes and all_bytes + more_bytes > limit_bytes:
                raise Overloaded(
                    f"Too many bytes of {self._what} are under way here; try again shortly.",
                    retry_after_s=spread(_RETRY_AFTER_S),
                )

    def count(self, owner: str, size_bytes: int) -> None:
        """So many bytes more, or fewer."""
        self._of_owners[owner] += size_bytes
        if not self._of_owners[owner]:
            del self._of_owners[owner]


class Holding:
    """What one request holds of a limit; as a context manager until its end."""

    def __init__(self, limit: HeldBytes, owner: str) -> None:
        self._limit = limit
        self._owner = owner
        self._bytes = 0

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Releases it."""
        self.release()

    def take(self, size_bytes: int) -> None:
        """Counts bytes until the request has ended, if they are not few. Raises `Overloaded`."""
        if self._bytes + size_bytes > SMALL_BYTES:
            self._limit.require_room(self._owner, self._bytes, size_bytes)
            self._bytes += size_bytes
            self._limit.count(self._owner, size_bytes)

    def release(self) -> None:
        """The request has ended."""
        if self._bytes:
            self._limit.count(self._owner, -self._bytes)
            self._bytes = 0


@dataclass(frozen=True, slots=True)
class Bodies:
    """Reads the JSON bodies of one process.

    Attributes:
        max_bytes: of one body.
        budget: of all bodies together.
    """

    max_bytes: int
    budget: HeldBytes

    async def read(self, request: Request, holding: Holding) -> bytes:
        """The whole body, fit to be parsed; `holding` has it.

        Raises:
            Invalid: parsing it would take seconds, and many times its size.
            Overloaded: too many large bodies are here already.
            EmbedqError, CallerGone: as `read_body` does.
        """
        body = await read_body(request, self.max_bytes, holding.take)
        if len(body) > MAX_PARTS and await offload(len(body), has_more_parts, body):
            raise Invalid(
                "body_too_complex",
                f"The body holds more than {MAX_PARTS:,} lists, objects and fields. Send fewer per request.",
            )
        return body


async def read_body(request: Request, max_bytes: int, take: Callable[[int], None]) -> bytes:
    """The whole body of a request that says it is JSON.

    `take` is called with the size of what has come, as soon as that is not small, and with what comes then.

    Raises:
        Refused: it says otherwise, or is compressed. A missing type counts: a web page could send such a
            request unasked.
        Refused: it is longer than `max_bytes`; what is over the limit is never kept.
        CallerGone: the client closed the connection first.
    """
    _require_json(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = taken = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > SMALL_BYTES:
            take(size - taken)
            taken = size
        chunks.append(chunk)
    return b"".join(chunks)


def _require_json(content_type: str, content_encoding: str) -> None:
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise Refused("unsupported_media_type", "Send JSON with the header `Content-Type: application/json`.")
    if content_encoding.strip().lower() not in {"", "identity"}:
        raise Refused("unsupported_media_type", "Send the body as it is: Content-Encoding is not supported.")


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        "body_too_large",
        f"The body is larger than {max_bytes:,} bytes (EMBEDQ_MAX_BODY_BYTES). "
        f"Send fewer texts per request, or a file to /v1/batches.",
    )


class LargeResponse(Response):
    """Is sent in pieces, as fast as the client takes them, and gives back what the answer holds after the last one."""

    held: Holding | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            if len(self.body) <= _PIECE_BYTES:
                await super().__call__(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            whole = memoryview(self.body)
            for start in range(0, len(whole), _PIECE_BYTES):
                end = start + _PIECE_BYTES
                await send({"type": "http.response.body", "body": whole[start:end], "more_body": end < len(whole)})
        finally:
            if self.held is not None:
                self.held.release()


def sent(content: bytes, held: Holding, media_type: str, headers: Mapping[str, str]) -> LargeResponse:
    """The response with this content, which `held` has counted."""
    response = LargeResponse(content, headers=headers, media_type=media_type)
    response.held = held
    return response


# Lists.


class ListTurns:
    """So many lists of one owner are read at a time: Redis holds each until it is sent, in memory that all share."""

    def __init__(self, at_once: int = 4) -> None:
        self._at_once = at_once
        self._of_owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, owner: str) -> asyncio.Semaphore:
        """To be held while a list of the owner is read."""
        return self._of_owners.setdefault(owner, asyncio.Semaphore(self._at_once))


# Submissions.

MAX_IN_FLIGHT = 256
"""Submissions on their way to Redis and back: four round trips of what travels together (tasks.ledger.gather)."""
BUSY_IN_FLIGHT = 32
"""With fewer, a late event loop had one slow thing to do. Refusing callers would not help it."""
MAX_LAG_S = 0.25
_BULK_PART = 0.75
"""Share of the limit above which bulk work is turned away. The rest is for queries."""
REFUSALS_PER_S = 200
REFUSALS_AT_ONCE = 100
LONGEST_PAUSE_S = 5.0


class InFlight:
    """Counts the submissions of one process by owner.

    To refuse costs time too, and a caller who is refused may ask again at once. So refusals are paced, and what they
    leave is for those who were let in.

    Args:
        lag_s: by how much the event loop was late of late, in seconds.
        most: submissions in flight at a time.
        shared: whether there are several owners. One of them has no more in flight than what is still free: alone half
            of the limit, two of them a third each. A newcomer is let in however many there are.
    """

    def __init__(
        self, lag_s: Callable[[], float], most: int = MAX_IN_FLIGHT, shared: Callable[[], bool] = lambda: False
    ) -> None:
        self._lag_s = lag_s
        self.most = most
        self._shared = shared
        self._of_owners: Counter[str] = Counter()
        self._next_refusal_s = 0.0

    @property
    def number(self) -> int:
        """How many are in flight now."""
        return self._of_owners.total()

    async def require_room(self, owner: str) -> None:
        """For a request that is about to be read. Raises `Overloaded`: it would only be turned away later."""
        if self._is_full(owner, bulk=False):
            await self.pause()
            raise overloaded()

    @contextmanager
    def submitting(self, owner: str, *, bulk: bool) -> Iterator[None]:
        """Around one submission. Raises `Overloaded`, at once."""
        if self._is_full(owner, bulk=bulk):
            raise overloaded()
        self._of_owners[owner] += 1
        try:
            yield
        finally:
            self._of_owners[owner] -= 1
            if not self._of_owners[owner]:
                del self._of_owners[owner]

    async def pause(self) -> None:
        """Waits for the turn of one more refusal."""
        delay_s = self.next_refusal_s(time.monotonic())
        if delay_s:
            await asyncio.sleep(delay_s)

    def next_refusal_s(self, now_s: float) -> float:
        """Takes the next turn; how long it is until then."""
        earliest_s = now_s - REFUSALS_AT_ONCE / REFUSALS_PER_S
        next_s = max(self._next_refusal_s, earliest_s) + 1 / REFUSALS_PER_S
        self._next_refusal_s = min(next_s, now_s + LONGEST_PAUSE_S)
        return max(0.0, self._next_refusal_s - now_s)

    def _is_full(self, owner: str, *, bulk: bool) -> bool:
        most = min(self.most, BUSY_IN_FLIGHT) if self._lag_s() > MAX_LAG_S else self.most
        free = (int(most * _BULK_PART) if bulk else most) - self.number
        return free <= 0 or (self._of_owners[owner] >= free and self._shared())


def overloaded() -> Overloaded:
    """The error, with a random time to come back."""
    wait_s = spread(_RETRY_AFTER_S)
    return Overloaded(
        f"More requests came than this server can take in; try again in {wait_s} s. Nothing was stored.",
        retry_after_s=wait_s,
    )


def jitter(seconds: float) -> float:
    """Up to a quarter more: those for whom there is no room do not come back together."""
    return seconds * random.uniform(1, 1.25)  # noqa: S311 - no secret


# The requests of a key.


class RequestRates:
    """Counts the requests of keys that may make so many in a second.

    The buckets are in Redis, for all processes. A process remembers until when one is empty and asks no more until
    then: whatever others take meanwhile, it cannot be filled before. So a flood costs Redis no more calls than its key
    may make requests, and as many that are refused.

    Args:
        ledger: holds the buckets.
        clock: seconds that only grow.
    """

    def __init__(self, ledger: AsyncLedger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._taken: dict[str, tuple[float, float, Taken]] = {}
        """By owner: the limit that was asked for, when its bucket has a request again, and what the ledger said."""

    async def count(self, key: Key) -> None:
        """Counts one request of a key; a key without such a limit costs nothing.

        While Redis is away nothing is counted: what needs no Redis is answered.

        Raises:
            TooMany: the owner has made as many as it may in the last second.
        """
        per_s = key.limits.requests_per_second
        if per_s is None:
            return
        before = self._taken.get(key.owner)
        until_s = before[1] if before is not None and before[0] == per_s else 0.0  # another limit counts at once
        if until_s <= self._clock():
            try:
                taken = await self._ledger.run(take_request(key.owner, per_s))
            except RedisUnavailable:
                return
            until_s = self._clock() + taken.wait_s if taken.wait_s else 0.0
            self._taken[key.owner] = per_s, until_s, taken
        wait_s = until_s - self._clock()
        if wait_s > 0:
            after_s = retry_after_of_key(wait_s)
            raise TooMany(
                "rate_limited",
                f"The limit of your key is reached: requests_per_second is {per_s:g}. Try again in {after_s} s.",
                retry_after_s=after_s,
            )

    def left(self, key: Key) -> Taken | None:
        """What the last request of the key has left; None: it has no such limit."""
        if key.limits.requests_per_second is None or key.owner not in self._taken:
            return None
        return self._taken[key.owner][2]


# OpenAI's headers about limits, by which some clients steer how much they send at once.

RATE_LIMIT_HEADERS = tuple(
    f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)


def rate_limit_headers(admission: KeyRoom, room: KeyRoom | None, taken: Taken | None) -> dict[str, str]:
    """The six headers. A request is at least one token of work, so no more requests are left than tokens.

    Args:
        admission: what the queue still takes of the caller.
        room: what its key may still bring; None: it has no such limit.
        taken: what its key has left of its requests; likewise.
    """
    rooms = [(one.left, one.limit, one.reset_s) for one in (admission, room, taken) if one is not None]
    tokens = min(rooms if taken is None else rooms[:-1])
    values = [f(limit) for limit in (min(rooms), tokens) for f in (_limit, _left, _reset)]
    return dict(zip(RATE_LIMIT_HEADERS, values, strict=True))


def _limit(of: tuple[int, int, float]) -> str:
    return str(of[1])


def _left(of: tuple[int, int, float]) -> str:
    return str(of[0])


def _reset(of: tuple[int, int, float]) -> str:
    """As Go writes whole seconds: `0s`, `59s`, `6m0s`, `1h0m0s`."""
    minutes, seconds = divmod(math.ceil(of[2]), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
