"""Nearest rows of a matrix, by cosine. Exact, in blocks, so that a mapped file larger than memory can be searched."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK_ROWS = 65_536


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


def _cosines(block: npt.NDArray[np.float32], direction: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    lengths = np.linalg.norm(block, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    cosines = np.full(len(block), -np.inf, dtype=np.float32)
    cosines[usable] = block[usable] @ direction.astype(np.float32) / lengths[usable]
    return cosines
