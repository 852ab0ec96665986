"""The bar on a terminal. The only module that imports rich."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn
from rich.table import Column
from rich.text import Text

from embedq.progress import Beside, Pace, Sample, shown_left, shown_rate


class Bar:
    """One line of a rich display."""

    def __init__(self, display: Progress, label: str, total: int | None, pace: Pace) -> None:
        self._display = display
        self._label = label
        self._total = total
        self._pace = pace
        self._task = display.add_task(label, total=total, rate="", also="", left="", failed="")

    def update(self, done: int, failed: int = 0, *, total: int | None = None, also: Beside | None = None) -> None:
        """Redraws the bar."""
        self._total = self._total if total is None else total
        # rich's own speed is that of the last updates, which for tasks of 2,048 texts says nothing.
        sample = Sample(self._label, done, failed, self._total, self._pace.rate(done), also)
        self._display.update(
            self._task,
            total=self._total,
            completed=done,
            rate=shown_rate(sample.rate) if sample.rate and not also else "",
            also=also.text if also else "",
            left=shown_left(sample.eta_s) if sample.eta_s else "",
            failed=f"{failed:,} failed" if failed else "",
        )


class _Shortened(TextColumn):
    """What gives way on a narrow terminal, with the bar."""

    def render(self, task: Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


@contextmanager
def bar(label: str, total: int | None, stream: TextIO, pace: Pace) -> Iterator[Bar]:
    """A bar with count, rate and time left, shown on `stream` while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("[progress.data.speed]{task.fields[rate]}"),
        _Shortened("{task.fields[also]}", table_column=Column()),
        TextColumn("[progress.remaining]{task.fields[left]}"),
        TextColumn("[red]{task.fields[failed]}"),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    with Progress(*columns, console=Console(file=stream), redirect_stdout=sys.stdout.isatty()) as display:
        yield Bar(display, label, total, pace)
