"""All streams of one worker process, each a thread with a claim of its own.

They overlap: while one stream waits for Redis or reads texts, another one keeps the model busy.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tasks.drain.commit import Committer
from tasks.drain.loop import Consumer, Drain, JointSlice
from tasks.drain.rate import MeasuredRate
from tasks.drain.suspects import Suspects
from tasks.embedding.claims import EmbeddingContext, EmbeddingWork
from tasks.embedding.rows import RowStore
from tasks.embedding.speed import PassBudget, measure_rate
from tasks.encoder.interface import Encoder, EncoderBroken
from tasks.gate import Gate
from tasks.ledger import Ledger
from tasks.process.role import Start

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stream:
    """What one stream does, and the loop that lets it."""

    work: EmbeddingWork
    drain: Drain


class Streams:
    """All streams of one process.

    Args:
        start: of the process.
        ledger: its executor, safe in several threads.
        queue: the served name.
        encoder: its `streams` says how many there are.
        lease_s: of claims.
        stamp: of the model, which claims carry.
        store: where the rows of batches are.
        budget: of one forward pass.
    """

    def __init__(
        self,
        start: Start,
        ledger: Ledger,
        queue: str,
        encoder: Encoder,
        *,
        lease_s: float,
        stamp: str,
        store: RowStore,
        budget: PassBudget,
    ) -> None:
        self._asked_to_stop, self._broken = start.stop, threading.Event()
        passes = Gate(single=encoder.streams == 1)
        committer = Committer(ledger, queue, patience_s=lease_s, stop=self._stop)
        consumer = Consumer(
            ledger=ledger,
            queue=queue,
            worker=start.worker_id,
            slice_s=start.settings.slice_s,
            lease_s=lease_s,
            committer=committer,
            suspects=Suspects(passes),
            send_bell=partial(start.send_bell, queue),
            stop=self._stop,
            single=passes.single,
            stamp=stamp,
            traces=start.traces,
        )
        context = EmbeddingContext(
            encoder=encoder,
            budget=budget,
            unit_s=start.settings.unit_s,
            committer=committer,
            store=store,
            passes=passes,
            broken=self._broken,
            stop=self._stop,
        )
        self._threads = ThreadPoolExecutor(max(1, encoder.streams - 1), thread_name_prefix="stream")
        rates = self._together([partial(measure_rate, encoder, max_padded_tokens=budget.most)] * encoder.streams)
        works = [EmbeddingWork(context, MeasuredRate(rate)) for rate in rates]
        self.all = [Stream(work, Drain(consumer, number, work)) for number, work in enumerate(works)]

    @property
    def tokens_per_s(self) -> float:
        """Of all together."""
        return sum(stream.work.rate.tokens_per_s for stream in self.all)

    def run_slice(self) -> None:
        """One slice of every stream; returns when all have ended.

        Raises:
            EncoderBroken: this process must be replaced. The claims of the other streams are given back.
            ModelChanged: likewise, and the ledger has taken back its claims.
        """
        try:
            together = JointSlice(len(self.all))
            self._together([partial(stream.drain.run_slice, together) for stream in self.all])
        finally:
            if self._broken.is_set():  # whatever else went wrong
                raise EncoderBroken("the accelerator failed; this process cannot use it any more")

    def close(self) -> None:
        """Ends the subscriptions. No slice runs any more."""
        for stream in self.all:
            stream.drain.close()
        self._threads.shutdown(wait=False)

    def _stop(self) -> bool:
        return self._asked_to_stop() or self._broken.is_set()

    def _together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """The results of all calls, the first one made in this thread. Raises what one of them raised, at the end."""
        first, *others = calls
        running = [self._threads.submit(call) for call in others]
        try:
            result = first()
        finally:
            wait(running)
        return [result, *(done.result() for done in running)]
