"""Progress on stderr: a bar on a terminal, JSON lines for programs, now and then a plain line elsewhere."""

import json
import sys
import time
from contextlib import ExitStack, suppress
from typing import Any, Self, TextIO

_PLAIN_INTERVAL_S = 10.0
_JSON_INTERVAL_S = 1.0
_SHOWN_IN_SECONDS = 600


class Progress:
    """Shows how far something is, for as long as the block runs, and once more at its end.

    Args:
        label: what is being done, one or two words.
        json_lines: one JSON object per line instead of a bar.
        stream: None: stderr.
    """

    def __init__(self, label: str, *, json_lines: bool, stream: TextIO | None = None) -> None:
        self._label = label
        self._json_lines = json_lines
        self._stream = stream or sys.stderr
        self._interval_s = _JSON_INTERVAL_S if json_lines else _PLAIN_INTERVAL_S
        self._stack = ExitStack()
        self._bar: Any = None
        self._started_at = self._shown_at = time.monotonic()
        self._start: int | None = None
        self._unshown: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if not self._json_lines and self._stream.isatty():
            with suppress(ImportError):  # rich is optional
                self._bar = self._stack.enter_context(_bar(self._stream))
                self._bar.add_task(self._label, total=None, rest="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._unshown:
            self._show(**self._unshown)
        self._stack.close()

    def update(
        self, done: int, failed: int = 0, *, total: int | None = None, text: str = "", eta_s: float | None = None,
        **fields: Any,
    ) -> None:  # fmt: skip
        """Takes the state: `done` of the total are through, `failed` of them without success.

        Args:
            done: what was done at the first call does not count for the rate.
            failed: of them.
            total: None when it is not known.
            text: what else is known; it takes the place of the count's own rate and end.
            eta_s: seconds to the end; with a `text` alone.
            fields: the same for programs.
        """
        now = time.monotonic()
        self._start = done if self._start is None else self._start
        # The average since the start. The speed of the last updates, as rich computes it, says nothing about tasks of
        # 2,048 texts that end in bursts.
        rate = (done - self._start) / elapsed_s if (elapsed_s := now - self._started_at) > 0 else 0.0
        if not text and rate:
            text = shown_rate(rate)
            eta_s = None if total is None else (total - done) / rate
        eta_s = None if eta_s is None else round(eta_s, 1)
        counts = {"done": done, "failed": failed, "total": total, "rate": round(rate, 1), "eta_s": eta_s}
        self._unshown = {"text": text, **counts, **fields}
        if self._bar is not None or now - self._shown_at >= self._interval_s:
            self._shown_at = now
            self._show(**self._unshown)

    def _show(self, text: str, **fields: Any) -> None:
        self._unshown = {}
        if self._json_lines:
            print(json.dumps({"event": "progress", **fields}), file=self._stream, flush=True)
            return
        done, failed, total, eta_s = (fields[name] for name in ("done", "failed", "total", "eta_s"))
        parts = [f"{failed:,} failed"] if failed else []
        parts += [shown_left(eta_s)] if eta_s else []
        parts += [text] if text else []
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=total, completed=done, rest=", ".join(parts))
        else:
            share = f"{done:,}" if total is None else f"{done:,}/{total:,}"
            print(", ".join([f"{self._label} {share}", *parts]), file=self._stream, flush=True)


def shown_left(eta_s: float) -> str:
    """The time to the end for people: seconds, from ten minutes on hours and minutes."""
    if eta_s < _SHOWN_IN_SECONDS:
        return f"{eta_s:,.0f} s left"
    minutes = round(eta_s / 60)
    return f"{minutes} min left" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min left"  # noqa: PLR2004


def shown_rate(per_s: float) -> str:
    """A rate for people: slow ones are not 0."""
    return f"{per_s:,.0f}/s" if per_s >= 1 else f"{per_s:.2f}/s"


def _bar(stream: TextIO) -> Any:
    # Slow to import for a command that shows no bar.
    from rich import console, progress, table  # noqa: PLC0415

    # The last column gives way on a narrow terminal.
    rest = table.Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=20),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rest]}", table_column=rest),
    )
    # Results on the same terminal are printed above the bar; results that go into a pipe must not end up on stderr.
    redirect = sys.stdout is not None and sys.stdout.isatty()
    return progress.Progress(*columns, console=console.Console(file=stream), redirect_stdout=redirect, expand=True)
