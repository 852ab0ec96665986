"""Metrics against cases that were worked out by hand."""

import math

import numpy as np
import pytest

from bench.quality import ranked, retrieval_scores


@pytest.mark.parametrize(
    ("ranking", "relevance", "expected"),
    [
        ("ab", {"a": 1}, (1, 1, 1)),
        ("ba", {"a": 1}, (1 / math.log2(3), 1 / 2, 1)),
        ("xayb", {"a": 1, "b": 1}, ((1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3)), 1 / 2, 1)),
        ("ba", {"a": 2, "b": 1}, ((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)), 1, 1)),
        ("0123456789a", {"a": 1, "b": 1}, (0, 0, 1 / 2)),
        ("x", {"a": 1}, (0, 0, 0)),
        ("x", {"x": 0}, (0, 0, 0)),
    ],
)
def test_scores_of_a_ranking(ranking: str, relevance: dict[str, int], expected: tuple[float, ...]) -> None:
    assert tuple(retrieval_scores(list(ranking), relevance).values()) == pytest.approx(expected)


def test_documents_are_ranked_by_cosine_and_a_querys_own_id_is_left_out() -> None:
    documents = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]])
    queries = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert list(ranked(queries, documents, ["q", "c"], ["a", "b", "c"])) == [["a", "b", "c"], ["b", "a"]]
