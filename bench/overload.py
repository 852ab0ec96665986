"""`python -m bench.overload`: what a service does with more work than it can do. `make overload` runs it.

Queries arrive at random at multiples of the capacity, whatever becomes of those before them, and each caller waits so
long and no longer. What is done in that time is goodput. Then comes a burst whose callers return as they are told:
whoever has to return a second time was told too short a time, and a model that stands still meanwhile too long a one.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.load.connection import Broken, Connection
from bench.load.run import CHECKOUT
from bench.texts import queries
from stack.testing import RedisServer, Roles

_PLOT = CHECKOUT / "docs" / "overload.svg"
_MODEL = "bench/overload"
_TOKENS_PER_S = 400.0
_WORDS = 6
"""Copies of a query in a text. With this speed the model does about a dozen of them in a second, so it is the limit."""
_PATIENCE_S = 4.0
_READ_TIMEOUT_S = _PATIENCE_S + 2.0
"""As it is announced: the server leaves two seconds of it for the way."""
_MULTIPLES = (0.5, 0.8, 1.0, 1.5, 2.0, 4.0, 10.0)
_FEW, _CROWD = 16, 600
"""Callers at the same time, where the API is the limit."""
_LIMITED, _UNAVAILABLE = 429, 503
_KINDS = ("status", "online", "bulk")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. `sent_s`: since the start; `status` 0: the connection broke."""

    kind: str
    sent_s: float
    took_s: float
    status: int
    retry_after_s: int | None

    @property
    def in_time(self) -> bool:
        """Whether its caller got what was asked for while it waited."""
        return 200 <= self.status < 300 and self.took_s <= _PATIENCE_S


@dataclass(frozen=True, slots=True)
class Point:
    """A load and what came of it. `late`: of those accepted, not done in time. Rates are per second."""

    multiple: float
    offered_per_s: float
    goodput_per_s: float
    capacity_per_s: float
    accepted: int
    refused: int
    late: int
    broken: int

    @property
    def share(self) -> float:
        """Goodput as a part of the capacity."""
        return self.goodput_per_s / self.capacity_per_s

    @classmethod
    def of(
        cls, multiple: float, outcomes: Sequence[Outcome], capacity_per_s: float, window: tuple[float, float]
    ) -> "Point":
        """Counts answers that came within the window, after the queue has filled and before the load ends."""
        start_s, end_s = window
        answered = [one for one in outcomes if start_s <= one.sent_s + one.took_s < end_s]
        sent = [one for one in outcomes if start_s <= one.sent_s < end_s]
        refused = [one for one in sent if one.status in {_LIMITED, _UNAVAILABLE} and one.took_s < _PATIENCE_S]
        broken = sum(one.status == 0 for one in sent)
        return cls(
            multiple=multiple,
            offered_per_s=len(sent) / (end_s - start_s),
            goodput_per_s=sum(one.in_time for one in answered) / (end_s - start_s),
            capacity_per_s=capacity_per_s,
            accepted=len(sent) - len(refused) - broken,
            refused=len(refused),
            late=sum(not one.in_time and one.status != 0 for one in sent) - len(refused),
            broken=broken,
        )


@dataclass(frozen=True, slots=True)
class Burst:
    """Callers who return as they are told, until they are let in.

    Attributes:
        refused: callers who were refused at first.
        right: of those, how many were let in between half and twice the time that they were first told.
        used: share of the capacity that was used until the last of them was done.
    """

    multiple: float
    callers: int
    refused: int
    right: int
    used: float


class Callers:
    """Sends requests to one API process over as many connections as are needed."""

    def __init__(self, port: int, seed: int = 1, words: int = _WORDS) -> None:
        self._port = port
        self._words = words
        self._chance = random.Random(seed)  # noqa: S311 - the same arrivals every time
        self._texts = queries(64)
        self._number = 0
        self._idle: list[Connection] = []
        self._began_s = 0.0

    def begin(self) -> None:
        """From now on moments are counted."""
        self._began_s = time.perf_counter()

    async def ask(self, kind: str = "online") -> Outcome:
        """One request and its answer."""
        request = self._request(kind)
        sent_s = time.perf_counter()
        status, retry_after_s = 0, None
        with contextlib.suppress(OSError, Broken, TimeoutError):
            async with asyncio.timeout(4 * _PATIENCE_S):
                connection = await self._connection()
                status = await connection.ask(request)
            retry_after_s = connection.retry_after_s
            self._idle.append(connection)
        return Outcome(kind, sent_s - self._began_s, time.perf_counter() - sent_s, status, retry_after_s)

    async def arrive(self, per_s: float, seconds: float, kinds: Sequence[str] = ("online",)) -> list[Outcome]:
        """Requests at random moments, so many in a second on average."""
        self.begin()
        at_s, under_way = 0.0, []
        while (at_s := at_s + self._chance.expovariate(per_s)) < seconds:
            await asyncio.sleep(self._began_s + at_s - time.perf_counter())
            under_way.append(asyncio.ensure_future(self.ask(self._chance.choice(kinds))))
        return await asyncio.gather(*under_way)

    async def saturate(self, callers: int, seconds: float, kinds: Sequence[str] = ("online",)) -> list[Outcome]:
        """Callers who ask again as soon as they are answered."""
        self.begin()
        outcomes: list[Outcome] = []

        async def one() -> None:
            while time.perf_counter() - self._began_s < seconds:
                outcomes.append(await self.ask(self._chance.choice(kinds)))

        await asyncio.gather(*(one() for _ in range(callers)))
        return outcomes

    async def insist(self, within_s: float) -> tuple[float | None, float]:
        """A caller who comes within so many seconds and returns as told: the time told first, and the real one."""
        await asyncio.sleep(self._chance.random() * within_s)
        told_s, refused_s = None, 0.0
        while (one := await self.ask()).status in {_LIMITED, _UNAVAILABLE}:
            wait_s = one.retry_after_s or 1
            if told_s is None:
                told_s, refused_s = float(wait_s), time.perf_counter()
            await asyncio.sleep(wait_s)
        return told_s, time.perf_counter() - one.took_s - refused_s

    def _request(self, kind: str) -> bytes:
        self._number += 1
        if kind == "status":
            return f"GET /v1/tasks?limit=1 HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode()
        text = " ".join([f"{self._number}", *[self._chance.choice(self._texts) for _ in range(self._words)]])
        path, body = ("embeddings", {"model": _MODEL, "input": text})
        if kind == "bulk":
            path, body = "tasks", {"model": _MODEL, "input": text, "lane": "bulk"}
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"x-stainless-read-timeout: {_READ_TIMEOUT_S:g}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        return connection


async def measure(port: int, seconds: float) -> dict[str, Any]:
    """All loads, one after the other; the results as JSON."""
    callers = Callers(port)
    await callers.saturate(32, 4)  # the worker measures its speed
    done = await callers.saturate(32, seconds)
    capacity = _done(done)
    points = []
    for multiple in _MULTIPLES:
        outcomes = await callers.arrive(multiple * capacity, seconds + 2 * _PATIENCE_S)
        points.append(Point.of(multiple, outcomes, capacity, (_PATIENCE_S, seconds + _PATIENCE_S)))
        print(f"{multiple:5.1f}x  goodput {points[-1].share:.2f}  {points[-1]}", file=sys.stderr)
    bursts = []
    for multiple in (2.0, 10.0):
        await asyncio.sleep(2 * _PATIENCE_S)  # those who did not return are forgotten when nothing is queued
        bursts.append(await _burst(callers, multiple, capacity))
        print(bursts[-1], file=sys.stderr)
    return {
        "points": [dataclasses.asdict(point) for point in points],
        "bursts": [dataclasses.asdict(burst) for burst in bursts],
    }


async def _burst(callers: Callers, multiple: float, capacity_per_s: float) -> Burst:
    within_s = _PATIENCE_S
    number = math.ceil(multiple * capacity_per_s * within_s)
    callers.begin()
    began_s = time.perf_counter()
    ends = await asyncio.gather(*(callers.insist(within_s) for _ in range(number)))
    took_s = time.perf_counter() - began_s
    told = [(told_s, actual_s) for told_s, actual_s in ends if told_s is not None]
    right = sum(told_s / 2 <= actual_s <= told_s * 2 for told_s, actual_s in told)
    return Burst(multiple, number, len(told), right, number / capacity_per_s / took_s)


async def crowd(port: int, seconds: float) -> dict[str, float]:
    """The API as the limit: what it does for few callers, and for a crowd that asks again at once, by kind too."""
    callers = Callers(port, words=1)
    few = _done(await callers.saturate(_FEW, seconds))
    many = _done(await callers.saturate(_CROWD, seconds))
    mixed = await callers.saturate(_CROWD, seconds, _KINDS)
    asked, good = Counter(one.kind for one in mixed), Counter(one.kind for one in mixed if one.in_time)
    shares = {kind: good[kind] / max(1, asked[kind]) for kind in _KINDS}
    return {"capacity_per_s": few, "goodput_per_s": many, **shares}


def _done(outcomes: Sequence[Outcome]) -> float:
    """Answers in time per second."""
    return sum(one.in_time for one in outcomes) / max(one.sent_s + one.took_s for one in outcomes)


@contextmanager
def service(folder: Path, tokens_per_s: float) -> Iterator[int]:
    """Redis, an API and a worker whose model has this speed, 0: as fast as it goes; the port of the API."""
    redis = RedisServer(folder / "redis", maxmemory_bytes=2**28)
    try:
        redis.start()
        with Roles(folder, redis.url) as roles:
            fake: dict[str, Any] = {
                "compute": "fake",
                "served_name": _MODEL,
                "fake_tokens_per_s": tokens_per_s,
            }
            roles.worker(**fake)
            yield urlsplit(roles.api(**fake).base_url).port or 0
    finally:
        redis.stop()


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Writes the plot: goodput against offered load, both as parts of the capacity."""
    points = [Point(**point) for point in results["points"]]
    left, top, width, height = 60, 30, 560, 220
    most = math.log2(_MULTIPLES[-1] / _MULTIPLES[0])

    def place(multiple: float, share: float) -> str:
        x = left + width * math.log2(multiple / _MULTIPLES[0]) / most
        return f"{x:.1f},{top + height * (1 - share / 1.2):.1f}"

    ideal = " ".join(place(multiple, min(1.0, multiple)) for multiple in _MULTIPLES)
    good = " ".join(place(point.multiple, point.share) for point in points)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="11"',
        f' viewBox="0 0 {left + width + 40} {top + height + 60}">\n<rect width="100%" height="100%" fill="white"/>\n',
        f'<text x="{left}" y="18" font-weight="bold">goodput against offered load, parts of the capacity</text>\n',
    ]
    for share in (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0):
        y = float(place(1, share).split(",")[1])
        parts.append(f'<path d="M{left} {y}h{width}" stroke="#e5e7eb"/>\n')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{share:g}</text>\n')
    for multiple in _MULTIPLES:
        x = place(multiple, 0).split(",")[0]
        parts.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">{multiple:g}x</text>\n')
    parts.append(f'<polyline points="{ideal}" fill="none" stroke="#9ca3af" stroke-dasharray="4 3"/>\n')
    parts.append(f'<polyline points="{good}" fill="none" stroke="#2563eb" stroke-width="2"/>\n')
    for point in points:
        at = place(point.multiple, point.share).split(",")
        parts.append(f'<circle cx="{at[0]}" cy="{at[1]}" r="3" fill="#2563eb"/>\n')
    note = escape(f"Each caller waits {_PATIENCE_S:g} s. Dashed: all that could be done.")
    parts.append(f'<text x="{left}" y="{top + height + 40}">{note}</text>\n</svg>\n')
    path.write_text("".join(parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load that is counted")
    parser.add_argument("--write-docs", action="store_true", help=f"draw {_PLOT.relative_to(CHECKOUT)}")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="embedq-overload-") as folder:
        with service(Path(folder) / "model", _TOKENS_PER_S) as port:
            results = uvloop.run(measure(port, parsed.seconds))
        with service(Path(folder) / "api", 0) as port:
            results["crowd"] = uvloop.run(crowd(port, parsed.seconds))
    if parsed.write_docs:
        draw(results, _PLOT)
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
