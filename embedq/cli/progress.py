"""Progress on stderr: a bar on a terminal, JSON lines for programs, now and then a plain line elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from embedq.task import Counts, Task

_PLAIN_INTERVAL_S = 10.0
_JSON_INTERVAL_S = 1.0
_SHOWN_IN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Details:
    """What is known besides the count.

    Attributes:
        text: for people; it takes the place of the count's own rate.
        fields: for programs.
        eta_s: seconds to the end, better known than from the count; None: unknown.
    """

    text: str
    fields: Mapping[str, Any]
    eta_s: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the work is, and how fast it goes.

    Attributes:
        total: None when it is not known.
        rate: per second since the start.
        details: what else is known; its `eta_s` takes the place of the count's own.
    """

    label: str
    done: int
    failed: int
    total: int | None
    rate: float
    details: Details | None = None

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end; None when that is unknown."""
        if self.details:
            return self.details.eta_s
        return (self.total - self.done) / self.rate if self.total is not None and self.rate else None

    def to_text(self) -> str:
        """One line for people."""
        share = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        parts = [f"{self.label} {share}"]
        parts += [self.details.text] if self.details else [shown_rate(self.rate)] if self.rate else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        parts += [shown_left(self.eta_s)] if self.eta_s else []
        return ", ".join(parts)

    def to_json(self) -> str:
        """One line for programs."""
        fields = {
            "event": "progress",
            "done": self.done,
            "failed": self.failed,
            "total": self.total,
            "rate": round(self.rate, 1),
            "eta_s": None if self.eta_s is None else round(self.eta_s, 1),
            **(self.details.fields if self.details else {}),
        }
        return json.dumps(fields)


def shown_left(eta_s: float) -> str:
    """The time to the end for people: seconds, from ten minutes on hours and minutes."""
    if eta_s < _SHOWN_IN_SECONDS:
        return f"{eta_s:,.0f} s left"
    minutes = round(eta_s / 60)
    return f"{minutes} min left" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min left"  # noqa: PLR2004


def shown_rate(per_s: float) -> str:
    """A rate for people: slow ones are not 0."""
    return f"{per_s:,.0f}/s" if per_s >= 1 else f"{per_s:.2f}/s"


class Progress:
    """Shows how far the work is, at most once per interval and at the end.

    Args:
        label: what is being done, one or two words.
        total: None when it is not known.
        show: prints or draws a sample.
        interval_s: least time between two samples.
        start: how much of the work was done before; it does not count for the rate.
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        show: Callable[[Sample], None],
        interval_s: float = 0.0,
        *,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._total = total
        self._show = show
        self._interval_s = interval_s
        self._start = start
        self._clock = clock
        self._started_at = self._shown_at = clock()
        self._done, self._failed = start, 0
        self._details: Details | None = None

    def update(self, done: int, failed: int = 0, *, total: int | None = None, details: Details | None = None) -> None:
        """Takes the state: `done` of the total are through, `failed` of them without success.

        `total`: the new one, where it grows; None: as before.
        """
        self._done, self._failed, self._details = done, failed, details
        self._total = self._total if total is None else total
        if self._clock() - self._shown_at >= self._interval_s:
            self._shown_at = self._clock()
            self._show(self._sample())

    def finish(self) -> None:
        """Shows the last state."""
        self._show(self._sample())

    def _sample(self) -> Sample:
        # The average since the start. The speed of the last updates, as rich computes it, says nothing about tasks of
        # 2,048 texts that end in bursts.
        elapsed_s = self._clock() - self._started_at
        rate = (self._done - self._start) / elapsed_s if elapsed_s > 0 else 0.0
        return Sample(self._label, self._done, self._failed, self._total, rate, self._details)


class TaskProgress:
    """The progress of many tasks as one; `changed` is for `EmbeddingService.wait`."""

    def __init__(self, progress: Progress, tasks: Iterable[Task] = ()) -> None:
        self._progress = progress
        self._counts: dict[str, Counts] = {task.id: task.counts for task in tasks}
        self.all_succeeded = True

    @property
    def done(self) -> int:
        """Texts of which the outcome is known."""
        return sum(counts.done for counts in self._counts.values())

    @property
    def failed(self) -> int:
        """Texts without a vector."""
        return sum(counts.failed for counts in self._counts.values())

    def changed(self, task: Task) -> None:
        """Takes a task's latest state."""
        self._counts[task.id] = task.counts
        if task.ended and not task.succeeded:
            self.all_succeeded = False
        self._progress.update(self.done, self.failed)


@contextmanager
def showing(
    label: str, total: int | None, *, start: int = 0, json_lines: bool, stream: TextIO | None = None
) -> Iterator[Progress]:
    """Shows progress for as long as the block runs.

    Args:
        label: what is being done, one or two words.
        total: None when it is not known.
        start: how much of it is done already.
        json_lines: one JSON object per line instead of a bar.
        stream: None: stderr.
    """
    stream = stream or sys.stderr

    def print_line(sample: Sample) -> None:
        print(sample.to_json() if json_lines else sample.to_text(), file=stream, flush=True)

    with ExitStack() as stack:
        show: Callable[[Sample], None] = print_line
        interval_s = _JSON_INTERVAL_S if json_lines else _PLAIN_INTERVAL_S
        if not json_lines and stream.isatty():
            with suppress(ImportError):  # rich is optional
                show, interval_s = stack.enter_context(_bar(label, total, stream)), 0.0
        progress = Progress(label, total, show, interval_s, start=start)
        yield progress
        progress.finish()


@contextmanager
def _bar(label: str, total: int | None, stream: TextIO) -> Iterator[Callable[[Sample], None]]:
    """A bar of rich with count, rate and time left; the function that draws it anew."""
    # Slow to import for a command that shows no bar.
    from rich import console, progress, table, text  # noqa: PLC0415

    class Shortened(progress.TextColumn):
        """Gives way on a narrow terminal, with the bar: a column that does not wrap would keep its whole width."""

        def render(self, task: progress.Task) -> text.Text:
            shown = super().render(task)
            shown.no_wrap, shown.overflow = True, "ellipsis"
            return shown

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(table_column=table.Column(no_wrap=True)),
        progress.TextColumn("[progress.data.speed]{task.fields[rate]}"),
        Shortened("{task.fields[details]}", table_column=table.Column()),
        progress.TextColumn("[progress.remaining]{task.fields[left]}"),
        progress.TextColumn("[red]{task.fields[failed]}"),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    redirect = sys.stdout is not None and sys.stdout.isatty()
    with progress.Progress(*columns, console=console.Console(file=stream), redirect_stdout=redirect) as display:
        bar = display.add_task(label, total=total, rate="", details="", left="", failed="")

        def draw(sample: Sample) -> None:
            display.update(
                bar,
                total=sample.total,
                completed=sample.done,
                rate=shown_rate(sample.rate) if sample.rate and not sample.details else "",
                details=sample.details.text if sample.details else "",
                left=shown_left(sample.eta_s) if sample.eta_s else "",
                failed=f"{sample.failed:,} failed" if sample.failed else "",
            )

        yield draw
