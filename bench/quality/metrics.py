"""Metrics of retrieval and of similarity, with numpy alone.

Retrieval as in trec_eval and BEIR: gain is the relevance itself, discounted by log2(rank + 1); means are over queries.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
Relevance = Mapping[str, int]
"""Document id -> relevance; above 0 is relevant."""


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Spearman's correlation of two arrays of one dimension: Pearson's of their ranks, equal values sharing theirs."""
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def ranks(values: FloatArray) -> npt.NDArray[np.float64]:
    """Ranks from 1; equal values get the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return mean


def row_cosines(first: FloatArray, second: FloatArray) -> FloatArray:
    """Cosine of row i of one and row i of the other, float [n]."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines: FloatArray = np.einsum("ij,ij->i", first, second) / norms
    return cosines


def ndcg(ranking: Sequence[str], relevance: Relevance, k: int) -> float:
    """Normalised discounted cumulative gain of the first `k`; 0 when nothing is relevant."""
    ideal = _gain(sorted(relevance.values(), reverse=True)[:k])
    return _gain([relevance.get(document, 0) for document in ranking[:k]]) / ideal if ideal else 0.0


def reciprocal_rank(ranking: Sequence[str], relevance: Relevance, k: int) -> float:
    """One over the rank of the first relevant document; 0 when there is none among the first `k`."""
    return next((1 / rank for rank, document in enumerate(ranking[:k], 1) if relevance.get(document, 0) > 0), 0.0)


def recall(ranking: Sequence[str], relevance: Relevance, k: int) -> float:
    """The part of the relevant documents that is among the first `k`; 0 when none is relevant."""
    relevant = {document for document, grade in relevance.items() if grade > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def _gain(grades: Sequence[int]) -> float:
    return float(sum(grade / np.log2(rank + 1) for rank, grade in enumerate(grades, 1)))
