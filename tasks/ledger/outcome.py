"""What a worker commits of a unit, and what the ledger says to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import orjson

from tasks.ledger.types import ClaimedUnit, ItemError


@dataclass(frozen=True, slots=True)
class Finished:
    """One unit's outcome, to be committed.

    Attributes:
        vectors: little-endian float32 rows of all its items; NaN rows for failed ones; empty when none has one. Of
            a unit by reference the JSON of a `parts.PartReference`, of a job what it returned.
        errors: index in the task -> error.
        truncated: indexes in the task.
        tokens: sum over its items, after truncation, special tokens included.
        failed_in_part: items that failed and whose errors are in the part, not in `errors`.
    """

    unit: ClaimedUnit
    vectors: bytes
    tokens: int
    errors: Mapping[int, ItemError] = field(default_factory=dict)
    truncated: Sequence[int] = ()
    failed_in_part: int = 0

    @property
    def failed(self) -> int:
        """How many of its items have failed."""
        return len(self.errors) + self.failed_in_part

    def extra(self) -> bytes:
        """Errors and truncations as stored beside the vectors; empty when there are none."""
        if not self.errors and not self.truncated:
            return b""
        return orjson.dumps(
            {"errors": [[i, e.code, e.message] for i, e in self.errors.items()], "truncated": list(self.truncated)}
        )


class CommitOutcome(IntEnum):
    """What COMMIT did with one unit."""

    STALE = 0
    """The lease was lost or the task has ended: nothing changed."""
    COMMITTED = 1
    REPEATED = 2
    """An earlier call of the same claim had already committed it, with the same vectors."""
