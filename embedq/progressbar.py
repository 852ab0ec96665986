"""The bar on a terminal. The only module that imports rich."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from embedq.progress import NOTHING_ELSE, Also, Pace


class Bar:
    """One line of a rich display."""

    def __init__(self, display: Progress, label: str, total: int | None, pace: Pace) -> None:
        self._display = display
        self._pace = pace
        self._task = display.add_task(label, total=total, rate="", also="", failed="")

    def update(self, done: int, failed: int = 0, *, total: int | None = None, also: Also = NOTHING_ELSE) -> None:
        """Redraws the bar."""
        if total is not None:
            self._display.update(self._task, total=total)
        rate = self._pace.rate(done)
        self._display.update(
            self._task,
            completed=done,
            # rich's own speed is that of the last updates, which for tasks of 2,048 texts says nothing.
            rate=f"{rate:,.0f}/s" if rate else "",
            also=", ".join(f"{number:,} {name}" for name, number in also.items()),
            failed=f"{failed:,} failed" if failed else "",
        )


@contextmanager
def bar(label: str, total: int | None, stream: TextIO, pace: Pace) -> Iterator[Bar]:
    """A bar with count, rate and time left, shown on `stream` while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[progress.data.speed]{task.fields[rate]}"),
        TextColumn("{task.fields[also]}"),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    with Progress(*columns, console=Console(file=stream), redirect_stdout=sys.stdout.isatty()) as display:
        yield Bar(display, label, total, pace)
