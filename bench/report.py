"""From measured values to what people read: a JSON file and a table.

The end of a figure's name says its unit, and the unit says which direction is better.
"""

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bench.load import CHECKOUT, LoadResult
from stack.redis_server import find_server

BARE, PRODUCT, REFERENCE = "bare", "embedq", "locked"
"""The ceiling, what is measured, and the usual design that a gain is stated against."""
EQUAL_FIDELITY = 0.9999
"""From this cosine to the library's float32 vectors on, a peer computes the same as embedq."""
_FIDELITY = "fidelity_least"
_UNITS = {"_per_s": "/s", "_ms": "ms", "_us": "us per piece", "_mib": "MiB", "_mb": "MB", "_percent": "%", "_s": "s"}
_MORE_IS_BETTER = {"/s": True, "ms": False}
_PACKAGES = ("torch", "openvino", "sentence-transformers", "fastapi", "celery", "redis", "uvicorn")


@dataclass(frozen=True, slots=True)
class Observed:
    """What one scenario saw: figures by name, and what a reader must know of them."""

    values: Mapping[str, float]
    notes: Sequence[str] = ()


def of_load(what: str, result: LoadResult, bodies: int, values: Mapping[str, float]) -> Observed:
    """Figures of one load; failed and repeated requests become notes, and figures without an answer are left out."""
    notes = []
    good = len(result.ms)
    if result.errors:
        how = ", ".join(f"{number} with {reason}" for reason, number in result.reasons.items())
        notes.append(f"{what}: {result.errors} of {result.errors + good} requests failed ({how}): {result.refusal}")
    if good > bodies:
        notes.append(f"{what}: only {bodies} different bodies for {good} requests; repetitions are cheaper")
    return Observed({key: value for key, value in values.items() if math.isfinite(value)}, notes)


@dataclass(slots=True)
class Results:
    """All values of one run.

    Attributes:
        header: machine, versions and options, as printed above the table.
        values: server -> figure -> one value per repetition.
        notes: what a reader must know about single values.
    """

    header: dict[str, Any]
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, server: str, observed: Observed) -> None:
        """Adds one repetition of some figures."""
        for key, value in observed.values.items():
            self.values.setdefault(server, {}).setdefault(key, []).append(round(value, 6))
        self.notes += [f"{server}: {note}" for note in observed.notes]

    def save(self, path: Path) -> None:
        """Writes the file, and its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")

    def median(self, server: str, figure: str) -> float | None:
        """None when it was not measured."""
        values = self.values.get(server, {}).get(figure)
        return statistics.median(values) if values else None

    def table(self) -> str:
        """Header, table and notes, as Markdown that can be read as plain text too."""
        ours = [name for name in (PRODUCT, BARE, REFERENCE) if name in self.values]
        servers = [*ours, *sorted(self.values.keys() - ours)]
        figures = dict.fromkeys(figure for server in servers for figure in self.values[server])
        head = ["figure", "unit", *servers, "of bare", "gain", "best peer"]
        body = [[*self._row(figure, servers), *self._ratios(figure, servers[len(ours) :])] for figure in figures]
        header = "\n".join(f"* {name}: {value}" for name, value in self.header.items())
        notes = "\n".join(f"* {note}" for note in self.notes)
        return "\n\n".join(part for part in (header, markdown(head, body), notes) if part) + "\n"

    def _row(self, figure: str, servers: Sequence[str]) -> list[str]:
        cells = [self.values[server].get(figure, ()) for server in servers]
        return [_title(figure), _unit(figure), *(shown_spread(values) for values in cells)]

    def _ratios(self, figure: str, peers: Sequence[str]) -> list[str]:
        """The part of the ceiling; how many times better than the reference, and than the best of equal peers."""
        more = _MORE_IS_BETTER.get(_unit(figure))
        ours = self.median(PRODUCT, figure)
        if more is None or not ours:
            return ["", "", ""]
        equal = [name for name in peers if (self.median(name, _FIDELITY) or 0) >= EQUAL_FIDELITY]
        medians = {name: value for name in [BARE, REFERENCE, *equal] if (value := self.median(name, figure))}
        better = {name: ours / value if more else value / ours for name, value in medians.items()}
        best = min((name for name in equal if name in better), key=better.__getitem__, default=None)
        return [
            f"{better[BARE]:.2f}" if BARE in better else "",
            f"{shown(better[REFERENCE])}x" if REFERENCE in better else "",
            f"{shown(better[best])}x ({best})" if best else "",
        ]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with aligned columns."""
    lines = [head, ["---"] * len(head), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def shown(value: float) -> str:
    """Three digits that mean something; of a number just below one, six."""
    if 0.99 < abs(value) <= 1:
        return f"{value:.6f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def shown_spread(values: Sequence[float]) -> str:
    """The median, and the extremes where they differ; empty without values."""
    if not values:
        return ""
    low, middle, high = (shown(value) for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def machine() -> dict[str, str]:
    """What the figures were measured on: date, machine and versions, by name."""
    model = [line.partition(":")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    memory_gib = round(psutil.virtual_memory().total / 2**30)
    installed = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": f"{model[0].strip()}, {len(os.sched_getaffinity(0))} cores usable, {memory_gib} GiB",
        "load average before": ", ".join(f"{value:.1f}" for value in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {installed[name]}" for name in _PACKAGES if name in installed),
        "redis": " ".join(_output(str(find_server()), "--version").split()[:3]),
        "commit": _output("git", "describe", "--always", "--dirty") or "unknown",
    }


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT).stdout.strip()


def _unit(figure: str) -> str:
    return next((unit for end, unit in _UNITS.items() if figure.endswith(end)), "")


def _title(figure: str) -> str:
    end = next((end for end in _UNITS if figure.endswith(end)), "")
    return figure.removesuffix(end).replace("_", " ")
