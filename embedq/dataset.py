"""A folder of Parquet parts, as an ingestion makes them: searched by cosine without reading it into memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from embedq.collection import BadCollectionError
from embedq.search import nearest

SUFFIX = ".parquet"
VECTOR = "embedding"
BATCH_ROWS = 4096
"""Rows read at a time: 16 MiB of vectors of 1,024 numbers."""


@dataclass(frozen=True, slots=True)
class Found:
    """A row and its cosine with the query; `fields` are all columns but the vector."""

    score: float
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Hit:
    score: float
    part: int
    row: int


class Dataset:
    """Parts that are searched as one.

    Raises:
        BadCollectionError: pyarrow is not installed.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        self._parquet = _pyarrow_parquet()
        self._parts = parts

    def nearest(self, query: npt.NDArray[np.floating], k: int) -> list[Found]:
        """The `k` rows nearest to the query, best first; equal scores in the order of parts and rows.

        Raises:
            BadCollectionError: a part cannot be read, or has no column of vectors.
            ValueError: the rows have another length than the query: another model.
        """
        best: list[_Hit] = []
        for number in range(len(self._parts)):
            for first, vectors in self._vectors(number):
                best += [_Hit(hit.score, number, first + hit.row) for hit in nearest(vectors, query, k)]
                best = sorted(best, key=lambda hit: -hit.score)[:k]
        rows = {
            (number, row): fields
            for number in {hit.part for hit in best}
            for row, fields in self._rows(number, {hit.row for hit in best if hit.part == number})
        }
        return [Found(hit.score, rows[hit.part, hit.row]) for hit in best]

    def _vectors(self, number: int) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The vectors of a part in pieces, each with the number of its first row."""
        first = 0
        with self._open(number) as file:
            if VECTOR not in file.schema_arrow.names:
                raise BadCollectionError(f"{self._parts[number]} has no column {VECTOR!r}: not the output of `ingest`")
            for batch in file.iter_batches(BATCH_ROWS, columns=[VECTOR]):
                column = batch.column(0)
                width = getattr(column.type, "list_size", 0)
                if not width or column.null_count:
                    raise BadCollectionError(f"{self._parts[number]}: {VECTOR!r} is not a list of one fixed size")
                values = column.flatten().to_numpy(zero_copy_only=False)
                yield first, np.asarray(values, dtype=np.float32).reshape(-1, width)
                first += batch.num_rows

    def _rows(self, number: int, wanted: set[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        with self._open(number) as file:
            columns = [name for name in file.schema_arrow.names if name != VECTOR]
            first = 0
            for group in range(file.num_row_groups):
                after = first + file.metadata.row_group(group).num_rows
                here = sorted(row for row in wanted if first <= row < after)
                if here:
                    table = file.read_row_group(group, columns=columns)
                    found = table.take([row - first for row in here]).to_pylist()
                    yield from zip(here, found, strict=True)
                first = after

    def _open(self, number: int) -> Any:
        try:
            return self._parquet.ParquetFile(self._parts[number])
        except ValueError as error:  # pyarrow's own errors are of this kind
            raise BadCollectionError(f"{self._parts[number]} is not a Parquet file ({error})") from None


def parts_in(path: Path) -> list[Path]:
    """The Parquet files at a place: itself, or those of a folder, in order; [] where there are none."""
    if path.is_dir():
        return sorted(part for part in path.glob(f"*{SUFFIX}") if part.is_file())
    return [path] if path.suffix == SUFFIX and path.is_file() else []


def _pyarrow_parquet() -> ModuleType:
    try:
        # An extra, and too slow to import for commands that do not need it.
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise BadCollectionError("Parquet files need pyarrow: pip install pyarrow") from None
    found: ModuleType = pyarrow.parquet
    return found
