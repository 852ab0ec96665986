"""Units that carry their texts: what they ask of the model, and what is committed for them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.ledger import ClaimedUnit, Finished, ItemError
from tasks.model.types import EncodeOptions, ItemVector, TextItem


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A unit and its texts."""

    unit: ClaimedUnit
    items: Sequence[TextItem]

    @classmethod
    def of(cls, unit: ClaimedUnit) -> "TextUnit":
        """The texts in its payload, each with the task's options."""
        o = unit.options
        options = EncodeOptions(
            prompt_name=o.prompt_name, dimensions=o.dimensions, normalize=o.normalize, truncate=o.truncate
        )
        return cls(unit, [TextItem(text, options) for text in unit.texts()])

    def finished(self, vectors: Sequence[ItemVector]) -> Finished:
        """What to commit; `vectors` has one outcome per text."""
        first = self.unit.first
        return Finished(
            unit=self.unit,
            vectors=_rows(vectors),
            tokens=sum(vector.tokens for vector in vectors),
            errors={
                first + i: ItemError(vector.error.code, vector.error.message)
                for i, vector in enumerate(vectors)
                if vector.error is not None
            },
            truncated=[first + i for i, vector in enumerate(vectors) if vector.truncated and vector.error is None],
        )


def _rows(vectors: Sequence[ItemVector]) -> bytes:
    """Little-endian float32 rows of one unit; a failed item is a row of NaN; empty when all failed."""
    found = next((item.vector for item in vectors if item.vector is not None), None)
    if found is None:
        return b""
    rows = np.full((len(vectors), len(found)), np.nan, dtype="<f4")
    for row, item in zip(rows, vectors, strict=True):
        if item.vector is not None:
            row[:] = item.vector
    return rows.tobytes()
