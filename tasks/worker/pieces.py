"""The pieces of a claim: what they ask of the model, and what becomes of each. Pure.

A piece carries its texts, or refers to rows in the storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tasks.encoder.interface import Text
from tasks.item import TextError, Vector
from tasks.ledger.task import Outcome, Piece
from tasks.storage.row_file import RowReference
from tasks.storage.vector_part import PartReference


def rows_of(piece: Piece) -> RowReference | None:
    """Where its rows are, from its own first one on; None for a piece that carries its texts."""
    reference = RowReference.from_payload(piece.payload)
    return replace(reference, first=reference.first + piece.offset) if reference else None


@dataclass(frozen=True, slots=True)
class PieceTexts:
    """A piece and what it has at each place: a text, or the error of a row that has none.

    `rows`: where its rows are; None when it carries its texts.
    """

    piece: Piece
    items: Sequence[Text | TextError]
    rows: RowReference | None = None

    @classmethod
    def carried(cls, piece: Piece) -> "PieceTexts":
        """The texts in its payload, each with the task's options."""
        return cls(piece, [Text(text, piece.options) for text in piece.texts()])

    @property
    def texts(self) -> list[Text]:
        """Those to encode."""
        return [item for item in self.items if not isinstance(item, TextError)]

    def vectors(self, encoded: Sequence[Vector]) -> list[Vector]:
        """One for each item; `encoded` has one for each text."""
        found = iter(encoded)
        return [Vector.failed(item) if isinstance(item, TextError) else next(found) for item in self.items]

    def outcome(self, vectors: Sequence[Vector], part: PartReference | None = None) -> Outcome:
        """What to commit: where the vectors are, or they themselves."""
        tokens = sum(vector.tokens for vector in vectors)
        if part is not None:
            failed = sum(vector.error is not None for vector in vectors)
            return Outcome(self.piece, part.to_json(), tokens, failed_in_part=failed)
        first = self.piece.first
        return Outcome(
            piece=self.piece,
            data=_rows(vectors),
            tokens=tokens,
            errors={first + i: vector.error for i, vector in enumerate(vectors) if vector.error is not None},
            truncated=[first + i for i, vector in enumerate(vectors) if vector.truncated and vector.error is None],
        )


def _rows(vectors: Sequence[Vector]) -> bytes:
    """Little-endian float32 rows of one piece; a failed text is a row of NaN; empty when all failed."""
    first = next((item.vector for item in vectors if item.vector is not None), None)
    if first is None:
        return b""
    rows = np.full((len(vectors), len(first)), np.nan, dtype="<f4")
    for row, item in zip(rows, vectors, strict=True):
        if item.vector is not None:
            row[:] = item.vector
    return rows.tobytes()
