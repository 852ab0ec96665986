"""The table of docs/reliability.md, and the file that keeps its lines from one run to the next."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from bench.faults.account import Account
from bench.faults.trial import Round

_HEAD = ("fault", "injected", "accepted", "completed", "lost", "doubled", "calls repeated", "recovery s")


@dataclass(frozen=True, slots=True)
class Line:
    """All rounds of one fault together. `again`: texts that callers submitted again because Redis had lost them."""

    title: str
    injected: int
    accepted: int
    completed: int
    lost: int
    doubled: int
    again: int
    repeated: dict[str, int]
    recovery_s: list[float]

    @classmethod
    def of(cls, title: str, rounds: Sequence[Round]) -> Self:
        """The sum of the rounds."""
        total = sum((each.account for each in rounds), Account(doubled=sum(each.surplus for each in rounds)))
        repeated = dict(sum((each.repeated for each in rounds), Counter()).most_common())
        times = [round(each.recovery_s, 2) for each in rounds]
        return cls(title=title, injected=len(rounds), **asdict(total), repeated=repeated, recovery_s=times)


def render(lines: Sequence[Line]) -> str:
    """Markdown that can be read as plain text too."""
    rows = [_HEAD, tuple("---" if name == "fault" else "---:" for name in _HEAD), *map(_cells, lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    text = "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)
    notes = [
        f"* {line.title}: {line.again:,} texts were told to be unknown and were submitted again"
        for line in lines
        if line.again
    ]
    return "\n\n".join(part for part in (text, "\n".join(notes)) if part) + "\n"


def _cells(line: Line) -> tuple[str, ...]:
    counts = (line.injected, line.accepted, line.completed, line.lost, line.doubled, sum(line.repeated.values()))
    return (line.title, *(f"{count:,}" for count in counts), _spread(line.recovery_s))


def _spread(seconds: Sequence[float]) -> str:
    middle, worst = statistics.median(seconds), max(seconds)
    return f"{middle:.1f}" if f"{middle:.1f}" == f"{worst:.1f}" else f"{middle:.1f} (worst {worst:.1f})"


def load(path: Path) -> dict[str, Line]:
    """The lines of earlier runs by the name of the fault."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {name: Line(**line) for name, line in found.items()}


def save(path: Path, lines: dict[str, Line]) -> None:
    """Inverse of `load`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: asdict(line) for name, line in lines.items()}, indent=1) + "\n")
