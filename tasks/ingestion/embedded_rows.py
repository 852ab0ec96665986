"""Rows by reference beside what became of them: to write down a batch, and to load a page of an ingestion."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasks.errors import NotStored
from tasks.item import TextError, Vector
from tasks.ledger.task import Result, StoredPiece
from tasks.records.documents import read_lines
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference, read_vectors

_PROGRESS_EVERY = 64

EmbeddedRow: TypeAlias = tuple[int, bytes, Vector | TextError]
"""Number, line and outcome: what became of its text, or why nothing did."""


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """The rows of an embed task.

    Attributes:
        rows: stored name of the lines; `count`: how many there are.
        embedded: what is committed of the task.
        unanswered: what becomes of rows that nobody came to.
        lost: what becomes of rows whose vectors are gone or damaged; None: `NotStored` is raised.
        progress: called at least once for every 64 rows.
    """

    storage: Storage
    rows: str
    count: int
    embedded: Result
    unanswered: TextError
    progress: Callable[[], None]
    lost: TextError | None = None

    def __iter__(self) -> Iterator[EmbeddedRow]:
        """Every row in order, each once.

        Raises:
            NotStored: rows are gone, or vectors, and nothing is said of rows whose vectors are lost.
            StorageUnavailable: the storage does not answer.
        """
        outcomes, number = self._outcomes(), 0
        for line in read_lines(self.storage, self.rows):
            if number % _PROGRESS_EVERY == 0:
                self.progress()
            outcome = next(outcomes, None)
            if outcome is None:
                break
            yield number, line, outcome
            number += 1
        if number != self.count:
            raise NotStored(f"{self.rows} has not {self.count} rows.")

    def _outcomes(self) -> Iterator[Vector | TextError]:
        """Of each row."""
        at = 0
        for piece in self.embedded.pieces:
            yield from self._without_vectors(at, piece.first)
            yield from self._of_piece(piece)
            at = piece.first + piece.items
        yield from self._without_vectors(at, self.count)

    def _of_piece(self, piece: StoredPiece) -> Sequence[Vector | TextError]:
        try:
            rows = read_vectors(self.storage, VectorsReference.from_json(piece.data))
        except NotStored:
            if self.lost is None:
                raise
            rows = []
        return [self.lost] * piece.items if self.lost and len(rows) != piece.items else rows

    def _without_vectors(self, first: int, end: int) -> Iterator[Vector | TextError]:
        for number in range(first, end):
            error = self.embedded.stored_errors.get(number)
            yield Vector.failed(error) if error else self.unanswered
