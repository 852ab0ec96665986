"""All values of one run, and the JSON file that holds them."""

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.scenarios.observed import Observed


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the repetitions of one figure."""

    median: float
    least: float
    most: float


@dataclass(slots=True)
class Results:
    """What was measured.

    Attributes:
        header: machine, versions and options, as printed above the table.
        values: server -> key of the figure -> one value per repetition.
        notes: what a reader must know about single values.
        series: samples over time, by the name of what was watched.
    """

    header: dict[str, Any]
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    series: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def add(self, server: str, observed: Observed) -> None:
        """Adds one repetition of some figures."""
        for key, value in observed.values.items():
            self.values.setdefault(server, {}).setdefault(key, []).append(round(value, 6))
        self.notes += [f"{server}: {note}" for note in observed.notes]
        for name, samples in observed.series.items():
            self.series[name] = [{key: round(value, 2) for key, value in sample.items()} for sample in samples]

    def spread(self, server: str, key: str) -> Spread | None:
        """None when it was not measured."""
        values = self.values.get(server, {}).get(key)
        return Spread(statistics.median(values), min(values), max(values)) if values else None

    def keys(self) -> set[str]:
        """Of all figures that any server has."""
        return {key for figures in self.values.values() for key in figures}

    def save(self, path: Path) -> None:
        """Writes the file, and its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"header": self.header, "values": self.values, "notes": self.notes, "series": self.series}
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Inverse of `save`."""
        return cls(**json.loads(path.read_text()))
