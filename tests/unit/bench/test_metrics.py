"""Metrics against cases that were worked out by hand."""

import math

import numpy as np
import pytest

from bench.quality.metrics import ndcg, ranks, recall, reciprocal_rank, row_cosines, spearman
from bench.quality.scores import rank


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks(np.array([10.0, 20.0, 20.0, 5.0, 20.0])).tolist() == [2, 4, 4, 1, 4]


def test_spearman_sees_order_alone() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(values, np.exp(values)) == pytest.approx(1)
    assert spearman(values, -values) == pytest.approx(-1)
    # One minus six times the squared differences of ranks, 2, over n (n^2 - 1), 60.
    assert spearman(values, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)


def test_spearman_with_ties_is_pearson_of_the_ranks() -> None:
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(
        4.5 / math.sqrt(4.5 * 5)
    )


def test_cosines_of_rows() -> None:
    first, second = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[6.0, 8.0], [0.0, 2.0]])
    assert row_cosines(first, second).tolist() == pytest.approx([1, 0])


@pytest.mark.parametrize(
    ("ranking", "relevance", "expected"),
    [
        (["a", "b"], {"a": 1}, 1.0),
        (["b", "a"], {"a": 1}, 1 / math.log2(3)),
        (["x", "a", "y", "b"], {"a": 1, "b": 1}, (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))),
        (["b", "a"], {"a": 2, "b": 1}, (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))),
        (["x", "y", "a"], {"a": 1}, 0.5),
        (["x", "y", "z", "a"], {"a": 1}, 1 / math.log2(5)),
        (["x"], {"a": 1}, 0.0),
        (["x"], {"x": 0}, 0.0),
    ],
)
def test_ndcg(ranking: list[str], relevance: dict[str, int], expected: float) -> None:
    assert ndcg(ranking, relevance, 10) == pytest.approx(expected)


def test_ndcg_looks_no_further_than_k() -> None:
    assert ndcg(["x", "y", "a"], {"a": 1}, 2) == 0
    # Three are relevant and two places are there: two in place are perfect.
    assert ndcg(["a", "b", "x"], {"a": 1, "b": 1, "c": 1}, 2) == pytest.approx(1)


def test_reciprocal_rank() -> None:
    assert reciprocal_rank(["x", "y", "a", "b"], {"a": 1, "b": 1, "y": 0}, 10) == pytest.approx(1 / 3)
    assert reciprocal_rank(["x", "y", "a"], {"a": 1}, 2) == 0


def test_recall() -> None:
    assert recall(["a", "x", "b"], {"a": 1, "b": 1, "c": 2, "x": 0}, 3) == pytest.approx(2 / 3)
    assert recall(["a", "x", "b"], {"a": 1, "b": 1}, 2) == 0.5
    assert recall(["a"], {"a": 0}, 1) == 0


def test_documents_are_ranked_by_cosine_and_a_querys_own_id_is_left_out() -> None:
    documents = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32)
    queries = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    assert rank(queries, documents, ["q", "c"], ["a", "b", "c"]) == [["a", "b", "c"], ["b", "a"]]
