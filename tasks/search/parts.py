"""Parquet parts of datasets in the storage, read by ranges of bytes: what is asked for, and no more."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from embedq.vector_search import NoVectorsError, read_rows, read_vectors, row_lengths
from tasks.errors import NotReady, NotStored
from tasks.records.datasets import DatasetPart, folders_of
from tasks.search.kept import Kept, room_for_vectors
from tasks.storage.range_file import RangeFile
from tasks.storage.storage import Storage

_FOOTER_BYTES = 32 * 2**10
_DESCRIBED_BYTES = 2048
"""A footer in memory is assumed to take `_FOOTER_BYTES`, and a byte for so many of its part: a row group has 16 columns
and at most 16 MiB."""


class Vectors(NamedTuple):
    """Vectors of consecutive rows: float32 [rows, dimension], and their lengths."""

    rows: npt.NDArray[np.float32]
    lengths: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads parts. For several threads.

    Its methods raise `StorageUnavailable`, `NotReady` when nobody waits any more (`until`), and `NotStored` for a part
    that is gone or damaged.

    Attributes:
        storage: where they are.
        kept_vectors, kept: what stays in memory. Apart, or other things would displace the vectors.
        stopping: whether nobody waits any more; asked before each read.
    """

    storage: Storage
    kept_vectors: Kept
    kept: Kept
    stopping: Callable[[], bool] = lambda: False

    @classmethod
    def within(cls, storage: Storage, max_bytes: int) -> Self:
        """One that keeps so many bytes in memory."""
        vectors = room_for_vectors(max_bytes)
        return cls(storage, Kept(vectors), Kept(max_bytes - vectors))

    def until(self, stopping: Callable[[], bool]) -> Self:
        """The same for a caller who need not be answered once `stopping` is true."""
        return replace(self, stopping=stopping)

    @contextmanager
    def open(self, part: DatasetPart, *, gather: bool = False) -> Iterator[pq.ParquetFile]:
        """A part as a Parquet file. Its footer is read once.

        `gather`: columns that lie together are read together. All of a read is then held: for single row groups only.
        """
        size_bytes = _FOOTER_BYTES + part.size_bytes // _DESCRIBED_BYTES
        with _damage(part):
            footer = self.kept.value(("footer", part.stored), size_bytes, lambda: self._file(part).metadata)
            yield self._file(part, footer, gather=gather)

    def vectors(self, part: DatasetPart, groups: Sequence[int] | None = None) -> Iterator[Vectors]:
        """The vectors of a part, or of some of its row groups, in pieces."""
        with self.open(part) as file:
            for rows in read_vectors(file, row_groups=groups):
                self.check()
                yield Vectors(rows, row_lengths(rows))

    def whole_vectors(self, part: DatasetPart, dimension: int) -> Vectors:
        """All vectors of a part, in one array."""
        whole = Vectors(np.empty((part.rows, dimension), np.float32), np.empty(part.rows, np.float32))
        first = 0
        for piece in self.vectors(part):
            end = first + len(piece.rows)
            whole.rows[first:end], whole.lengths[first:end] = piece
            first = end
        return whole

    def rows(self, part: DatasetPart, wanted: Collection[int], columns: Sequence[str]) -> dict[int, Mapping[str, Any]]:
        """Rows of a part by number, from the row groups alone that have them. These stay, if they are small enough."""
        with self.open(part, gather=True) as file:
            return dict(read_rows(file, wanted, columns, partial(self._group, part, file)))

    def forget(self, owners: AbstractSet[str]) -> None:
        """Drops what is kept of the datasets of these owners."""
        below = tuple(folders_of(owner)[1] for owner in owners)
        for kept in (self.kept_vectors, self.kept):
            kept.forget(lambda key: key[1].startswith(below))  # all keys have what was read there

    def check(self) -> None:
        """Raises `NotReady` when nobody waits any more."""
        if self.stopping():
            raise NotReady("This process is stopping; send the request again.", retry_after_s=1)

    def _group(self, part: DatasetPart, file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        # To decompress the texts of one row group takes 2 to 6 ms, and ten hits may be in as many.
        key = ("rows", part.stored, group, tuple(columns))
        table = self.kept.find(key)
        if table is None:
            self.check()
            table = file.read_row_group(group, columns=columns)
            self.kept.keep(key, table, table.nbytes)
        return table

    def _file(self, part: DatasetPart, footer: Any = None, *, gather: bool = False) -> pq.ParquetFile:
        self.check()
        file = RangeFile(partial(self.storage.read, part.stored), part.size_bytes)
        return pq.ParquetFile(pa.PythonFile(file, mode="r"), metadata=footer, pre_buffer=gather)


def row_groups(file: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """The first row of each row group, and the one behind its last."""
    first = 0
    for group in range(file.num_row_groups):
        end = first + file.metadata.row_group(group).num_rows
        yield first, end
        first = end


@contextmanager
def _damage(part: DatasetPart) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, NoVectorsError, OSError, ValueError) as error:  # pyarrow raises the last two as well
        raise NotStored(f"{part.name} of this dataset is damaged in the storage.") from error
