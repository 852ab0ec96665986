"""The rows nearest to a vector by cosine: exact, and in blocks, so that data may exceed the memory."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


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


def row_lengths(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The length of each row; not finite, or 0, for one without a direction."""
    lengths: npt.NDArray[np.float32] = np.linalg.norm(vectors, axis=1)
    return lengths


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
