"""What one thread of a worker process works with, and all of them together.

They overlap: while one stream waits for Redis or reads texts, another one keeps the model busy.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tasks.drain.commit import Settlement
from tasks.drain.lanes import Urgency
from tasks.drain.loop import Drain, DrainLimits, JointSlice
from tasks.drain.rate import Rate, longest_claim_s
from tasks.drain.suspects import Suspects
from tasks.drain.wakeup import Wakeup
from tasks.embedding.claims import Work
from tasks.embedding.half_done import HalfDone
from tasks.embedding.rows import RowStore
from tasks.gate import Gate
from tasks.ledger import Ledger
from tasks.model.batching import PassBudget
from tasks.model.cache import VectorCache
from tasks.model.encoder import Encoder, EncoderBroken, TextItem
from tasks.model.encoding import encode
from tasks.process.liveness import Progress

# How fast is this worker? Measured once, in the unit of admission and claims: estimated tokens.

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024
_BYTES_PER_TOKEN = 4


def measure_rate(encoder: Encoder, *, max_padded_tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimated tokens per second, above 0.

    A text's estimate is ceil(UTF-8 bytes / 4), at least 1 and at most the model's maximum: the formula by which costs
    are charged elsewhere, so that cost divided by rate is seconds. Rounds double from one text until one of them takes
    a quarter of a second; the earlier ones warm the model up. A slow model is therefore not asked for a long round.
    """
    texts = 1
    while True:
        round_texts = [_passage(number) for number in range(texts)]
        started = clock()
        encode(encoder, [TextItem(text) for text in round_texts], max_padded_tokens=max_padded_tokens)
        elapsed_s = clock() - started
        if elapsed_s >= _LONG_ENOUGH_S or texts >= _MAX_TEXTS:
            return sum(_estimate(text, encoder.info.max_tokens) for text in round_texts) / elapsed_s
        texts *= 2


def _passage(number: int) -> str:
    # 15 to 105 words of ordinary length: a mixture of queries and passages, every text another one.
    words = 15 + (number * 37) % 91
    return " ".join(f"passage {number} speaks of queues and vectors" for _ in range(math.ceil(words / 7)))


def _estimate(text: str, max_tokens: int) -> int:
    return max(1, min(math.ceil(len(text.encode()) / _BYTES_PER_TOKEN), max_tokens))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stream:
    """The parts of one stream that others look at."""

    rate: Rate
    progress: Progress
    work: Work
    wakeup: Wakeup
    drain: Drain


class Streams:
    """All streams of one process.

    Args:
        ledger: executor of the process, safe in several threads.
        model: the queue.
        worker: id of the worker.
        encoder: says by `streams` how many there are.
        limits: of slices.
        stamp: of the model, which claims carry.
        store: where the rows of batches are.
        budget: of one forward pass.
        cache: of vectors of this encoder.
        send_bell: sends one bell message; must not raise.
        stop: whether to stop.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        worker: str,
        encoder: Encoder,
        limits: DrainLimits,
        *,
        stamp: str,
        store: RowStore,
        budget: PassBudget,
        cache: VectorCache,
        send_bell: Callable[[], None],
        stop: Callable[[], bool],
    ) -> None:
        self._ledger, self._model, self._worker, self._encoder, self._limits = ledger, model, worker, encoder, limits
        self._budget = budget
        self._store, self._cache, self._urgency = store, cache, Urgency()
        self._stamp = stamp
        self._settlement = Settlement(ledger, model, patience_s=limits.lease_s, stop=self._stop)
        self._send_bell, self._asked_to_stop = send_bell, stop
        self._broken = threading.Event()
        self._passes = Gate(single=encoder.streams == 1)
        self._suspects, self._half_done = Suspects(self._passes), HalfDone()
        self._threads = ThreadPoolExecutor(max(1, encoder.streams - 1), thread_name_prefix="stream")
        rates = self._together([partial(measure_rate, encoder, max_padded_tokens=budget.most)] * encoder.streams)
        self.all: Sequence[Stream] = [self._make(number, Rate(rate)) for number, rate in enumerate(rates)]

    def _make(self, number: int, rate: Rate) -> Stream:
        name, progress = f"{self._worker}/{number}", Progress()
        wakeup = Wakeup(self._ledger, self._model, name)
        work = Work(
            self._encoder,
            budget=self._budget,
            settlement=self._settlement,
            store=self._store,
            rate=rate,
            progress=progress,
            passes=self._passes,
            cache=self._cache,
            half_done=self._half_done,
            urgency=self._urgency,
            broken=self._broken,
            longest_s=longest_claim_s(self._limits.unit_s),
            stop=self._stop,
        )
        drain = Drain(
            self._ledger,
            self._model,
            name,
            self._limits,
            wakeup=wakeup,
            work=work,
            rate=rate,
            settlement=self._settlement,
            suspects=self._suspects,
            single=self._passes.single,
            hears=number == 0,
            send_bell=self._send_bell,
            stop=self._stop,
            urgent=lambda: self._urgency.expected,
            stamp=self._stamp,
        )
        return Stream(rate, progress, work, wakeup, drain)

    def _stop(self) -> bool:
        return self._asked_to_stop() or self._broken.is_set()

    @property
    def tokens_per_s(self) -> float:
        """Of all together."""
        return sum(stream.rate.tokens_per_s for stream in self.all)

    def run_slice(self) -> None:
        """One slice of every stream; returns when all have ended.

        Raises:
            EncoderBroken: this process must be replaced. What the other streams had is given back.
            ModelChanged: likewise, and the ledger has taken back what it had.
        """
        try:
            together = JointSlice(len(self.all))
            self._together([partial(stream.drain.run_slice, together) for stream in self.all])
        finally:
            if self._broken.is_set():  # whatever else went wrong
                raise EncoderBroken("the accelerator failed; this process cannot use it any more")

    def _together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The results of all calls, the first one made in this thread. Raises what one of them raised, at the end."""
        first, *others = calls
        running = [self._threads.submit(call) for call in others]
        try:
            result = first()
        finally:
            wait(running)
        return [result, *(done.result() for done in running)]

    def close(self) -> None:
        """Ends the subscriptions. No slice runs any more."""
        for stream in self.all:
            stream.wakeup.close()
        self._threads.shutdown(wait=False)
