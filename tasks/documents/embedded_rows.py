"""Rows by reference beside what became of them: to write down a batch, and to load a page of an ingestion."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasks.errors import NotStored
from tasks.item import TextError
from tasks.ledger.task import Committed, CommittedUnit
from tasks.storage.row_file import Places
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, RowError, RowOutcome, read_part

_ROWS_AT_ONCE = 64
_UNPROCESSABLE = 422
"""What the synchronous call answers for a text that kills its worker."""

EmbeddedRow: TypeAlias = tuple[int, bytes, RowOutcome | RowError | TextError]
"""Number, line and outcome: vectors, the error that the endpoint would answer, or why it was never executed."""


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
    embedded: Committed
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
        for unit in self.embedded.units:
            yield from self._without_part(places, at, unit.first)
            yield from self._with_part(places, unit)
            at = unit.first + unit.items
        yield from self._without_part(places, at, self.rows)

    def _with_part(self, places: Places, unit: CommittedUnit) -> Iterator[EmbeddedRow]:
        outcomes = self._outcomes(unit)
        lines = self._lines(places, unit.first, unit.items)
        for offset, (line, outcome) in enumerate(zip(lines, outcomes, strict=True)):
            yield unit.first + offset, line, outcome

    def _outcomes(self, unit: CommittedUnit) -> Sequence[RowOutcome | TextError]:
        try:
            rows = read_part(self.storage, PartReference.from_json(unit.data))
        except NotStored:
            if self.lost is None:
                raise
            rows = []
        return [self.lost] * unit.items if self.lost and len(rows) != unit.items else rows

    def _without_part(self, places: Places, first: int, end: int) -> Iterator[EmbeddedRow]:
        for start in range(first, end, _ROWS_AT_ONCE):
            for offset, line in enumerate(self._lines(places, start, min(_ROWS_AT_ONCE, end - start))):
                error = self.embedded.errors.get(start + offset)
                failed = RowError(error.code, error.message, status=_UNPROCESSABLE) if error else self.unanswered
                yield start + offset, line, failed

    def _lines(self, places: Places, first: int, count: int) -> list[bytes]:
        self.progress()
        return places.rows(self.source, first, count)
