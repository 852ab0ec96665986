"""The units of a claim: what they ask of the model, and what becomes of each. Pure.

A unit carries its texts, or refers to rows in the storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.encoder.interface import Text
from tasks.item import ItemError, Vector
from tasks.ledger import ClaimedUnit, Finished, OutcomeKind
from tasks.storage.row_file import UnitReference
from tasks.storage.vector_part import PartReference


def rows_of(unit: ClaimedUnit) -> UnitReference | None:
    """Where its rows are, from its own first one on; None for a unit that carries its texts."""
    reference = UnitReference.from_payload(unit.payload)
    return replace(reference, first=reference.first + unit.offset) if reference else None


@dataclass(frozen=True, slots=True)
class UnitTexts:
    """A unit and what it has at each item: a text, or the error of a row that has none.

    `reference`: where its rows are; None when it carries its texts.
    """

    unit: ClaimedUnit
    items: Sequence[Text | ItemError]
    reference: UnitReference | None = None

    @classmethod
    def from_unit(cls, unit: ClaimedUnit) -> "UnitTexts":
        """The texts in its payload, each with the task's options."""
        return cls(unit, [Text(text, unit.options) for text in unit.texts()])

    @property
    def texts(self) -> list[Text]:
        """Those to encode."""
        return [item for item in self.items if not isinstance(item, ItemError)]

    def outcomes(self, vectors: Sequence[Vector]) -> list[Vector]:
        """One for each item; `vectors` has one for each text."""
        encoded = iter(vectors)
        return [Vector.failed(item) if isinstance(item, ItemError) else next(encoded) for item in self.items]

    def finished(self, outcomes: Sequence[Vector], part: PartReference | None = None) -> Finished:
        """What to commit: where the outcomes are, or the vectors themselves."""
        tokens = sum(outcome.tokens for outcome in outcomes)
        if part is not None:
            failed = sum(outcome.error is not None for outcome in outcomes)
            return Finished(self.unit, OutcomeKind.PART, part.to_json(), tokens, failed_in_part=failed)
        first = self.unit.first
        return Finished(
            unit=self.unit,
            kind=OutcomeKind.VECTORS,
            outcome=_rows(outcomes),
            tokens=tokens,
            errors={first + i: outcome.error for i, outcome in enumerate(outcomes) if outcome.error is not None},
            truncated=[first + i for i, outcome in enumerate(outcomes) if outcome.truncated and outcome.error is None],
        )


def _rows(vectors: Sequence[Vector]) -> bytes:
    """Little-endian float32 rows of one unit; a failed item is a row of NaN; empty when all failed."""
    first = next((item.vector for item in vectors if item.vector is not None), None)
    if first is None:
        return b""
    rows = np.full((len(vectors), len(first)), np.nan, dtype="<f4")
    for row, item in zip(rows, vectors, strict=True):
        if item.vector is not None:
            row[:] = item.vector
    return rows.tobytes()
