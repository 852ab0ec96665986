"""Nearest rows by cosine, and what the owner of vectors is told whose model means another similarity."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tasks.datasets.sqlite.ranking import Hit, Ranking
from tasks.ingestion.skip_unchanged import warning
from tests.ledger_builders import a_model

ROWS = np.array([[1, 0], [0, 2], [-1, 0], [3, 3]], dtype=np.float32)


def nearest(rows: npt.NDArray[Any], query: Any, k: int, block_rows: int = 100) -> list[Hit]:
    ranking = Ranking(np.array(query, dtype=np.float32), k)
    for first in range(0, len(rows), block_rows):
        ranking.add(first, rows[first : first + block_rows])
    return ranking.hits


def test_rows_are_ranked_by_cosine_not_by_length() -> None:
    hits = nearest(ROWS, [10, 0], 100)
    assert [hit.row for hit in hits] == [0, 3, 1, 2]
    np.testing.assert_allclose([hit.score for hit in hits], [1, 0.5**0.5, 0, -1], atol=1e-6)
    assert nearest(np.empty((0, 2), dtype=np.float32), ROWS[0], 5) == []
    rows = np.array(
        [[np.nan, np.nan], [0, 0], [1, 1], [np.inf, 1]], dtype=np.float32
    )  # but for one without a direction
    with np.errstate(invalid="raise"):
        assert [hit.row for hit in nearest(rows, ROWS[0], 4)] == [2]
    for query in ([0, 0], [np.nan, 1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"direction|another model"):
            nearest(ROWS, query, 1)
    assert [hit.row for hit in nearest(np.tile(ROWS[:1], (10, 1)), ROWS[0], 5, block_rows=3)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("similarity", "operator"),
    [("dot", "<#>"), ("euclidean", "<->"), ("manhattan", "<+>"), ("cosine", ""), ("of a later version", "")],
)
def test_another_similarity_is_said_with_its_operator(similarity: str, operator: str) -> None:
    entry = a_model(similarity=similarity)
    end = f'with "normalize": false, and search it by {operator}.' if operator else ""
    for spec in ({"sink": {"type": "dataset"}, "normalize": False}, {"sink": {"type": "postgresql"}}):
        said = warning(spec, entry)
        assert said.endswith(end)
        assert bool(said) == bool(end)
    assert warning({"sink": {"type": "postgresql"}, "normalize": False}, entry) == ""
