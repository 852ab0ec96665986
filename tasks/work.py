"""What a worker does with one claim: encode its texts, commit the vectors, and give back what it cannot finish."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, ClaimedUnit, Finished, Lane
from tasks.ledger.rows import UnitReference
from tasks.ledger.units import cost
from tasks.model.budget import PassBudget
from tasks.model.cache import VectorCache
from tasks.model.encoder import Encoder
from tasks.model.encoding import encode
from tasks.model.errors import EncoderBroken
from tasks.model.gate import Gate
from tasks.model.types import EncodeStats, ItemVector, TextItem
from tasks.progress import Progress
from tasks.rate import ONLINE_PER_BULK, Rate
from tasks.row_store import RowStore, Written
from tasks.row_units import RowUnit
from tasks.settlement import Settlement
from tasks.stop import Stopping
from tasks.text_units import TextUnit
from tasks.urgency import Urgency

_log = logging.getLogger(__name__)

PORTION_BYTES = 16 * 2**20
"""Of texts and vectors, encoded and committed at a time: a claim is measured by what the model takes, and may hold
hundreds of megabytes of texts that it cuts. Of usual texts and models it is one portion."""

STORAGE_PAUSE_S = 1.0
"""After the storage or Redis was away for a claim; units that need none wait as long, online ones do not."""
_LOOK_EVERY_S = 0.1
_FLOAT32_BYTES = 4


@dataclass(slots=True)
class Totals:
    """What one stream has done since the model was loaded."""

    forward_passes: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0


class Work:
    """Encodes and commits claims. One thread.

    `store`, `passes`, `cache` and `urgency` are shared with the other streams; `broken` too, and set when the encoder
    cannot be used any more. `budget` is of one forward pass.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        budget: PassBudget,
        settlement: Settlement,
        store: RowStore,
        rate: Rate,
        progress: Progress,
        passes: Gate,
        cache: VectorCache,
        urgency: Urgency,
        broken: threading.Event,
        stop: Callable[[], bool],
    ) -> None:
        self._encoder = encoder
        self._budget = budget
        self._settlement = settlement
        self._store = store
        self._rate = rate
        self._progress = progress
        self._passes = passes
        self._cache = cache
        self._urgency = urgency
        self._broken = broken
        self._stop = stop
        self.totals = Totals()

    def __call__(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        """Every unit of the claim is committed, given back, or left to the end of its lease when Redis is away.

        Args:
            claim: what to do.
            claim_online: takes what the online lane has; called between the steps of bulk work: each unit that is read
                from the storage, each piece that is tokenized, each micro-batch.

        Raises:
            EncoderBroken: this process must be replaced. The claim's items have become suspects.
        """
        self._progress.hold(claim.token)
        if claim.lane is Lane.ONLINE:
            self._urgency.seen()
        try:
            self._encode_and_commit(claim, claim_online)
        except Stopping:
            self._settlement.give_back(claim)
        except EncoderBroken:
            # A text may have broken the device, so the attempt counts; a device that is gone fails at the next load.
            self._broken.set()  # before the claim is given back, or another stream would take it in this process
            self._settlement.lose(claim)
            raise
        except Exception as error:  # noqa: BLE001 - MemoryError must never reach Celery, it would stop the whole worker
            _log.error("claim of %d units failed with %s", len(claim.units), type(error).__name__)
            self._settlement.lose(claim)
        finally:
            self._progress.drop(claim.token)

    def _encode_and_commit(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        look = _OnlineLook(self, claim_online, self._stop) if claim.lane is Lane.BULK else None

        def between() -> None:
            if self._stop():
                raise Stopping
            if look is not None:
                look()

        done = 0
        for number, portion in enumerate(self._portions(claim, between)):
            settled = self._encode(claim, number, portion, look, between)
            done += settled
            if settled < len(portion):
                break
        if done < len(claim.units):  # the storage is away, or Redis
            self._settlement.give_back(claim)
            self._pause(claim, claim_online)

    def _portions(self, claim: Claim, between: Callable[[], None]) -> Iterator[list[TextUnit | RowUnit]]:
        """What the units ask, so many at a time that they have `PORTION_BYTES`, or one that has more."""
        portion: list[TextUnit | RowUnit] = []
        held = 0
        for unit in self._read(claim, between):
            size = sum(len(item.text) + _FLOAT32_BYTES * self._encoder.info.dimension for item in unit.items)
            if portion and held + size > PORTION_BYTES:
                yield portion
                portion, held = [], 0
            portion.append(unit)
            held += size
        if portion:
            yield portion

    def _read(self, claim: Claim, between: Callable[[], None]) -> Iterator[TextUnit | RowUnit]:
        """What the units ask; without those whose rows cannot be read now."""
        by_reference: list[tuple[ClaimedUnit, UnitReference]] = []
        for unit in claim.units:
            reference = UnitReference.of_payload(unit.payload)
            if reference is None:
                yield TextUnit.of(unit)
            else:
                by_reference.append((unit, reference))
        stored, looked = self._store.read(by_reference), time.monotonic()
        while True:
            with self._progress.outside():
                found = next(stored, None)
            if found is None:
                return
            yield found
            if time.monotonic() - looked > _LOOK_EVERY_S:  # only a bucket is so slow
                between()
                looked = time.monotonic()

    def _encode(
        self,
        claim: Claim,
        number: int,
        units: Sequence[TextUnit | RowUnit],
        look: "_OnlineLook | None",
        between: Callable[[], None],
    ) -> int:
        """Encodes and commits a portion; how many units are done with: without those that could not be stored now."""
        started, looked_s = time.monotonic(), look.spent_s if look else 0.0

        def most() -> int:
            return self._budget.most if look is None else self._bulk_tokens()

        items = [item for unit in units for item in unit.items]
        vectors, stats = encode(
            self._encoder,
            items,
            max_padded_tokens=most(),
            limit=most,
            gate=self._passes,
            cache=self._cache,
            # Bulk texts come once, and a job of a million would push out what queries repeat: it may only read.
            remember=claim.lane is Lane.ONLINE,
            between=between,
            finished=self._progress.step,
        )
        elapsed = time.monotonic() - started - (look.spent_s - looked_s if look else 0.0)
        self._rate.measured(self._encoded_cost(items, vectors), elapsed)
        done = self._commit(claim, number, units, vectors, stats)
        self._count(stats, len(items))
        return done

    def _bulk_tokens(self) -> int:
        return self._budget.bulk(self._rate.tokens_per_s, urgent=self._urgency.expected)

    def _commit(
        self,
        claim: Claim,
        number: int,
        units: Sequence[TextUnit | RowUnit],
        vectors: Sequence[ItemVector],
        stats: EncodeStats,
    ) -> int:
        texts: list[Finished] = []
        rows: list[Written] = []
        at = 0
        for unit in units:
            own = vectors[at : at + len(unit.items)]
            at += len(own)
            if isinstance(unit, TextUnit):
                texts.append(unit.finished(own))
            else:
                rows.append((unit, unit.outcomes(own)))
        with self._progress.outside():
            # Each portion has parts of its own: one of the same name would replace what is committed already.
            parts = self._store.write(f"{claim.token}/{number}", rows)
        outcomes = self._settlement.commit(
            claim, [*texts, *parts], forward_passes=stats.forward_passes, padded_tokens=stats.padded_tokens
        )
        if outcomes and parts:
            self._store.discard_stale(parts, outcomes[len(texts) :])
        return len(outcomes)

    def _encoded_cost(self, items: Sequence[TextItem], vectors: Sequence[ItemVector]) -> int:
        went_through = {
            (item.options.prompt_name, item.text)
            for item, vector in zip(items, vectors, strict=True)
            if vector.error is None and not vector.cached
        }
        max_tokens = self._encoder.info.max_tokens
        return sum(cost(len(text.encode()), max_tokens) for _, text in went_through)

    def _pause(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        """Waits for the storage. Whoever waits for online work does not."""
        look = _OnlineLook(self, claim_online, self._stop) if claim.lane is Lane.BULK else None
        until = time.monotonic() + STORAGE_PAUSE_S
        while time.monotonic() < until and not self._stop():
            time.sleep(_LOOK_EVERY_S)
            if look is not None:
                look()

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
