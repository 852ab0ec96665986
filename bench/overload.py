"""`python -m bench.overload`: what a service does with more work than it can do. `make overload` runs it.

Queries arrive at random at multiples of the capacity, whatever becomes of those before them, and each caller waits so
long and no longer. What is done in that time is goodput. Then comes a burst whose callers return as they are told:
whoever has to return a second time was told too short a time, and a model that stands still meanwhile too long a one.
"""

import argparse
import asyncio
import contextlib
import json
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench.load import Connections, http_request
from bench.report import markdown, shown
from bench.texts import queries
from tests.processes import RedisServer, Roles

_MODEL = "bench/overload"
_FAKE: dict[str, Any] = {"compute": "fake", "served_name": _MODEL, "fake_tokens_per_s": 400.0}
_WORDS = 6
"""Copies of a query in a text. With this speed the model does about a dozen of them in a second, so it is the limit."""
_PATIENCE_S = 4.0
_HEADERS = {"x-stainless-read-timeout": f"{_PATIENCE_S + 2:g}"}
"""The server leaves two seconds of it for the way."""
_MULTIPLES = (0.5, 0.8, 1.0, 1.5, 2.0, 4.0, 10.0)
_CLOSED_LOOP = 32
_REFUSED = {429, 503}
_RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. `sent_s`: since the start; `status` 0: the connection broke."""

    sent_s: float
    took_s: float
    status: int
    retry_after_s: int = 1

    @property
    def in_time(self) -> bool:
        """Whether its caller got what was asked for while it waited."""
        return 200 <= self.status < 300 and self.took_s <= _PATIENCE_S


def counted(outcomes: Sequence[Outcome], capacity_per_s: float, seconds: float) -> tuple[float, int, int, int, int]:
    """Goodput as a part of the capacity; requests, and of those refused, late and broken.

    All in a window of so many seconds, after the queue has filled and before the load ends.
    """
    start_s, end_s = _PATIENCE_S, _PATIENCE_S + seconds
    done = sum(one.in_time and start_s <= one.sent_s + one.took_s < end_s for one in outcomes)
    sent = [one for one in outcomes if start_s <= one.sent_s < end_s]
    refused = sum(one.status in _REFUSED and one.took_s < _PATIENCE_S for one in sent)
    broken = sum(one.status == 0 for one in sent)
    late = sum(not one.in_time for one in sent) - refused - broken
    return done / seconds / capacity_per_s, len(sent), refused, late, broken


class Callers:
    """Sends requests to one API process over as many connections as are needed."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/embeddings"
        self._chance = random.Random(1)  # noqa: S311 - the same arrivals every time
        self._texts = queries(64)
        self._number = 0
        self._connections = Connections(url)
        self._began_s = time.perf_counter()

    async def arrive(self, per_s: float, seconds: float) -> list[Outcome]:
        """Requests at random moments, so many in a second on average."""
        self._began_s, at_s, under_way = time.perf_counter(), 0.0, []
        while (at_s := at_s + self._chance.expovariate(per_s)) < seconds:
            await asyncio.sleep(self._began_s + at_s - time.perf_counter())
            under_way.append(asyncio.ensure_future(self._ask()))
        return await asyncio.gather(*under_way)

    async def capacity_per_s(self, seconds: float) -> float:
        """Answers in time to callers who ask again as soon as they are answered."""
        self._began_s = time.perf_counter()
        outcomes: list[Outcome] = []

        async def one() -> None:
            while time.perf_counter() - self._began_s < seconds:
                outcomes.append(await self._ask())

        await asyncio.gather(*(one() for _ in range(_CLOSED_LOOP)))
        return sum(one.in_time for one in outcomes) / max(one.sent_s + one.took_s for one in outcomes)

    async def burst(self, number: int) -> list[tuple[float, float]]:
        """Of so many callers who come within a caller's patience, those who were refused: time told, and the real one.

        Each returns as told until it is let in. The time told is the first one.
        """

        async def insist() -> tuple[float, float] | None:
            await asyncio.sleep(self._chance.random() * _PATIENCE_S)
            told_s, refused_s = 0, 0.0
            while (one := await self._ask()).status in _REFUSED:
                if not told_s:
                    told_s, refused_s = one.retry_after_s, time.perf_counter()
                await asyncio.sleep(one.retry_after_s)
            return (told_s, time.perf_counter() - one.took_s - refused_s) if told_s else None

        ends = await asyncio.gather(*(insist() for _ in range(number)))
        return [each for each in ends if each is not None]

    async def _ask(self) -> Outcome:
        self._number += 1
        text = " ".join([f"{self._number}", *(self._chance.choice(self._texts) for _ in range(_WORDS))])
        request = http_request(self._url, json.dumps({"model": _MODEL, "input": text}), _HEADERS)
        sent_s, status, told = time.perf_counter(), 0, None
        with contextlib.suppress(OSError, EOFError):
            async with asyncio.timeout(4 * _PATIENCE_S):
                answer = await self._connections.ask(request)
            status, told = answer.status, _RETRY_AFTER.search(answer.head)
        took_s = time.perf_counter() - sent_s
        return Outcome(sent_s - self._began_s, took_s, status, int(told[1]) if told else 1)


async def measure(url: str, seconds: float) -> None:
    """All loads, one after the other; prints the tables."""
    callers, rows = Callers(url), []
    await callers.capacity_per_s(4)  # the worker measures its speed
    capacity = await callers.capacity_per_s(seconds)
    for multiple in _MULTIPLES:
        outcomes = await callers.arrive(multiple * capacity, seconds + 2 * _PATIENCE_S)
        share, *counts = counted(outcomes, capacity, seconds)
        rows.append([f"{multiple:g}x", shown(share), *map(str, counts)])
    print(markdown(("load", "goodput, of the capacity", "sent", "refused", "late", "broken"), rows), end="\n\n")
    rows = []
    for multiple in (2.0, 10.0):
        await asyncio.sleep(2 * _PATIENCE_S)  # those who did not return are forgotten when nothing is queued
        number, began_s = math.ceil(multiple * capacity * _PATIENCE_S), time.perf_counter()
        told = await callers.burst(number)
        share = number / capacity / (time.perf_counter() - began_s)
        right = sum(told_s / 2 <= actual_s <= told_s * 2 for told_s, actual_s in told)
        rows.append([f"{multiple:g}x", shown(share), *map(str, (number, len(told), right))])
    print(markdown(("burst", "used, of the capacity", "callers", "refused", "told a right time"), rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.overload", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load that is counted")
    seconds = parser.parse_args(arguments).seconds
    with tempfile.TemporaryDirectory(prefix="embedq-overload-") as folder, contextlib.ExitStack() as stack:
        redis = RedisServer(Path(folder) / "redis")
        stack.callback(redis.stop)
        roles = stack.enter_context(Roles(Path(folder), redis.start().url))
        roles.worker(**_FAKE)
        uvloop.run(measure(roles.api(**_FAKE).base_url, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
