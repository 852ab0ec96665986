"""Progress on stderr: a bar on a terminal, JSON lines for programs, now and then a plain line elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

_PLAIN_INTERVAL_S = 10.0
_JSON_INTERVAL_S = 1.0
_SHOWN_IN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known besides the count.

    Attributes:
        text: for people; it takes the place of the count's own rate.
        fields: for programs.
        eta_s: seconds to the end, by somebody who knows better than the count; None: nobody knows.
    """

    text: str
    fields: Mapping[str, Any]
    eta_s: float | None


class Progress(Protocol):
    """Told how far the work is."""

    def update(self, done: int, failed: int = 0, *, total: int | None = None, also: Beside | None = None) -> None:
        """`done` of the total are through, `failed` of them without success.

        `total`: the new one, where it grows; None: as before.
        """


@dataclass(frozen=True, slots=True)
class Sample:
    """How far the work is, and how fast it goes.

    Attributes:
        total: None when it is not known.
        rate: per second since the start.
        also: what else is known; its `eta_s` is then the one that holds.
    """

    label: str
    done: int
    failed: int
    total: int | None
    rate: float
    also: Beside | None = None

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end; None when that is unknown."""
        if self.also:
            return self.also.eta_s
        return (self.total - self.done) / self.rate if self.total is not None and self.rate else None

    def to_text(self) -> str:
        """One line for people."""
        share = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        parts = [f"{self.label} {share}"]
        parts += [self.also.text] if self.also else [shown_rate(self.rate)] if self.rate else []
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
            **(self.also.fields if self.also else {}),
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


class Pace:
    """How fast work goes: the average since the start, not counting the `start` units that were done before."""

    def __init__(self, start: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._start = start
        self._clock = clock
        self._started = clock()

    def rate(self, done: int) -> float:
        """Units per second up to now; 0 when nothing was done."""
        elapsed_s = self._clock() - self._started
        return (done - self._start) / elapsed_s if elapsed_s > 0 else 0.0


class Lines:
    """Progress as lines, at most one per interval and one for the end."""

    def __init__(
        self,
        label: str,
        total: int | None,
        write: Callable[[Sample], None],
        interval_s: float,
        *,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._total = total
        self._write = write
        self._interval_s = interval_s
        self._clock = clock
        self._written = clock()
        self._pace = Pace(start, clock=clock)
        self._done, self._failed = start, 0
        self._also: Beside | None = None

    def update(self, done: int, failed: int = 0, *, total: int | None = None, also: Beside | None = None) -> None:
        """Takes the state; writes it when it is time."""
        self._done, self._failed, self._also = done, failed, also
        self._total = self._total if total is None else total
        if self._clock() - self._written >= self._interval_s:
            self._written = self._clock()
            self._write(self._sample())

    def finish(self) -> None:
        """Writes the last state."""
        self._write(self._sample())

    def _sample(self) -> Sample:
        return Sample(self._label, self._done, self._failed, self._total, self._pace.rate(self._done), self._also)


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
    if not json_lines and stream.isatty():
        try:
            # Optional (`pip install rich`), and slow to import for a command that shows no bar.
            from embedq.progressbar import bar  # noqa: PLC0415
        except ImportError:
            pass
        else:
            with bar(label, total, stream, Pace(start)) as shown:
                yield shown
            return
    lines = Lines(
        label,
        total,
        lambda sample: print(sample.to_json() if json_lines else sample.to_text(), file=stream, flush=True),
        _JSON_INTERVAL_S if json_lines else _PLAIN_INTERVAL_S,
        start=start,
    )
    yield lines
    lines.finish()
