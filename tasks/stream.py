"""What one thread of a worker process works with, and all of them together.

They overlap: while one stream waits for Redis or reads texts, another one keeps the model busy.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from tasks.drain import Drain, DrainLimits
from tasks.gate import Gate
from tasks.ledger import Ledger
from tasks.model.encoder import Encoder
from tasks.progress import Progress
from tasks.rate import Rate
from tasks.wakeup import Wakeup
from tasks.work import Work, WorkLimits


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
        max_padded_tokens: of one forward pass.
        tokens_per_s: of one stream, for a start.
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
        max_padded_tokens: int,
        tokens_per_s: float,
        send_bell: Callable[[], bool],
        stop: Callable[[], bool],
    ) -> None:
        gate = Gate(single=encoder.streams == 1)
        broken = threading.Event()

        def stop_or_broken() -> bool:
            return stop() or broken.is_set()

        work_limits = WorkLimits(max_padded_tokens, limits.claim_s, commit_patience_s=limits.lease_s)

        def make(name: str) -> Stream:
            rate, progress, wakeup = Rate(tokens_per_s), Progress(), Wakeup(ledger, model, name)
            work = Work(
                ledger, model, encoder, work_limits, rate=rate, progress=progress, broken=broken, stop=stop_or_broken
            )
            drain = Drain(
                ledger,
                model,
                name,
                limits,
                wakeup=wakeup,
                work=work,
                rate=rate,
                gate=gate,
                send_bell=send_bell,
                stop=stop_or_broken,
            )
            return Stream(rate, progress, work, wakeup, drain)

        self.all: Sequence[Stream] = [make(f"{worker}/{number}") for number in range(encoder.streams)]
        # The first one runs in the caller's thread.
        self._threads = ThreadPoolExecutor(max(1, encoder.streams - 1), thread_name_prefix="stream")

    @property
    def tokens_per_s(self) -> float:
        """Of all together."""
        return sum(stream.rate.tokens_per_s for stream in self.all)

    def run_slice(self) -> None:
        """One slice of every stream; returns when all have ended.

        Raises:
            EncoderBroken: as one of them raised it; the others have given back what they had.
        """
        first, *others = self.all
        running = [self._threads.submit(stream.drain.run_slice) for stream in others]
        try:
            first.drain.run_slice()
        finally:
            wait(running)
        for done in running:
            done.result()

    def close(self) -> None:
        """Ends the subscriptions. No slice runs any more."""
        for stream in self.all:
            stream.wakeup.close()
        self._threads.shutdown(wait=False)
