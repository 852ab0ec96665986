"""The units of a claim: what they ask of the model, and what becomes of each. Pure.

A unit carries its texts, or refers to rows of a batch in the storage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from tasks.encoder.interface import Text, Vector
from tasks.errors import NotStored, RequestError
from tasks.item import Options, TextError
from tasks.ledger import ClaimedUnit, Finished, OutcomeKind
from tasks.storage.row_file import UnitReference
from tasks.storage.vector_part import RowError, RowOutcome
from tasks.wire.embeddings_body import EmbeddingsBody, read_body
from tasks.wire.field_aliases import HasPrompts


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A unit and its texts."""

    unit: ClaimedUnit
    items: Sequence[Text]

    @classmethod
    def from_unit(cls, unit: ClaimedUnit) -> "TextUnit":
        """The texts in its payload, each with the task's options."""
        return cls(unit, [Text(text, unit.options) for text in unit.texts()])

    def finished(self, vectors: Sequence[Vector]) -> Finished:
        """What to commit; `vectors` has one outcome per text."""
        first = self.unit.first
        return Finished(
            unit=self.unit,
            kind=OutcomeKind.VECTORS,
            outcome=_rows(vectors),
            tokens=sum(vector.tokens for vector in vectors),
            errors={first + i: vector.error for i, vector in enumerate(vectors) if vector.error is not None},
            truncated=[first + i for i, vector in enumerate(vectors) if vector.truncated and vector.error is None],
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


_UNUSABLE = RowError("invalid_request", "This line is no request for embeddings.", RequestError.status)
_GONE = RowError(
    NotStored.code, "The batch's input file was deleted before this request was executed.", RequestError.status
)


@dataclass(frozen=True, slots=True)
class RowUnit:
    """A unit by reference, and the texts of each of its rows, or the error of a row that has none."""

    unit: ClaimedUnit
    reference: UnitReference
    rows: Sequence[Sequence[Text] | RowError]

    @classmethod
    def from_lines(
        cls, unit: ClaimedUnit, reference: UnitReference, lines: Sequence[bytes], model: HasPrompts
    ) -> "RowUnit":
        """`model` has the prompts of rows that say by `input_type` what their texts are."""
        read = RowReader(model)
        return cls(unit, reference, [read.texts(line) for line in lines])

    @classmethod
    def gone(cls, unit: ClaimedUnit, reference: UnitReference) -> "RowUnit":
        """A unit whose rows are not there any more."""
        return cls(unit, reference, [_GONE] * unit.items)

    @property
    def items(self) -> list[Text]:
        """The texts of all rows."""
        return [item for row in self.rows if not isinstance(row, RowError) for item in row]

    def outcomes(self, vectors: Sequence[Vector]) -> list[RowOutcome]:
        """One per row; `vectors` has one outcome per text."""
        outcomes, at = [], 0
        for row in self.rows:
            if isinstance(row, RowError):
                outcomes.append(RowOutcome.failed(row))
            else:
                outcomes.append(_outcome(vectors[at : at + len(row)]))
                at += len(row)
        return outcomes


class RowReader:
    """Reads the rows of a unit, most of which ask for the same: what they ask beside their text is checked once."""

    def __init__(self, model: HasPrompts) -> None:
        self._model = model
        self._checked = b""
        self._options = Options()

    def texts(self, row: bytes) -> Sequence[Text] | RowError:
        """The texts of a row, or the error of one that is no request."""
        try:
            fields = orjson.loads(row)["body"]
            text = fields.get("input")
            if not text or not isinstance(text, str):
                return self._items(read_body(EmbeddingsBody, fields))
            others = _as_json({**fields, "input": None, "user": None})  # each row may have a user; nobody reads it
            if not others or others != self._checked:
                self._options = read_body(EmbeddingsBody, fields).options(self._model)
                self._checked = others
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError, RequestError):
            return _UNUSABLE
        return [Text(text, self._options)]

    def _items(self, body: EmbeddingsBody) -> Sequence[Text]:
        options = body.options(self._model)
        return [Text(text, options) for text in body.input]


def _as_json(fields: dict[str, Any]) -> bytes:
    """To be compared as JSON, and not as objects: in Python 1 equals True. b"": orjson reads deeper than it writes."""
    try:
        return orjson.dumps(fields)
    except TypeError:
        return b""


def _outcome(vectors: Sequence[Vector]) -> RowOutcome:
    only = vectors[0]
    if len(vectors) == 1 and only.vector is not None:  # as in most rows
        return RowOutcome(only.vector[np.newaxis], only.tokens, (0,) if only.truncated else ())
    for index, vector in enumerate(vectors):
        if vector.error is not None:
            return RowOutcome.failed(_as_if_called(vector.error, index))
    return RowOutcome(
        vectors=np.array([vector.vector for vector in vectors if vector.vector is not None], np.float32),
        tokens=sum(vector.tokens for vector in vectors),
        truncated=tuple(index for index, vector in enumerate(vectors) if vector.truncated),
    )


def _as_if_called(error: TextError, index: int) -> RowError:
    """What the synchronous call would have answered."""
    param = f"input[{index}]"
    status = RequestError.status if error.refused else 422
    return RowError(error.code, f"{param}: {error.message}", status, param)
