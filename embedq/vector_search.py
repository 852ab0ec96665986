"""Nearest rows by cosine, in an array or in Parquet parts. Exact, and in blocks, so that data may exceed the memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from embedq.errors import BadInputError

BLOCK_ROWS = 65_536
PARQUET_SUFFIX = ".parquet"
VECTOR_COLUMN = "embedding"
BATCH_ROWS = 4096
"""Rows of a Parquet part read at a time: 16 MiB of vectors of 1,024 numbers."""


class Hit(NamedTuple):
    """A row and its cosine with the query."""

    row: int
    score: float


def nearest(
    vectors: npt.NDArray[np.floating], query: npt.NDArray[np.floating], k: int, *, block_rows: int = BLOCK_ROWS
) -> list[Hit]:
    """The `k` rows nearest to the query, best first; equal scores in row order.

    Neither side needs length 1. Rows of NaN (texts that failed) and of zeros are never hits.

    Raises:
        ValueError: rows and query differ in length, or the query has no direction.
    """
    if vectors.shape[1] != query.shape[0]:
        raise ValueError(f"the rows have {vectors.shape[1]} numbers and the query {query.shape[0]}: another model?")
    length = float(np.linalg.norm(query))
    if not np.isfinite(length) or length == 0:
        raise ValueError("the query's vector has no direction")
    best: list[Hit] = []
    for first in range(0, len(vectors), block_rows):
        scores = _cosines(np.asarray(vectors[first : first + block_rows], dtype=np.float32), query / length)
        # A stable sort, so that of equal scores the lower row comes first; blocks are small.
        top = np.argsort(-scores, kind="stable")[:k]
        best += [Hit(first + int(row), float(scores[row])) for row in top if np.isfinite(scores[row])]
        best = sorted(best, key=lambda hit: -hit.score)[:k]
    return best


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row of a dataset and its cosine with the query; `fields` are all columns but the vector."""

    score: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _PartHit:
    score: float
    part: int
    row: int


class ParquetParts:
    """The Parquet parts of an ingestion's output, searched as one.

    Args:
        parts: the files, in order.
        batch_rows: rows read at a time.

    Raises:
        BadInputError: pyarrow is not installed.
    """

    def __init__(self, parts: Sequence[Path], *, batch_rows: int = BATCH_ROWS) -> None:
        self._parquet = _pyarrow_parquet()
        self._parts = parts
        self._batch_rows = batch_rows

    def nearest(self, query: npt.NDArray[np.floating], k: int) -> list[FoundRow]:
        """The `k` rows nearest to the query, best first; equal scores in the order of parts and rows.

        Raises:
            BadInputError: a part cannot be read, or has no column of vectors.
            ValueError: the rows have another length than the query: another model.
        """
        best: list[_PartHit] = []
        for number in range(len(self._parts)):
            for first, vectors in self._vectors(number):
                best += [_PartHit(hit.score, number, first + hit.row) for hit in nearest(vectors, query, k)]
                best = sorted(best, key=lambda hit: -hit.score)[:k]
        rows = {
            (number, row): fields
            for number in {hit.part for hit in best}
            for row, fields in self._rows(number, {hit.row for hit in best if hit.part == number})
        }
        return [FoundRow(hit.score, rows[hit.part, hit.row]) for hit in best]

    def _vectors(self, number: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The vectors of a part in pieces, each with the number of its first row."""
        first = 0
        with self._open(number) as file:
            if VECTOR_COLUMN not in file.schema_arrow.names:
                raise BadInputError(
                    f"{self._parts[number]} has no column {VECTOR_COLUMN!r}: not the output of `ingest`"
                )
            for batch in file.iter_batches(self._batch_rows, columns=[VECTOR_COLUMN]):
                column = batch.column(0)
                width = getattr(column.type, "list_size", 0)
                if not width or column.null_count:
                    raise BadInputError(f"{self._parts[number]}: {VECTOR_COLUMN!r} is not a list of one fixed size")
                values = column.flatten().to_numpy(zero_copy_only=False)
                yield first, np.asarray(values, dtype=np.float32).reshape(-1, width)
                first += batch.num_rows

    def _rows(self, number: int, wanted: set[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        with self._open(number) as file:
            columns = [name for name in file.schema_arrow.names if name != VECTOR_COLUMN]
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                rows = sorted(row for row in wanted if first <= row < after)
                if rows:
                    table = file.read_row_group(group, columns=columns)
                    yield from zip(rows, table.take([row - first for row in rows]).to_pylist(), strict=True)
                first = after

    def _open(self, number: int) -> Any:
        try:
            return self._parquet.ParquetFile(self._parts[number])
        except ValueError as error:  # pyarrow's own errors are of this kind
            raise BadInputError(f"{self._parts[number]} is not a Parquet file ({error})") from None


def parts_in(path: Path) -> list[Path]:
    """The Parquet files at a place: itself, or those of a folder, in order; [] where there are none."""
    if path.is_dir():
        return sorted(part for part in path.glob(f"*{PARQUET_SUFFIX}") if part.is_file())
    return [path] if path.suffix == PARQUET_SUFFIX and path.is_file() else []


def _pyarrow_parquet() -> ModuleType:
    try:
        # An extra, and too slow to import for commands that do not need it.
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise BadInputError("Parquet files need pyarrow: pip install pyarrow") from None
    parquet: ModuleType = pyarrow.parquet
    return parquet


def _cosines(block: npt.NDArray[np.float32], direction: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    lengths = np.linalg.norm(block, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    cosines = np.full(len(block), -np.inf, dtype=np.float32)
    cosines[usable] = block[usable] @ direction.astype(np.float32) / lengths[usable]
    return cosines
