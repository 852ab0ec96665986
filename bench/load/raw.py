"""The load generator that needs nothing installed: `python -m bench.load.raw` reads a `Load`, prints a `LoadResult`.

In a closed loop it starts no request after the time is over but waits for the answers that are due, and counts the time
until the last of them: a slow server is neither spared the work it had begun nor cheated of it. In an open loop a
latency counts from the moment at which the request was due, so that a server that stands still cannot hide it.
"""

import asyncio
import contextlib
import math
import sys
import time
from collections import Counter

import uvloop

from bench.load.connection import Broken, Connection
from bench.load.percentile import percentile
from bench.load.plan import Load, LoadResult

_CONNECT_TIMEOUT_S = 10.0
_PAUSE_S = 0.1
"""After a failure: a server that refuses or is gone must not make the generator burn the core that it needs."""

_SHOWN_OF_REFUSAL = 300


class Generator:
    """Sends one load and collects latencies."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._requests = load.requests()
        self._next = 0
        self._idle: list[Connection] = []
        self._latencies_s: list[float] = []
        self._reasons: Counter[str] = Counter()
        self._refusal = ""
        self._started = 0.0
        self._last_answer = 0.0

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
        if late:
            self._reasons["no answer in time"] += len(late)
        for task in late:
            task.cancel()
        for connection in self._idle:
            connection.close()
        return self._result()

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
            connection = await self._connection()
            status = await connection.ask(request)
        except (OSError, Broken, TimeoutError) as error:
            await self._failed(type(error).__name__)
            return
        self._last_answer = time.perf_counter()
        self._idle.append(connection)
        if 200 <= status < 300:
            self._latencies_s.append(self._last_answer - due)
        else:
            self._refusal = self._refusal or connection.body[:_SHOWN_OF_REFUSAL].decode(errors="replace")
            await self._failed(f"status {status}")

    async def _failed(self, reason: str) -> None:
        self._reasons[reason] += 1
        await asyncio.sleep(_PAUSE_S)

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        host, port = self._load.address
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(Connection, host, port)
        return connection

    def _result(self) -> LoadResult:
        ms = sorted(1000 * latency for latency in self._latencies_s)
        return LoadResult(
            requests=len(ms),
            errors=self._reasons.total(),
            seconds=self._last_answer - self._started,
            p50_ms=percentile(ms, 50),
            p90_ms=percentile(ms, 90),
            p99_ms=percentile(ms, 99),
            max_ms=percentile(ms, 100),
            reasons=dict(self._reasons),  # `asdict` breaks a Counter
            refusal=self._refusal,
        )


def main() -> int:
    """Reads the load from stdin, prints the result; the exit code."""
    load = Load.from_json(sys.stdin.buffer.read())
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(uvloop.run(Generator(load).run()).to_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
