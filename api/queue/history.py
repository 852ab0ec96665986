"""The last hour in figures: counted in memory by each process, added up over the processes through Redis.

Time is Redis's clock: several hosts may serve, and a step must be the same one for all of them. A process writes what
it counted once per step. Nothing is written on the path of a request, and what cannot be written is lost: a process
that restarts loses the step that runs, an outage of Redis leaves a gap.
"""

import asyncio
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.served_models import ServedModels
from tasks.errors import reason
from tasks.ledger import AsyncLedger
from tasks.ledger.overview import ServedModel
from tasks.records.history import (
    MAX_STEPS,
    STEP_S,
    HistoryStep,
    ProcessCounts,
    SharedFigures,
    read_steps,
    write_step,
)

_log = logging.getLogger(__name__)

SYNCHRONOUS = frozenset({"/v1/embeddings", "/v1/embeddings/", "/embeddings", "/embeddings/", "/embed", "/embed/", "/"})
"""Paths of the POST routes that answer with vectors."""
_FAILED_IN_TEIS_FORM = {424, 429}
"""Where other routes answer 500 and 503."""
BUCKETS_PER_DOUBLING = 8
"""Of latencies: a bucket is 9 % wide, so a percentile is 4.4 % off at most."""
_SHORTEST_S = 1e-6
_SETTLED_S = 2.0
"""After a step's end, until all processes have written it."""
_FINAL_STEPS = 3
"""A step that ended so long ago changes no more: a process that stood still may have written late."""
_STEPS_AT_ONCE = 40
"""Per call: adding up an hour of four processes takes some 30 ms, and the event loop must not stand still for that."""
_EARLY = 0.05
"""Of a step: by as much a timer may seem early after the clock was set anew."""


class RequestCounts:
    """The synchronous requests of one process since they were last taken."""

    def __init__(self) -> None:
        self._queries: Counter[int] = Counter()
        self._errors = 0

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one request. On the path of each, so it does no more than this."""
        if method != "POST" or route not in SYNCHRONOUS:
            return
        if status == 200:  # noqa: PLR2004 - with vectors; 202 is a task
            self._queries[math.floor(BUCKETS_PER_DOUBLING * math.log2(seconds or _SHORTEST_S))] += 1
        elif status >= 500 or status in _FAILED_IN_TEIS_FORM:  # noqa: PLR2004
            self._errors += 1

    def take(self) -> tuple[Mapping[int, int], int]:
        """Queries by bucket and errors; counting begins anew."""
        taken = self._queries, self._errors
        self._queries, self._errors = Counter(), 0
        return taken


@dataclass(frozen=True, slots=True)
class Figures:
    """One step in figures, of all processes together. None: no data.

    Attributes:
        queries: synchronous requests per second that were answered with vectors.
        passages: texts per second whose vectors were committed.
        p50_ms: latency of queries, as `p99_ms`.
        backlog_seconds: work of the model with the most.
        errors: synchronous requests per second that failed through no fault of the caller.
    """

    queries: float | None = None
    passages: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    backlog_seconds: float | None = None
    errors: float | None = None

    @classmethod
    def from_step(cls, step: HistoryStep) -> "Figures":
        """The sum over the processes, and what they see alike."""
        shared = step.shared
        figures = cls(
            passages=shared.passages if shared else None,
            backlog_seconds=shared.backlog_s if shared else None,
        )
        if not step.processes:
            return figures  # a step without a process is one without data, not one without requests
        latencies: Counter[int] = Counter()
        for process in step.processes:
            latencies.update(process.queries)
        return replace(
            figures,
            queries=sum(sum(process.queries.values()) / _per(process) for process in step.processes),
            errors=sum(process.errors / _per(process) for process in step.processes),
            p50_ms=percentile_ms(latencies, 0.5),
            p99_ms=percentile_ms(latencies, 0.99),
        )


def _per(process: ProcessCounts) -> float:
    # One that started within the step has not been asked before; one that stood still counted for longer.
    return max(STEP_S, process.seconds)


def percentile_ms(latencies: Mapping[int, int], part: float) -> float | None:
    """The latency that this part of the queries does not exceed, to 4.4 %; None without queries."""
    rank = math.ceil(sum(latencies.values()) * part)
    for bucket in sorted(latencies):
        rank -= latencies[bucket]
        if rank <= 0:
            return float(1000 * 2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING))
    return None


class History:
    """Writes what one process counts, and reads what all have written.

    Args:
        ledger: with the Redis that keeps the steps.
        registry: knows what all processes see alike.
        counts: of this process.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        registry: ServedModels,
        counts: RequestCounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._counts = counts
        self._clock = clock
        self._process = secrets.token_hex(6)
        self._redis_ahead_s: float | None = None
        """Of `clock`."""
        self._began_s = clock()
        self._written: int | None = None
        self._before: _Totals | None = None
        self._final: dict[int, Figures] = {}
        self._failing = False

    async def run(self) -> None:
        """Writes each step at its end, for ever. A failure leaves a gap."""
        while True:
            try:
                await self.write()
            except Exception as error:  # noqa: BLE001 - the history may have gaps; nothing else may suffer
                if not self._failing:
                    _log.warning("the history of the service has a gap: %s", reason(error))
                self._failing = True
                self._before = None
            else:
                self._failing = False
            await asyncio.sleep(STEP_S - (self._now_s() or self._clock()) % STEP_S)

    async def write(self) -> None:
        """Writes the step that has just ended, unless it is written or this process does not know the time yet.

        Raises:
            EmbedqError: it could not be written, and is lost.
        """
        now_s = self._now_s()
        if now_s is None:
            await self._read(0, -1)
            self._counts.take()
            self._began_s, self._before = self._clock(), _Totals.now(self._registry)
            return
        step = math.floor(now_s / STEP_S + _EARLY) - 1
        if step == self._written:
            return
        queries, errors = self._counts.take()
        began_s, self._began_s = self._began_s, self._clock()
        before, self._before = self._before, _Totals.now(self._registry)
        seconds = self._began_s - began_s
        # A process that has just started leaves what all see alike to others: the last one to write it holds.
        knows = before is not None and self._registry.redis_up and seconds >= STEP_S / 2
        shared = self._before.since(before, self._registry) if before is not None and knows else None
        counts = ProcessCounts(round(seconds, 3), queries, errors)
        self._written = step
        self._set_clock(await self._ledger.run(write_step(step, self._process, counts, shared)))

    async def read(self, steps: int) -> tuple[int, Sequence[Figures]]:
        """The last steps that all processes have written, the oldest first, and the number of the first one.

        Raises:
            RedisUnavailable: no answer.
        """
        if self._now_s() is None:
            await self._read(0, -1)
        last = self.newest()
        wanted = range(last - steps + 1, last + 1)
        figures = {step: self._final[step] for step in wanted if step in self._final}
        missing = [step for step in wanted if step not in figures]
        if missing:
            for first in range(missing[0], missing[-1] + 1, _STEPS_AT_ONCE):
                figures |= await self._read(first, min(first + _STEPS_AT_ONCE - 1, missing[-1]))
        self._final = {step: one for step, one in self._final.items() if last - MAX_STEPS < step <= last}
        return wanted[0], [figures[step] for step in wanted]

    def newest(self) -> int:
        """The number of the newest step that all have written; by this host's clock until Redis's is known."""
        now_s = self._now_s()
        return math.floor(((time.time() if now_s is None else now_s) - _SETTLED_S) / STEP_S) - 1

    async def _read(self, first: int, last: int) -> Mapping[int, Figures]:
        read = await self._ledger.run(read_steps(first, last))
        self._set_clock(read.now_s)
        figures = {first + index: Figures.from_step(step) for index, step in enumerate(read.steps)}
        final = math.floor(read.now_s / STEP_S) - 1 - _FINAL_STEPS
        self._final |= {step: one for step, one in figures.items() if step <= final}
        return figures

    def _set_clock(self, redis_s: float) -> None:
        self._redis_ahead_s = redis_s - self._clock()

    def _now_s(self) -> float | None:
        """By Redis's clock, in Unix seconds; None until it is known."""
        return None if self._redis_ahead_s is None else self._clock() + self._redis_ahead_s


@dataclass(frozen=True, slots=True)
class _Totals:
    """What only grows, at one moment: texts that were committed."""

    seen_at: float
    items: int

    @classmethod
    def now(cls, registry: ServedModels) -> "_Totals":
        overviews = registry.overviews.values()
        return cls(
            seen_at=registry.seen_at or 0.0,
            items=sum(overview.counters.get("committed_items", 0) for overview in overviews),
        )

    def since(self, before: "_Totals", registry: ServedModels) -> SharedFigures:
        seconds, items = self.seen_at - before.seen_at, self.items - before.items
        # Longer: Redis was away in between. Less than nothing: Redis has lost its data.
        passages = items / seconds if 0 < seconds < 2 * STEP_S and items >= 0 else None
        rates = [(name, ServedModel.from_overview(name, o).rate) for name, o in registry.overviews.items()]
        work = [sum(registry.overviews[name].backlog_cost.values()) / rate for name, rate in rates]
        return SharedFigures(passages=passages, backlog_s=max(work, default=0.0))
