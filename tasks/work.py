"""What a worker does with one claim: encode its texts, commit the vectors, and give back what it cannot finish."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, ClaimedUnit, CommitOutcome, Finished, ItemError, Lane, Ledger, operations
from tasks.ledger.units import cost
from tasks.model.cache import VectorCache
from tasks.model.encoder import Encoder
from tasks.model.encoding import encode
from tasks.model.errors import EncoderBroken
from tasks.model.gate import Gate
from tasks.model.types import EncodeOptions, EncodeStats, ItemVector, TextItem
from tasks.progress import Progress
from tasks.rate import Rate

_log = logging.getLogger(__name__)

ONLINE_PER_BULK = 7
"""Between two micro-batches of bulk work the online lane gets at most this many times their duration."""


class Stopping(Exception):
    """A stop was asked for between two micro-batches. Not an error: the word of a clean stop leaving the model."""


@dataclass(slots=True)
class Totals:
    """What one stream has done since the model was loaded."""

    forward_passes: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Budgets of one claim's work. `commit_patience_s`: how long a commit is tried while Redis is away."""

    max_padded_tokens: int
    commit_patience_s: float


class Work:
    """Encodes and commits claims. One thread.

    `passes` and `cache` are shared with the other streams; `broken` too, and set when the encoder cannot be used any
    more.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        encoder: Encoder,
        limits: WorkLimits,
        *,
        rate: Rate,
        progress: Progress,
        passes: Gate,
        cache: VectorCache,
        broken: threading.Event,
        stop: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._encoder = encoder
        self._limits = limits
        self._rate = rate
        self._progress = progress
        self._passes = passes
        self._cache = cache
        self._broken = broken
        self._stop = stop
        self.totals = Totals()

    def __call__(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        """Every unit of the claim is committed, given back, or left to the end of its lease when Redis is away.

        Args:
            claim: what to do.
            claim_online: takes what the online lane has; called between the micro-batches of bulk work.

        Raises:
            EncoderBroken: this process must be replaced. The claim's items have become suspects.
        """
        self._progress.hold(claim.token)
        try:
            self._encode_and_commit(claim, claim_online)
        except Stopping:
            self._give_back(claim)
        except EncoderBroken:
            # A text may have broken the device, so the attempt counts; a device that is gone fails at the next load.
            self._broken.set()  # before the claim is given back, or another stream would take it in this process
            self._lose(claim)
            raise
        except Exception as error:  # noqa: BLE001 - MemoryError must never reach Celery, it would stop the whole worker
            _log.error("claim of %d units failed with %s", len(claim.units), type(error).__name__)
            self._lose(claim)
        finally:
            self._progress.drop(claim.token)

    def _encode_and_commit(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        started = time.monotonic()
        look = _OnlineLook(self, claim_online, self._stop) if claim.lane is Lane.BULK else None

        def between() -> None:
            if self._stop():
                raise Stopping
            if look is not None:
                look()

        items = [item for unit in claim.units for item in _items(unit)]
        vectors, stats = encode(
            self._encoder,
            items,
            max_padded_tokens=self._limits.max_padded_tokens,
            gate=self._passes,
            cache=self._cache,
            # Bulk texts come once, and a job of a million would push out what queries repeat: it may only read.
            remember=claim.lane is Lane.ONLINE,
            between=between,
            finished=self._progress.step,
        )
        elapsed = time.monotonic() - started - (look.spent_s if look else 0.0)
        self._rate.measured(self._encoded_cost(items, vectors), elapsed)
        self._commit(claim, _finished(claim.units, vectors), stats)
        self._count(stats, len(items))

    def _encoded_cost(self, items: Sequence[TextItem], vectors: Sequence[ItemVector]) -> int:
        went_through = {
            (item.options.prompt_name, item.text)
            for item, vector in zip(items, vectors, strict=True)
            if vector.error is None and not vector.cached
        }
        max_tokens = self._encoder.info.max_tokens
        return sum(cost(len(text.encode()), max_tokens) for _, text in went_through)

    def _commit(self, claim: Claim, finished: Sequence[Finished], stats: EncodeStats) -> None:
        operation = operations.commit(
            self._model,
            claim.token,
            finished,
            forward_passes=stats.forward_passes,
            padded_tokens=stats.padded_tokens,
        )
        until = time.monotonic() + self._limits.commit_patience_s
        while True:
            try:
                outcomes = self._ledger.run(operation)
                break
            except RedisUnavailable:
                # The vectors are worth waiting for, as Redis may be back before the lease ends; not when a stop waits.
                if self._stop() or time.monotonic() >= until:
                    _log.warning("Redis stayed away: %d units come back when their lease ends", len(finished))
                    return
                time.sleep(0.1)
        stale = outcomes.count(CommitOutcome.STALE)
        if stale:
            _log.info("%d of %d units were cancelled, expired or taken over meanwhile", stale, len(outcomes))

    def _give_back(self, claim: Claim) -> None:
        # The reply's bell is not needed: whoever stops leaves its slice, and LEAVE rings for ready work.
        self._try(operations.release(self._model, claim.token))

    def _lose(self, claim: Claim) -> None:
        self._try(operations.lose(self._model, claim.token))

    def _try(self, operation: operations.Operation[bool]) -> None:
        try:
            self._ledger.run(operation)
        except RedisUnavailable:
            _log.warning("Redis is away: a claim comes back when its lease ends")

    def _count(self, stats: EncodeStats, items: int) -> None:
        self.totals.forward_passes += stats.forward_passes
        self.totals.items += items
        self.totals.tokens += stats.tokens
        self.totals.padded_tokens += stats.padded_tokens


class _OnlineLook:
    """Serves the online lane between two micro-batches of bulk work, without starving the bulk work."""

    def __init__(self, work: Work, claim_online: Callable[[], Claim], stop: Callable[[], bool]) -> None:
        self._work = work
        self._claim_online = claim_online
        self._stop = stop
        self._resumed = time.monotonic()
        self.spent_s = 0.0

    def __call__(self) -> None:
        looked = time.monotonic()
        allowance = ONLINE_PER_BULK * (looked - self._resumed)
        while time.monotonic() - looked <= allowance and not self._stop():
            try:
                claim = self._claim_online()
            except RedisUnavailable:
                break
            if not claim.units:
                break
            self._work(claim, self._claim_online)
        self._resumed = time.monotonic()
        self.spent_s += self._resumed - looked


def _items(unit: ClaimedUnit) -> list[TextItem]:
    o = unit.options
    options = EncodeOptions(
        prompt_name=o.prompt_name, dimensions=o.dimensions, normalize=o.normalize, truncate=o.truncate
    )
    return [TextItem(text, options) for text in unit.texts()]


def _finished(units: Sequence[ClaimedUnit], vectors: Sequence[ItemVector]) -> list[Finished]:
    finished, at = [], 0
    for unit in units:
        finished.append(_finish(unit, vectors[at : at + unit.items]))
        at += unit.items
    return finished


def _finish(unit: ClaimedUnit, items: Sequence[ItemVector]) -> Finished:
    return Finished(
        unit=unit,
        vectors=_rows(items),
        tokens=sum(item.tokens for item in items),
        errors={
            unit.first + i: ItemError(item.error.code, item.error.message)
            for i, item in enumerate(items)
            if item.error is not None
        },
        truncated=[unit.first + i for i, item in enumerate(items) if item.truncated and item.error is None],
    )


def _rows(items: Sequence[ItemVector]) -> bytes:
    """Little-endian float32 rows of one unit; a failed item is a row of NaN; empty when all failed."""
    found = next((item.vector for item in items if item.vector is not None), None)
    if found is None:
        return b""
    rows = np.full((len(items), len(found)), np.nan, dtype="<f4")
    for row, item in zip(rows, items, strict=True):
        if item.vector is not None:
            row[:] = item.vector
    return rows.tobytes()
