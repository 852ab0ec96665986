"""What one scenario saw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.load.plan import LoadResult


@dataclass(frozen=True, slots=True)
class Observed:
    """Figures by key (see `bench.report.catalog`), what a reader must know of them, and samples over time by name."""

    values: Mapping[str, float]
    notes: Sequence[str] = field(default_factory=tuple)
    series: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)


def of_load(what: str, result: LoadResult, bodies: int, values: Mapping[str, float]) -> Observed:
    """Figures of one load; failed and repeated requests become notes, and figures without an answer are left out."""
    notes = []
    if result.errors:
        how = ", ".join(f"{number} with {reason}" for reason, number in result.reasons.items())
        first = result.refusal and f"; the first answer: {result.refusal}"
        notes.append(
            f"{what}: {result.errors} of {result.errors + result.requests} requests failed{how and f' ({how})'}{first}"
        )
    if result.requests > bodies:
        notes.append(f"{what}: only {bodies} different bodies for {result.requests} requests; repetitions are cheaper")
    return Observed({key: value for key, value in values.items() if math.isfinite(value)}, notes)
