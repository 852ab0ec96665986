"""The bar on a terminal. The only module that imports rich."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from embedq.progress import Beside, Pace, shown_rate


class Bar:
    """One line of a rich display."""

    def __init__(self, display: Progress, label: str, total: int | None, pace: Pace) -> None:
        self._display = display
        self._pace = pace
        self._task = display.add_task(label, total=total, rate="", also="", left=None, failed="")

    def update(self, done: int, failed: int = 0, *, total: int | None = None, also: Beside | None = None) -> None:
        """Redraws the bar."""
        if total is not None:
            self._display.update(self._task, total=total)
        rate = self._pace.rate(done)
        self._display.update(
            self._task,
            completed=done,
            # rich's own speed is that of the last updates, which for tasks of 2,048 texts says nothing.
            rate=shown_rate(rate) if rate and not also else "",
            also=also.text if also else "",
            left=_left(also),
            failed=f"{failed:,} failed" if failed else "",
        )


class _TimeLeft(TimeRemainingColumn):
    """As rich computes it from the count, unless somebody knows better."""

    def render(self, task: Task) -> Text:
        known = task.fields["left"]
        return super().render(task) if known is None else Text(known, style="progress.remaining")


def _left(also: Beside | None) -> str | None:
    if also is None:
        return None
    return "" if also.eta_s is None else f"{also.eta_s:,.0f} s left"


@contextmanager
def bar(label: str, total: int | None, stream: TextIO, pace: Pace) -> Iterator[Bar]:
    """A bar with count, rate and time left, shown on `stream` while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[progress.data.speed]{task.fields[rate]}"),
        TextColumn("{task.fields[also]}"),
        _TimeLeft(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    with Progress(*columns, console=Console(file=stream), redirect_stdout=sys.stdout.isatty()) as display:
        yield Bar(display, label, total, pace)
