"""What a model worker does with one claim: encode its texts, commit the vectors, give back what it cannot finish."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tasks.drain.commit import Committer
from tasks.drain.lanes import SMALL_PER_LARGE, OnlineCheck, RecentWork
from tasks.drain.rate import MeasuredRate, longest_claim_s
from tasks.drain.work import ClaimOnline, ClaimSize
from tasks.embedding.rows import RowStore
from tasks.embedding.speed import PassBudget
from tasks.embedding.units import UnitTexts, rows_of
from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, EncoderBroken, EncodeStats, ModelInfo, Text
from tasks.gate import ALONE, Gate
from tasks.item import FLOAT32_BYTES, Vector, cost
from tasks.ledger import Claim, ClaimedUnit, CommitOutcome, Lane
from tasks.pieces import weighed
from tasks.process.liveness import Progress
from tasks.process.stop import Stopping
from tasks.storage.row_file import UnitReference
from worker_config.subject import SpanAttributes, about_tasks

_log = logging.getLogger(__name__)

PORTION_BYTES = 16 * 2**20
"""Of texts and vectors, encoded and committed at a time: a claim is measured by what the model takes, and may hold
hundreds of megabytes of texts that it cuts. On two cores a claim of usual texts is one portion."""

STORAGE_PAUSE_S = 1.0
"""After the storage was away for a claim; units that need none wait as long, online ones do not."""
_CHECK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class EmbeddingContext:
    """What the streams of a process share.

    Attributes:
        encoder: the loaded model.
        budget: of one forward pass.
        unit_s: of work in one unit.
        committer: ends claims.
        store: where the rows of batches are.
        passes: to be entered by each stream that touches a text.
        broken: set when the encoder cannot be used any more.
        stop: whether to stop.
        online: work of the online lane, beside which claims of bulk work are smaller.
        small: small units of it, beside which passes of bulk work and of large units are.
    """

    encoder: Encoder
    budget: PassBudget
    unit_s: float
    committer: Committer
    store: RowStore
    passes: Gate
    broken: threading.Event
    stop: Callable[[], bool]
    online: RecentWork = field(default_factory=RecentWork)
    small: RecentWork = field(default_factory=RecentWork)


@dataclass(slots=True)
class Totals:
    """What one stream has done since the model was loaded."""

    forward_passes: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0

    def add(self, stats: EncodeStats, items: int) -> None:
        """So many more texts are encoded, and what they took."""
        self.forward_passes += stats.forward_passes
        self.items += items
        self.tokens += stats.tokens
        self.padded_tokens += stats.padded_tokens


@dataclass(slots=True)
class _ClaimRun:
    """A claim on its way.

    Attributes:
        claim: with its units.
        check_online: between two steps; None: nothing interrupts this claim.
        began: by the monotonic clock.
        portions: how many are committed.
        cost: estimated tokens that went through the model.
        seconds: that they took.
    """

    claim: Claim
    check_online: OnlineCheck | None
    began: float = field(default_factory=time.monotonic)
    portions: int = 0
    cost: int = 0
    seconds: float = 0.0


class EmbeddingWork:
    """Encodes and commits claims. One thread.

    Args:
        context: shared with the other streams.
        rate: how fast this stream is; sizes its claims.
    """

    def __init__(self, context: EmbeddingContext, rate: MeasuredRate) -> None:
        self._context = context
        self._encoder, self._store, self._stop = context.encoder, context.store, context.stop
        self._committer, self._budget = context.committer, context.budget
        self._longest_s = longest_claim_s(context.unit_s)
        """After it a claim is given back where it is."""
        self.rate = rate
        self.progress = Progress()
        self.totals = Totals()

    def claim_size(self, left_s: float) -> ClaimSize:
        """See `Work.claim_size`."""
        return self.rate.claim_size(left_s, self._context.unit_s, urgent=self._context.online.expected)

    def __call__(self, claim: Claim, claim_online: ClaimOnline) -> bool:
        """See `Work.__call__`. False when the storage is away for some units.

        The online lane is served between the steps of bulk work: units that a bucket is slow to give, pieces that are
        tokenized, micro-batches. Between the steps of large units of the online lane, its small ones are. A suspect is
        encoded without the gate: its stream is alone.

        Raises:
            EncoderBroken: this process must be replaced. The claim's items have become suspects.
        """
        with about_tasks(claim.task_ids):
            return self._end(claim, claim_online)

    def _end(self, claim: Claim, claim_online: ClaimOnline) -> bool:
        self.progress.hold(claim.token)
        if claim.lane is Lane.ONLINE:
            self._context.online.seen()
            if not self._is_large(claim):
                self._context.small.seen()
        try:
            return self._encode_and_commit(claim, claim_online)
        except Stopping:
            self._committer.give_back(claim)
        except EncoderBroken:
            if self._context.broken.is_set():  # by a claim within this one, or beside it
                self._committer.give_back(claim)
                raise
            # A text may have broken the device, so the attempt counts; a device that is gone fails at the next load.
            self._context.broken.set()  # before the claim is given back, or another stream would take it here
            self._committer.lose(claim)
            raise
        except Exception as error:  # noqa: BLE001 - MemoryError must never reach Celery, it would stop the whole worker
            _log.error("claim of %d units failed with %s", len(claim.units), type(error).__name__)
            self._committer.lose(claim)
        finally:
            self.progress.drop(claim.token)
        return True

    def _encode_and_commit(self, claim: Claim, claim_online: ClaimOnline) -> bool:
        run, done, late = _ClaimRun(claim, self._check_beside(claim, claim_online)), 0, False
        try:
            for portion in weighed(self._read(run), self._bytes, PORTION_BYTES):
                if run.portions:
                    self._between(run, _CHECK_EVERY_S)
                committed = self._encode(run, portion)
                if committed is None:
                    return True
                done += committed
                late = time.monotonic() - run.began > self._longest_s
                if committed < len(portion) or late:
                    break
        finally:
            # Once for the claim: with once for each portion, a claim of long texts would weigh more than others.
            self.rate.measured(run.cost, run.seconds)
        if done == len(claim.units):
            return True
        self._committer.give_back(claim)
        if not late and not claim.suspect:  # it is the storage that is away
            self._pause(claim, claim_online)
        return late

    def _is_large(self, claim: Claim) -> bool:
        # As the ledger says it (`claim` in the Lua library), by the size that it was asked for: the rate changes when a
        # claim ends. Large units have a claim to themselves.
        first = claim.units[0]
        return first.items > 1 and first.cost >= self.rate.online_cost(self._context.unit_s)

    def _check_beside(self, claim: Claim, claim_online: ClaimOnline) -> OnlineCheck | None:
        """What the claim stops for between two steps; None: nothing."""
        if claim.suspect:
            return None
        if claim.lane is Lane.BULK:
            return OnlineCheck(self, claim_online, self._stop)
        if not self._is_large(claim):
            return None
        return OnlineCheck(self, partial(claim_online, small_only=True), self._stop, times=SMALL_PER_LARGE)

    def _between(self, run: _ClaimRun, most_s: float = math.inf) -> None:
        if self._stop():
            raise Stopping
        if run.check_online is not None:
            run.check_online(most_s)

    def _bytes(self, unit: UnitTexts) -> int:
        """Of its texts in memory, at most, and of their vectors."""
        texts = [text.text for text in unit.texts]
        of_texts = sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
        return of_texts + len(texts) * FLOAT32_BYTES * self._encoder.info.dimension

    def _read(self, run: _ClaimRun) -> Iterator[UnitTexts]:
        """The units with their texts; without those whose rows cannot be read now."""
        by_reference: list[tuple[ClaimedUnit, UnitReference, int]] = []
        for unit in run.claim.units:
            reference = rows_of(unit)
            if reference is None:
                yield UnitTexts.from_unit(unit)
            else:
                by_reference.append((unit, reference, unit.items))
        row_units, checked = self._store.read(by_reference), time.monotonic()
        while True:
            with self.progress.outside():
                read = next(row_units, None)
            if read is None:
                return
            yield UnitTexts(*read, rows_of(read[0]))
            if time.monotonic() - checked > _CHECK_EVERY_S:  # only a bucket is so slow
                self._between(run, _CHECK_EVERY_S)
                checked = time.monotonic()

    def _encode(self, run: _ClaimRun, units: Sequence[UnitTexts]) -> int | None:
        """Encodes and commits a portion; how many units are done with: without those that could not be stored now.

        None when Redis stayed away: the rest of the claim is given back when it is back.
        """
        check_online = run.check_online
        if check_online is not None:
            check_online.resume()

        began, online_s = time.monotonic(), check_online.spent_s if check_online else 0.0
        texts, began_ns = [text for unit in units for text in unit.texts], time.time_ns()
        vectors, stats = encode(
            self._encoder,
            texts,
            max_padded_tokens=self._budget.most if check_online is None else self._interrupted_tokens(),
            gate=ALONE if run.claim.suspect else self._context.passes,
            between=lambda: self._between(run),
            finished=self.progress.step,
        )
        run.seconds += time.monotonic() - began - (check_online.spent_s - online_s if check_online else 0.0)
        run.cost += self._encoded_cost(texts, vectors)
        if run.claim.trace is not None:
            of = {unit.unit.task_id for unit in units}
            run.claim.trace.add("encode", began_ns, _described(self._encoder.info, texts, stats), of=of)
        done = self._commit(run, units, vectors, stats)
        run.portions += 1
        self.totals.add(stats, len(texts))
        return done

    def _interrupted_tokens(self) -> int:
        return self._budget.interrupted(self.rate.tokens_per_s, urgent=self._context.small.expected)

    def _commit(
        self, run: _ClaimRun, units: Sequence[UnitTexts], vectors: Sequence[Vector], stats: EncodeStats
    ) -> int | None:
        outcomes, at = list[list[Vector]](), 0
        for unit in units:
            outcomes.append(unit.outcomes(vectors[at : at + len(unit.texts)]))
            at += len(unit.texts)
        rows = [(n, unit.reference, outcomes[n]) for n, unit in enumerate(units) if unit.reference is not None]
        with self.progress.outside():
            # Each portion has parts of its own: one of the same name would replace what is committed already.
            parts = dict(self._store.write(f"{run.claim.token}/{run.portions}", rows))
        done = [n for n, unit in enumerate(units) if unit.reference is None or n in parts]
        finished = [units[n].finished(outcomes[n], parts.get(n)) for n in done]
        with self.progress.outside():  # while Redis is away it takes up to a lease
            committed = self._committer.commit(
                run.claim, finished, forward_passes=stats.forward_passes, padded_tokens=stats.padded_tokens
            )
        if finished and not committed:
            return None
        # Of tasks that have ended, or that another worker has.
        kept = {
            parts[n].part
            for n, end in zip(done, committed, strict=True)
            if n in parts and end is not CommitOutcome.STALE
        }
        self._store.discard({part.part for part in parts.values()} - kept)
        return len(finished)

    def _encoded_cost(self, items: Sequence[Text], vectors: Sequence[Vector]) -> int:
        went_through = {
            (item.options.prompt_name, item.text): item
            for item, vector in zip(items, vectors, strict=True)
            if vector.error is None
        }
        return sum(map(self._cost_of, went_through.values()))

    def _cost_of(self, item: Text) -> int:
        return cost(item.text, self._encoder.info.max_tokens)

    def _pause(self, claim: Claim, claim_online: ClaimOnline) -> None:
        """Waits for the storage. Callers of online work do not wait with it."""
        check_online = OnlineCheck(self, claim_online, self._stop) if claim.lane is Lane.BULK else None
        until = time.monotonic() + STORAGE_PAUSE_S
        while time.monotonic() < until and not self._stop():
            time.sleep(_CHECK_EVERY_S)
            if check_online is not None:
                check_online()


def _described(info: ModelInfo, items: Sequence[Text], stats: EncodeStats) -> SpanAttributes:
    return {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": info.model,
        "gen_ai.usage.input_tokens": stats.tokens,
        "embedq.texts": len(items),
        "embedq.tokens.padded": stats.padded_tokens,
        "embedq.forward_passes": stats.forward_passes,
        "embedq.device": info.device,
    }
