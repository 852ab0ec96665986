"""Exact search: the chunks of a dataset that are nearest to a vector."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from embedq.vector_search import FoundRow, Ranking
from tasks.records.datasets import Catalog, DatasetPart
from tasks.search.kept import Held, vector_bytes
from tasks.search.parts import PartReader, Vectors
from tasks.search.row_filter import RowFilter

CHUNK_COLUMNS = ("doc_id", "chunk_index", "text", "start", "end", "page", "headings", "metadata")
_MODEL_BYTES = 1024


def nearest_chunks(
    reader: PartReader, catalog: Catalog, query: npt.NDArray[np.floating], k: int, among: RowFilter | None = None
) -> list[FoundRow]:
    """The `k` chunks nearest to a query by cosine, best first.

    Vectors of a dataset that fits into what the reader keeps are read from the storage once, each part by itself: the
    next version of the dataset has most parts of this one. Those of a larger one are read at each search, in pieces.
    Everything else is read of the chunks that were found.

    Raises:
        ValueError: the query has no direction, or another length than the vectors of the dataset.
        StorageUnavailable, NotStored, NotReady: as `PartReader`.
    """
    ranking = Ranking(query, k)
    parts = catalog.listed
    sizes = {_key(part): vector_bytes(part.rows, catalog.dimension) for part in parts}
    with reader.kept_vectors.together(sizes) as held:
        first = 0
        for part in parts:
            rows = None if among is None else among.rows(reader, part)
            if rows is None or rows.any():
                _rank(ranking, first, _vectors(reader, catalog, part, held), rows)
            first += part.rows
    return _found(reader, parts, ranking)


def _key(part: DatasetPart) -> Hashable:
    return ("vectors", part.stored)


def _vectors(reader: PartReader, catalog: Catalog, part: DatasetPart, held: Held | None) -> Iterator[Vectors]:
    if held is None:
        yield from reader.vectors(part)
    else:
        yield held.value(_key(part), lambda: reader.whole_vectors(part, catalog.dimension))


def _rank(ranking: Ranking, first: int, vectors: Iterator[Vectors], among: npt.NDArray[np.bool_] | None) -> None:
    at = 0
    for piece in vectors:
        end = at + len(piece.rows)
        ranking.add(first + at, piece.rows, piece.lengths, None if among is None else among[at:end])
        at = end


def _found(reader: PartReader, parts: list[DatasetPart], ranking: Ranking) -> list[FoundRow]:
    rows: dict[int, Mapping[str, Any]] = {}
    first = 0
    for part in parts:
        wanted = [hit.row - first for hit in ranking.hits if first <= hit.row < first + part.rows]
        if wanted:
            fields = reader.rows(part, wanted, CHUNK_COLUMNS)
            rows |= {first + row: fields[row] for row in fields}
        first += part.rows
    return [FoundRow(hit.score, rows[hit.row]) for hit in ranking.hits]


def model_of(reader: PartReader, catalog: Catalog) -> str | None:
    """The name under which the model of a dataset was served; None where the dataset has no rows. Raises the same."""
    part = next(iter(catalog.listed), None)
    if part is None:
        return None
    key = ("model", part.stored)
    row = reader.kept.value(key, _MODEL_BYTES, lambda: reader.rows(part, [0], ["model"])[0])
    return str(row["model"])
