"""What checking a batch must know beside its lines: limits, and what workers have said of their models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.ledger import ModelEntry, ModelOverview
from tasks.ledger.overview import served_name

DEFAULT_RATE = 4000.0
"""Estimated tokens per second while no worker has reported a speed; as SUBMIT assumes."""
UNKNOWN_MODEL_MAX_TOKENS = 512
"""Of a model that no worker has loaded yet; it only prices rows."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one file, and of the units it is cut into."""

    max_lines: int
    max_inputs: int
    max_line_bytes: int
    max_line_inputs: int
    max_input_bytes: int
    unit_max_items: int
    unit_max_tokens: int
    unit_s: float
    max_line_lists: int


@dataclass(frozen=True, slots=True)
class Models:
    """The models that a line may name.

    Attributes:
        own: names of the configured one, the canonical one first: known before any worker has loaded it.
        overviews: what the ledger says, by served name.
    """

    own: Sequence[str]
    overviews: Mapping[str, ModelOverview]

    def served(self, name: str) -> str | None:
        """The canonical name of what a line calls its model; None: nobody serves it."""
        return served_name(name, self.own, self.overviews)

    def entry(self, name: str) -> ModelEntry | None:
        """What a worker said of it; None when none has loaded it."""
        overview = self.overviews.get(name)
        return overview.entry if overview else None

    def max_tokens(self, name: str) -> int:
        """The most tokens that it reads of one text."""
        entry = self.entry(name)
        return entry.max_tokens if entry else UNKNOWN_MODEL_MAX_TOKENS

    def unit_cost(self, name: str, limits: Limits) -> int:
        """Estimated tokens of one unit: what one stream does in `unit_s`, within the limit."""
        return unit_cost(self.overviews.get(name), limits.unit_max_tokens, limits.unit_s)


def unit_cost(overview: ModelOverview | None, max_tokens: int, unit_s: float) -> int:
    """Estimated tokens of one unit: what one stream does in `unit_s`, at most `max_tokens`."""
    rate = (overview.rate if overview else None) or DEFAULT_RATE
    streams = sum(worker.streams for worker in overview.workers) if overview else 0
    return max(1, min(max_tokens, int(unit_s * rate / max(1, streams))))
