"""Rows of a batch or of a page as they are written: cut into the pieces of a task."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from tasks.ledger.task import NewPiece, PieceCutter
from tasks.storage.rows_file import RowsReference
from tasks.storage.storage import Storage, Writer

_HELD_BYTES = 256 * 1024


class RowsWriter:
    """Writes rows, and cuts them into pieces."""

    def __init__(self, file: Writer) -> None:
        self._file = file
        self._cutter: PieceCutter | None = None
        self._starts: list[int] = []
        self._held: list[bytes] = []
        self._held_bytes = self._end = 0

    def add(self, row: bytes, cost: int, piece_cost: int) -> None:
        """The next row, without a line break; estimated tokens of it, and the most of a piece.

        Raises like `Writer.write`.
        """
        self._cutter = self._cutter or PieceCutter(piece_cost)
        self._cutter.add(cost)
        if len(self._cutter.pieces) > len(self._starts):
            self._starts.append(self._end)
        self._end += len(row) + 1
        self._held.append(row)
        self._held_bytes += len(row)
        if self._held_bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is held. Raises like `Writer.write`."""
        if self._held:
            self._file.write(b"\n".join(self._held) + b"\n")
            self._held, self._held_bytes = [], 0

    @property
    def rows(self) -> int:
        """Added so far."""
        first, items, _ = self._cutter.pieces[-1] if self._cutter else (0, 0, 0)
        return first + items

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]:
        """Of each piece: number of rows, cost, first byte, bytes. JSON, for `new_pieces`."""
        if self._cutter is None:
            return []
        places = zip(self._cutter.pieces, pairwise([*self._starts, self._end]), strict=True)
        return [(items, cost, start, end - start) for (_, items, cost), (start, end) in places]


@contextmanager
def writing_rows(storage: Storage, name: str) -> Iterator[RowsWriter]:
    """Stores rows under this name; raises like `Storage.writing`."""
    with storage.writing(name) as file:
        rows = RowsWriter(file)
        yield rows
        rows.flush()


def new_pieces(rows: str, pieces: Sequence[Sequence[int]]) -> list[NewPiece]:
    """Pieces of a task, of what `RowsWriter.pieces` says of the object `rows`."""
    return [
        NewPiece(items=items, cost=max(1, cost), payload=RowsReference(rows, at, size).to_payload())
        for items, cost, at, size in pieces
    ]
