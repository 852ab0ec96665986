"""What a worker does with one claim: encode its texts, commit the vectors, and give back what it cannot finish."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tasks.drain.commit import Settlement
from tasks.drain.lanes import OnlineLook, Urgency
from tasks.drain.rate import Rate
from tasks.embedding.half_done import HalfDone, TurnOver
from tasks.embedding.rows import RowStore, Written
from tasks.embedding.units import RowUnit, TextUnit
from tasks.gate import ALONE, Gate
from tasks.item import FLOAT32_BYTES, cost
from tasks.ledger import Claim, ClaimedUnit, Finished, Lane
from tasks.model.batching import PassBudget
from tasks.model.cache import VectorCache
from tasks.model.encoder import Encoder, EncoderBroken, EncodeStats, ItemVector, TextItem
from tasks.model.encoding import encode
from tasks.pieces import weighed
from tasks.process.liveness import Progress
from tasks.process.stop import Stopping
from tasks.storage.row_file import UnitReference

_log = logging.getLogger(__name__)

PORTION_BYTES = 16 * 2**20
"""Of texts and vectors, encoded and committed at a time: a claim is measured by what the model takes, and may hold
hundreds of megabytes of texts that it cuts. On two cores a claim of usual texts is one portion."""

STORAGE_PAUSE_S = 1.0
"""After the storage was away for a claim; units that need none wait as long, online ones do not."""
_LOOK_EVERY_S = 0.1


@dataclass(slots=True)
class Totals:
    """What one stream has done since the model was loaded."""

    forward_passes: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0


class Work:
    """Encodes and commits claims. One thread.

    `store`, `passes`, `cache`, `half_done` and `urgency` are shared with the other streams; `broken` too, and set when
    the encoder cannot be used any more. `budget` is of one forward pass. After `longest_s` a claim is given back where
    it is, and a suspect when its turn is over.
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
        half_done: HalfDone,
        urgency: Urgency,
        broken: threading.Event,
        longest_s: float,
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
        self._half_done = half_done
        self._urgency = urgency
        self._broken = broken
        self._longest_s = longest_s
        self._stop = stop
        self.totals = Totals()

    def __call__(self, claim: Claim, claim_online: Callable[[], Claim]) -> bool:
        """Every unit of the claim is committed or given back; when Redis is away, as soon as it is back.

        False when the storage is away for some of them. A suspect is encoded without the gate: its stream is alone.

        Args:
            claim: what to do.
            claim_online: takes what the online lane has; called between the steps of bulk work: units that a bucket
                is slow to give, pieces that are tokenized, micro-batches.

        Raises:
            EncoderBroken: this process must be replaced. The claim's items have become suspects.
        """
        self._progress.hold(claim.token)
        if claim.lane is Lane.ONLINE:
            self._urgency.seen()
        try:
            return self._encode_and_commit(claim, claim_online)
        except (Stopping, TurnOver):
            self._settlement.give_back(claim)
        except EncoderBroken:
            if self._broken.is_set():  # by a claim within this one, or beside it
                self._settlement.give_back(claim)
                raise
            # A text may have broken the device, so the attempt counts; a device that is gone fails at the next load.
            self._broken.set()  # before the claim is given back, or another stream would take it in this process
            self._settlement.lose(claim)
            raise
        except Exception as error:  # noqa: BLE001 - MemoryError must never reach Celery, it would stop the whole worker
            _log.error("claim of %d units failed with %s", len(claim.units), type(error).__name__)
            self._settlement.lose(claim)
        finally:
            self._progress.drop(claim.token)
        return True

    def _encode_and_commit(self, claim: Claim, claim_online: Callable[[], Claim]) -> bool:
        interrupted = claim.lane is Lane.BULK and not claim.suspect
        look = OnlineLook(self, claim_online, self._stop) if interrupted else None
        run, done, late = _Run(claim, look), 0, False
        try:
            for portion in weighed(self._read(run), self._bytes, PORTION_BYTES):
                if run.portions:
                    self._between(run, _LOOK_EVERY_S)
                settled = self._encode(run, portion)
                if settled is None:
                    return True
                done += settled
                late = time.monotonic() - run.began > self._longest_s
                if settled < len(portion) or late:
                    break
        finally:
            self._rate.measured(run.cost, run.seconds)
        if done == len(claim.units):
            return True
        self._settlement.give_back(claim)
        if not late and not claim.suspect:  # it is the storage that is away
            self._pause(claim, claim_online)
        return late

    def _between(self, run: "_Run", most_s: float = math.inf) -> None:
        if self._stop():
            raise Stopping
        if run.look is not None:
            run.look(most_s)

    def _bytes(self, unit: TextUnit | RowUnit) -> int:
        """Of its texts in memory, at most, and of their vectors."""
        texts = (item.text for item in unit.items)
        of_texts = sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
        return of_texts + len(unit.items) * FLOAT32_BYTES * self._encoder.info.dimension

    def _read(self, run: "_Run") -> Iterator[TextUnit | RowUnit]:
        """What the units ask; without those whose rows cannot be read now."""
        by_reference: list[tuple[ClaimedUnit, UnitReference]] = []
        for unit in run.claim.units:
            reference = UnitReference.from_payload(unit.payload)
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
                self._between(run, _LOOK_EVERY_S)
                looked = time.monotonic()

    def _encode(self, run: "_Run", units: Sequence[TextUnit | RowUnit]) -> int | None:
        """Encodes and commits a portion; how many units are done with: without those that could not be stored now.

        None when Redis stayed away: what the claim still holds is given back when it is back.
        """
        look = run.look
        if look is not None:
            look.resume()

        def most() -> int:
            return self._budget.most if look is None else self._bulk_tokens()

        def timed(some: Sequence[TextItem]) -> tuple[list[ItemVector], EncodeStats]:
            started, looked_s = time.monotonic(), look.spent_s if look else 0.0
            vectors, stats = encode(
                self._encoder,
                some,
                max_padded_tokens=most(),
                limit=most,
                gate=ALONE if run.claim.suspect else self._passes,
                cache=self._cache,
                # Bulk texts come once, and a job of a million would push out what queries repeat: it may only read.
                remember=run.claim.lane is Lane.ONLINE,
                between=lambda: self._between(run),
                finished=self._progress.step,
            )
            run.seconds += time.monotonic() - started - (look.spent_s - looked_s if look else 0.0)
            run.cost += self._encoded_cost(some, vectors)
            return vectors, stats

        items = [item for unit in units for item in unit.items]
        if run.claim.suspect:
            name = units[0].unit.task_id, units[0].unit.unit_id
            vectors, stats = self._half_done.encode(name, items, timed, weight=self._cost_of, most=self._budget.most)
        else:
            vectors, stats = timed(items)
        done = self._commit(run, units, vectors, stats)
        run.portions += 1
        self._count(stats, len(items))
        return done

    def _bulk_tokens(self) -> int:
        return self._budget.bulk(self._rate.tokens_per_s, urgent=self._urgency.expected)

    def _commit(
        self, run: "_Run", units: Sequence[TextUnit | RowUnit], vectors: Sequence[ItemVector], stats: EncodeStats
    ) -> int | None:
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
            parts = self._store.write(f"{run.claim.token}/{run.portions}", rows)
        finished = [*texts, *parts]
        with self._progress.outside():  # while Redis is away it takes up to a lease
            outcomes = self._settlement.commit(
                run.claim, finished, forward_passes=stats.forward_passes, padded_tokens=stats.padded_tokens
            )
        if finished and not outcomes:
            return None
        if parts:
            self._store.discard_stale(parts, outcomes[len(texts) :])
        return len(finished)

    def _encoded_cost(self, items: Sequence[TextItem], vectors: Sequence[ItemVector]) -> int:
        went_through = {
            (item.options.prompt_name, item.text): item
            for item, vector in zip(items, vectors, strict=True)
            if vector.error is None and not vector.cached
        }
        return sum(map(self._cost_of, went_through.values()))

    def _cost_of(self, item: TextItem) -> int:
        return cost(item.text, self._encoder.info.max_tokens)

    def _pause(self, claim: Claim, claim_online: Callable[[], Claim]) -> None:
        """Waits for the storage. Whoever waits for online work does not."""
        look = OnlineLook(self, claim_online, self._stop) if claim.lane is Lane.BULK else None
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


@dataclass(slots=True)
class _Run:
    """A claim on its way. `cost` in estimated tokens that went through the model, in so many `seconds`."""

    claim: Claim
    look: OnlineLook | None
    began: float = field(default_factory=time.monotonic)
    portions: int = 0
    cost: int = 0
    seconds: float = 0.0
