"""Nearest rows."""

import numpy as np
import numpy.typing as npt
import pytest

from tasks.datasets.sqlite.ranking import Hit, Ranking

ROWS = np.array([[1, 0], [0, 2], [-1, 0], [3, 3]], dtype=np.float32)


def nearest(rows: npt.NDArray[np.float32], query: npt.NDArray[np.float32], k: int, block_rows: int = 100) -> list[Hit]:
    ranking = Ranking(query, k)
    for first in range(0, len(rows), block_rows):
        ranking.add(first, rows[first : first + block_rows])
    return ranking.hits


def test_rows_are_ranked_by_cosine_not_by_length() -> None:
    hits = nearest(ROWS, np.array([10, 0], dtype=np.float32), 4)
    assert [hit.row for hit in hits] == [0, 3, 1, 2]
    np.testing.assert_allclose([hit.score for hit in hits], [1, 0.5**0.5, 0, -1], atol=1e-6)


def test_k_beyond_the_rows_gives_all_rows() -> None:
    assert len(nearest(ROWS, ROWS[0], 100)) == 4


def test_no_rows_no_hits() -> None:
    assert nearest(np.empty((0, 2), dtype=np.float32), ROWS[0], 5) == []


def test_rows_without_a_direction_are_never_hits() -> None:
    rows = np.array([[np.nan, np.nan], [0, 0], [1, 1], [np.inf, 1]], dtype=np.float32)
    with np.errstate(invalid="raise"):
        assert [hit.row for hit in nearest(rows, ROWS[0], 4)] == [2]


def test_equal_scores_come_in_row_order_across_blocks() -> None:
    rows = np.tile(ROWS[:1], (10, 1))
    assert [hit.row for hit in nearest(rows, ROWS[0], 5, block_rows=3)] == [0, 1, 2, 3, 4]


def test_blocks_change_nothing() -> None:
    random = np.random.default_rng(7)
    rows = random.normal(size=(1000, 16)).astype(np.float32)
    whole = nearest(rows, rows[3], 10)
    pieces = nearest(rows, rows[3], 10, block_rows=17)
    assert [hit.row for hit in pieces] == [hit.row for hit in whole]
    assert whole[0].row == 3
    assert whole[0].score == pytest.approx(1)


@pytest.mark.parametrize("query", [[0, 0], [np.nan, 1], [1, 2, 3]])
def test_a_query_that_cannot_be_compared_is_refused(query: list[float]) -> None:
    with pytest.raises(ValueError, match=r"direction|another model"):
        nearest(ROWS, np.array(query, dtype=np.float32), 1)
