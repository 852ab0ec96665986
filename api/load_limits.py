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
from itertools import chain
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.error_responses import CallerGone
from api.offload import offload
from tasks.errors import Invalid, Overloaded, RedisUnavailable, Refused, TooMany
from tasks.ledger.client import AsyncLedger, spread
from tasks.ledger.key_limits import KeyRoom, retry_after, take_request
from tasks.records.api_keys import Key
from tasks.wire.json_limits import MAX_PARTS, has_more_parts

_RETRY_AFTER_S = 5
"""At most. Spread, or those who are refused together would come back together."""


class Shared:
    """So much of something that requests have at a time.

    Args:
        most: of all together.
        several: whether there are several owners. One of them has no more than what is still free: alone half, two of
            them a third each. A newcomer is let in however many there are.
    """

    def __init__(self, most: int, several: Callable[[], bool] = lambda: False) -> None:
        self.most = most
        self._several = several
        self._of_owners: Counter[str] = Counter()

    @property
    def number(self) -> int:
        """All that they have now."""
        return self._of_owners.total()

    def has_room(self, owner: str, more: int, most: int) -> bool:
        """Whether the owner may have so much more, where all may have `most`."""
        free = most - self.number
        return more <= free and (not self._several() or self._of_owners[owner] + more <= free)

    def count(self, owner: str, more: int) -> None:
        """The owner has so much more, or less."""
        self._of_owners[owner] += more
        if not self._of_owners[owner]:
            del self._of_owners[owner]


# Bytes.

SMALL_BYTES = 64 * 1024
"""So much is not counted and never refused: small requests go on while large ones fill the limit."""
_PIECE_BYTES = 256 * 1024


class Held:
    """The bytes that one request holds, until it is closed.

    Args:
        bytes_of_all: of this process.
        owner: of the request.
    """

    def __init__(self, bytes_of_all: Shared, owner: str) -> None:
        self._of_all = bytes_of_all
        self._owner = owner
        self._bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """It holds so much now. Raises `Overloaded`; a request that alone holds much is never refused."""
        of_all, more = self._of_all, size_bytes - self._bytes
        if size_bytes <= SMALL_BYTES or more <= 0:
            return
        if of_all.number > self._bytes and not of_all.has_room(self._owner, more, of_all.most):
            raise Overloaded(
                "Too many bytes of large requests or answers are under way here; try again shortly.",
                retry_after_s=spread(_RETRY_AFTER_S),
            )
        of_all.count(self._owner, more)
        self._bytes = size_bytes

    def close(self) -> None:
        """It holds nothing any more."""
        if self._bytes:
            self._of_all.count(self._owner, -self._bytes)
            self._bytes = 0


async def read_body(request: Request, max_bytes: int, held: Held) -> bytes:
    """The whole body of a request that says it is JSON, fit to be parsed; `held` has it.

    Raises:
        Refused: it says otherwise, or is compressed. A missing type counts: a web page could send such a
            request unasked.
        Refused: it is longer than `max_bytes`; what is over the limit is never kept.
        Invalid: parsing it would take seconds, and many times its size.
        Overloaded: too many large bodies are here already.
        CallerGone: the client closed the connection first.
    """
    _require_json(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks, size = list[bytes](), 0
    more = True
    while more:  # `request.stream` does the same: measured, it took some 5 % of what a small query costs
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        held.grow_to(size)
        chunks.append(chunk)
    body = b"".join(chunks)
    if size > MAX_PARTS and await offload(size, has_more_parts, body):
        raise Invalid(
            "body_too_complex",
            f"The body holds more than {MAX_PARTS:,} lists, objects and fields. Send fewer per request.",
        )
    return body


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
    """Is sent in pieces, as fast as the client takes them, and closes what `held` it after the last one."""

    def __init__(self, content: bytes, held: Held, media_type: str, headers: Mapping[str, str]) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._held = held

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Sends it."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            size = len(self.body)
            for start in range(0, size or 1, _PIECE_BYTES):
                end = start + _PIECE_BYTES
                # A copy: the last piece may lie in the buffer of the connection for long, and a view would keep all.
                await send({"type": "http.response.body", "body": self.body[start:end], "more_body": end < size})
        finally:
            self._held.close()


# Lists.


class ListTurns:
    """Four lists of one owner are read at a time: Redis holds each until it is sent, in memory that all share.

    Of small ones forty: without keys all callers are one owner, and many may look at once how their work stands.
    """

    def __init__(self) -> None:
        self._of_owners: WeakValueDictionary[tuple[str, bool], asyncio.Semaphore] = WeakValueDictionary()

    def of(self, owner: str, *, small: bool = False) -> asyncio.Semaphore:
        """To be held while a list of the owner is read."""
        return self._of_owners.setdefault((owner, small), asyncio.Semaphore(40 if small else 4))


# Submissions.

MAX_IN_FLIGHT = 256
"""Submissions on their way to Redis and back: four of what travels together (tasks.ledger.submit_batcher)."""
BUSY_IN_FLIGHT = 32
"""With fewer, a late event loop had one slow thing to do. Refusing callers would not help it."""
MAX_LAG_S = 0.25
_BULK_PART = 0.75
"""Share of the limit above which bulk work is turned away. The rest is for queries."""
REFUSALS_PER_S = 200
REFUSALS_AT_ONCE = 100
LONGEST_PAUSE_S = 5.0


class InFlight(Shared):
    """Counts the submissions of one process by owner.

    To refuse costs time too, and a caller who is refused may ask again at once. So refusals are paced, and what they
    leave is for those who were let in.

    Args:
        lag_s: by how much the event loop was late of late, in seconds.
        several: as of `Shared`.
    """

    def __init__(self, lag_s: Callable[[], float], several: Callable[[], bool] = lambda: False) -> None:
        super().__init__(MAX_IN_FLIGHT, several)
        self._lag_s = lag_s
        self._next_refusal_s = 0.0

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
        self.count(owner, 1)
        try:
            yield
        finally:
            self.count(owner, -1)

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
        return not self.has_room(owner, 1, int(most * _BULK_PART) if bulk else most)


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
        self._taken: dict[str, tuple[float, float, KeyRoom]] = {}
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
                after_s, left = await self._ledger.run(take_request(key.owner, per_s))
            except RedisUnavailable:
                return
            until_s = self._clock() + after_s if after_s else 0.0
            self._taken[key.owner] = per_s, until_s, left
        wait_s = until_s - self._clock()
        if wait_s > 0:
            after_s = retry_after(wait_s)
            raise TooMany(
                "rate_limited",
                f"The limit of your key is reached: requests_per_second is {per_s:g}. Try again in {after_s} s.",
                retry_after_s=after_s,
            )

    def left(self, key: Key) -> KeyRoom | None:
        """What the last request of the key has left; None: it has no such limit."""
        if key.limits.requests_per_second is None or key.owner not in self._taken:
            return None
        return self._taken[key.owner][2]


# OpenAI's headers about limits, by which some clients steer how much they send at once.

RATE_LIMIT_HEADERS = tuple(
    f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)


def rate_limit_headers(admission: KeyRoom, room: KeyRoom | None, taken: KeyRoom | None) -> dict[str, str]:
    """The six headers. A request is at least one token of work, so no more requests are left than tokens.

    Args:
        admission: what the queue still takes of the caller.
        room: what its key may still bring; None: it has no such limit.
        taken: what its key has left of its requests; likewise.
    """
    tokens = min((one.left, one.limit, one.reset_s) for one in (admission, room) if one is not None)
    requests = tokens if taken is None else min(tokens, (taken.left, taken.limit, taken.reset_s))
    rows = [(str(limit), str(left), _duration(reset_s)) for left, limit, reset_s in (requests, tokens)]
    return dict(zip(RATE_LIMIT_HEADERS, chain(*rows), strict=True))


def _duration(seconds: float) -> str:
    """As Go writes whole seconds: `0s`, `59s`, `6m0s`, `1h0m0s`."""
    minutes, left_s = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{left_s}s" if hours else f"{minutes}m{left_s}s" if minutes else f"{left_s}s"
