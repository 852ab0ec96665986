"""Nearest rows by cosine, in an array or in Parquet parts. Exact, and in blocks, so that data may exceed the memory.

The server's search of a dataset ranks with the same functions (`tasks/datasets/`). They need numpy alone, and pyarrow
where a Parquet file is read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
BATCH_BYTES = 16 * 2**20
"""Of a Parquet part at most so many rows, and so many bytes of vectors, are read at a time."""


class Hit(NamedTuple):
    """A row and its cosine with the query."""

    row: int
    score: float


class Ranking:
    """The `k` rows nearest to a query, of blocks of rows that are added one after the other.

    Neither side needs length 1. Rows of NaN (texts that failed) and of zeros are never hits.

    Raises:
        ValueError: the query has no direction.
    """

    def __init__(self, query: npt.NDArray[np.floating], k: int) -> None:
        length = float(np.linalg.norm(query))
        if not np.isfinite(length) or length == 0:
            raise ValueError("the query's vector has no direction")
        self._direction = (query / length).astype(np.float32)
        self._k = k
        self.hits: list[Hit] = []
        """Best first; equal scores in the order of rows."""

    def add(
        self,
        first: int,
        vectors: npt.NDArray[np.float32],
        lengths: npt.NDArray[np.float32] | None = None,
        among: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Adds the rows from number `first` on.

        Args:
            first: higher than every row added before.
            vectors: float32 [rows, dimension].
            lengths: what `row_lengths` says of them, where that is known.
            among: the rows that may be hits; None: all.

        Raises:
            ValueError: rows and query differ in length.
        """
        if vectors.shape[1] != len(self._direction):
            raise ValueError(
                f"the rows have {vectors.shape[1]} numbers and the query {len(self._direction)}: another model?"
            )
        scores = _cosines(vectors, self._direction, row_lengths(vectors) if lengths is None else lengths)
        if among is not None:
            scores[~among] = -np.inf
        new = [Hit(first + int(row), float(scores[row])) for row in _highest(scores, self._k)]
        # A stable sort: of equal scores the lower row stays first.
        self.hits = sorted(self.hits + new, key=lambda hit: -hit.score)[: self._k]


def nearest(
    vectors: npt.NDArray[np.floating], query: npt.NDArray[np.floating], k: int, *, block_rows: int = BLOCK_ROWS
) -> list[Hit]:
    """The `k` rows nearest to the query, best first; equal scores in row order. Raises like `Ranking`."""
    ranking = Ranking(query, k)
    for first in range(0, len(vectors), block_rows):
        ranking.add(first, np.asarray(vectors[first : first + block_rows], dtype=np.float32))
    return ranking.hits


def row_lengths(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The length of each row; not finite, or 0, for one without a direction."""
    lengths: npt.NDArray[np.float32] = np.linalg.norm(vectors, axis=1)
    return lengths


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row of a dataset and its cosine with the query; `fields` are all columns but the vector."""

    score: float
    fields: Mapping[str, Any]


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
        ranking = Ranking(query, k)
        ends = [0]
        for part in self._parts:
            first = ends[-1]
            with self._open(part) as file:
                try:
                    for vectors in read_vectors(file, self._batch_rows):
                        ranking.add(first, vectors)
                        first += len(vectors)
                except NoVectorsError as error:
                    raise BadInputError(f"{part}: {error}") from None
            ends.append(first)
        rows: dict[int, Mapping[str, Any]] = {}
        for part, first, end in zip(self._parts, ends, ends[1:], strict=False):
            wanted = [hit.row - first for hit in ranking.hits if first <= hit.row < end]
            if wanted:
                with self._open(part) as file:
                    rows |= {first + row: fields for row, fields in read_rows(file, wanted)}
        return [FoundRow(hit.score, rows[hit.row]) for hit in ranking.hits]

    def _open(self, part: Path) -> Any:
        try:
            return self._parquet.ParquetFile(part)
        except ValueError as error:  # pyarrow's own errors are of this kind
            raise BadInputError(f"{part} is not a Parquet file ({error})") from None


class NoVectorsError(Exception):
    """A Parquet file is not the output of an ingestion."""


def read_vectors(file: Any, batch_rows: int = BATCH_ROWS) -> Iterator[npt.NDArray[np.float32]]:
    """The vectors of a `pyarrow.parquet.ParquetFile` in its order: float32 [up to `batch_rows`, dimension].

    Long vectors come in pieces of fewer rows: `BATCH_BYTES`.

    Raises:
        NoVectorsError: it has no column of vectors.
    """
    if VECTOR_COLUMN not in file.schema_arrow.names:
        raise NoVectorsError(f"no column {VECTOR_COLUMN!r}: not the output of `ingest`")
    width = getattr(file.schema_arrow.field(VECTOR_COLUMN).type, "list_size", 0)
    rows = min(batch_rows, max(1, BATCH_BYTES // (4 * (width or 1))))
    for batch in file.iter_batches(rows, columns=[VECTOR_COLUMN]):
        column = batch.column(0)
        if not width or column.null_count:
            raise NoVectorsError(f"{VECTOR_COLUMN!r} is not a list of one fixed size")
        values = column.flatten().to_numpy(zero_copy_only=False)
        yield np.asarray(values, dtype=np.float32).reshape(-1, width)


def read_rows(file: Any, wanted: Collection[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Rows of a `pyarrow.parquet.ParquetFile` by number, in its order, without their vectors.

    Row groups that have none of them are not read.
    """
    names = [name for name in file.schema_arrow.names if name != VECTOR_COLUMN]
    first = 0
    for group in range(file.num_row_groups):
        after = first + file.metadata.row_group(group).num_rows
        rows = sorted(row for row in wanted if first <= row < after)
        if rows:
            table = file.read_row_group(group, columns=names)
            yield from zip(rows, table.take([row - first for row in rows]).to_pylist(), strict=True)
        first = after


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


def _cosines(
    vectors: npt.NDArray[np.float32], direction: npt.NDArray[np.float32], lengths: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """-inf for a row without a direction."""
    # Not `@`: its library takes all cores for this product, twice the processor time, and on a busy machine several
    # times as long.
    usable = np.isfinite(lengths) & (lengths > 0)
    if usable.all():  # without a copy of the rows
        scores: npt.NDArray[np.float32] = np.vecdot(vectors, direction) / lengths
        return scores
    cosines = np.full(len(vectors), -np.inf, dtype=np.float32)
    cosines[usable] = np.vecdot(vectors[usable], direction) / lengths[usable]
    return cosines


def _highest(scores: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.intp]:
    """Rows of the `k` highest finite scores, best first; equal scores in row order."""
    # Equal to the k-th are more rows than fit, and the sort below takes the first of them.
    rows = np.arange(len(scores)) if len(scores) <= k else np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    rows = rows[np.isfinite(scores[rows])]
    best: npt.NDArray[np.intp] = rows[np.argsort(-scores[rows], kind="stable")][:k]
    return best
