"""Load over HTTP, from processes of their own: the cores that a generator takes are missing to the server.

In a closed loop no request is started after the time is over, but answers that are due are awaited, and the time until
the last of them counts: a slow server is neither spared the work it had begun nor cheated of it. In an open loop a
latency counts from the moment at which the request was due, so that a server that stands still cannot hide it.
"""

import asyncio
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvloop

T = TypeVar("T")
CHECKOUT = Path(__file__).resolve().parents[1]
_CONNECT_TIMEOUT_S = 10.0
_PAUSE_S = 0.1
"""After a failure: a server that refuses or is gone must not make the generator burn the core that it needs."""
_AT_ONCE = 2
"""Loads at the same time: what is measured, and what runs beside it."""
_SHOWN_OF_REFUSAL = 300


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to one URL.

    Attributes:
        url: absolute, http only.
        bodies: JSON texts for POST, used in turn; none: GET.
        connections: in a closed loop, requests on their way at any time; with `rate_per_s`, ignored.
        seconds: no request is started later.
        rate_per_s: start requests at this rate whatever the server does (open loop); None: closed loop.
        patience_s: how long answers are awaited after `seconds`.
    """

    url: str
    bodies: Sequence[str] = ()
    connections: int = 1
    seconds: float = 5.0
    rate_per_s: float | None = None
    patience_s: float = 120.0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came of it.

    Attributes:
        ms: latencies in milliseconds of the answers of status 2xx, ascending.
        seconds: from the first request to the last answer.
        reasons: how many others failed with which status, or in which other way.
        refusal: the beginning of the first answer that is not 2xx.
    """

    ms: Sequence[float]
    seconds: float
    reasons: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""

    @property
    def errors(self) -> int:
        """Other answers, broken connections and answers that never came."""
        return sum(self.reasons.values())

    @property
    def rate_per_s(self) -> float:
        """Good answers per second."""
        return len(self.ms) / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """In milliseconds, by the nearest rank; NaN without a good answer."""
        rank = math.ceil(percent / 100 * len(self.ms))
        return self.ms[max(rank, 1) - 1] if self.ms else math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; the head in lower case."""

    status: int
    head: bytes
    body: bytes


class Connections:
    """To one server, as many as are needed, kept from one request to the next. Streams cost 50 us of each request."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> Answer:
        """The whole answer, which must have a length.

        Raises:
            OSError, EOFError, ValueError: there is none.
        """
        reader, writer = await self._connection()
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(head.partition(b"\r\ncontent-length:")[2].split(b"\r", 1)[0]))
        except BaseException:
            writer.close()
            raise
        if b"\r\nconnection: close" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return Answer(int(head[9:12]), head, body)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await asyncio.open_connection(*self._address)

    def close(self) -> None:
        """Those that are idle."""
        for _, writer in self._idle:
            writer.close()


def http_request(url: str, body: str | None, headers: Mapping[str, str]) -> bytes:
    """The bytes of a POST of JSON, or of a GET."""
    parts, content = urlsplit(url), (body or "").encode()
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Generator:
    """Sends one load and collects latencies."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._requests = [http_request(load.url, body, load.headers) for body in load.bodies or (None,)]
        self._connections = Connections(load.url)
        self._next = 0
        self._latencies_s: list[float] = []
        self._reasons: Counter[str] = Counter()
        self._refusal = ""
        self._started = self._last_answer = 0.0

    async def run(self) -> LoadResult:
        """Sends everything; what came of it."""
        self._started = self._last_answer = time.perf_counter()
        if self._load.rate_per_s is None:
            work = [self._closed_loop() for _ in range(self._load.connections)]
        else:
            due = range(math.ceil(self._load.seconds * self._load.rate_per_s))
            work = [self._at(self._started + number / self._load.rate_per_s) for number in due]
        tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
        _, late = await asyncio.wait(tasks, timeout=self._load.seconds + self._load.patience_s)
        for task in late:
            self._reasons["no answer in time"] += 1
            task.cancel()
        self._connections.close()
        ms = sorted(1000 * latency for latency in self._latencies_s)
        return LoadResult(ms, self._last_answer - self._started, dict(self._reasons), self._refusal)

    async def _closed_loop(self) -> None:
        end = self._started + self._load.seconds
        while (now := time.perf_counter()) < end:
            await self._send(due=now)

    async def _at(self, due: float) -> None:
        await asyncio.sleep(due - time.perf_counter())
        await self._send(due=due)

    async def _send(self, *, due: float) -> None:
        request = self._requests[self._next % len(self._requests)]
        self._next += 1
        try:
            answer = await self._connections.ask(request)
        except (OSError, EOFError, ValueError) as error:
            await self._failed(type(error).__name__)
            return
        self._last_answer = time.perf_counter()
        if 200 <= answer.status < 300:
            self._latencies_s.append(self._last_answer - due)
        else:
            self._refusal = self._refusal or answer.body[:_SHOWN_OF_REFUSAL].decode(errors="replace")
            await self._failed(f"status {answer.status}")

    async def _failed(self, reason: str) -> None:
        self._reasons[reason] += 1
        await asyncio.sleep(_PAUSE_S)


def start(load: Load) -> "Future[LoadResult]":
    """The load runs in another process from now on."""
    return _processes().submit(_run, load)


def run(load: Load) -> LoadResult:
    """The load, to its end."""
    return start(load).result()


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """What the function gives in a process that ends with it: this one must not load torch beside what it measures."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _run(load: Load) -> LoadResult:
    return uvloop.run(Generator(load).run())


@cache
def _processes() -> ProcessPoolExecutor:
    """They are there before the first load: a process that starts beside one would take its processor time."""
    processes = ProcessPoolExecutor(_AT_ONCE, multiprocessing.get_context("spawn"))
    for ready in [processes.submit(time.sleep, 0.1) for _ in range(_AT_ONCE)]:
        ready.result()
    return processes
