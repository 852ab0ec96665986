"""The bar on a terminal. The only module that imports rich."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class _Rate(ProgressColumn):
    """Units per second, over the last seconds while it runs and over all at the end."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class Bar:
    """One line of a rich display."""

    def __init__(self, display: Progress, label: str, total: int | None) -> None:
        self._display = display
        self._task = display.add_task(label, total=total, failed="")

    def update(self, done: int, failed: int = 0) -> None:
        """Redraws the bar."""
        self._display.update(self._task, completed=done, failed=f"{failed:,} failed" if failed else "")


@contextmanager
def bar(label: str, total: int | None, stream: TextIO) -> Iterator[Bar]:
    """A bar with count, rate and time left, shown on `stream` while the block runs."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    with Progress(*columns, console=Console(file=stream), redirect_stdout=sys.stdout.isatty()) as display:
        yield Bar(display, label, total)
