"""Rows by reference beside what became of them: to write down a batch, and to load a page of an ingestion."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasks.errors import NotStored
from tasks.item import TextError, Vector
from tasks.ledger.task import Result, StoredPiece
from tasks.storage.row_file import Places
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, read_part

_ROWS_AT_ONCE = 64

EmbeddedRow: TypeAlias = tuple[int, bytes, Vector | TextError]
"""Number, line and outcome: what became of its text, or why nothing did."""


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """The rows of an embed task.

    Attributes:
        source, index: stored names of the lines and of their index.
        rows: how many there are.
        embedded: what is committed of the task.
        unanswered: what becomes of rows that nobody came to.
        lost: what becomes of rows whose part is gone or damaged; None: `NotStored` is raised.
        progress: called at least once for every 64 rows.
    """

    storage: Storage
    source: str
    index: str
    rows: int
    embedded: Result
    unanswered: TextError
    progress: Callable[[], None]
    lost: TextError | None = None

    def __iter__(self) -> Iterator[EmbeddedRow]:
        """Every row in order, each once.

        Raises:
            NotStored: rows are gone, or parts, and nothing is said of rows whose part is lost.
            StorageUnavailable: the storage does not answer.
        """
        at, places = 0, Places(self.storage, self.index, 0, self.rows)
        for piece in self.embedded.pieces:
            yield from self._without_part(places, at, piece.first)
            yield from self._with_part(places, piece)
            at = piece.first + piece.items
        yield from self._without_part(places, at, self.rows)

    def _with_part(self, places: Places, piece: StoredPiece) -> Iterator[EmbeddedRow]:
        outcomes = self._outcomes(piece)
        lines = self._lines(places, piece.first, piece.items)
        for offset, (line, outcome) in enumerate(zip(lines, outcomes, strict=True)):
            yield piece.first + offset, line, outcome

    def _outcomes(self, piece: StoredPiece) -> Sequence[Vector | TextError]:
        try:
            rows = read_part(self.storage, PartReference.from_json(piece.data))
        except NotStored:
            if self.lost is None:
                raise
            rows = []
        return [self.lost] * piece.items if self.lost and len(rows) != piece.items else rows

    def _without_part(self, places: Places, first: int, end: int) -> Iterator[EmbeddedRow]:
        for start in range(first, end, _ROWS_AT_ONCE):
            for offset, line in enumerate(self._lines(places, start, min(_ROWS_AT_ONCE, end - start))):
                error = self.embedded.stored_errors.get(start + offset)
                yield start + offset, line, Vector.failed(error) if error else self.unanswered

    def _lines(self, places: Places, first: int, count: int) -> list[bytes]:
        self.progress()
        return places.rows(self.source, first, count)
