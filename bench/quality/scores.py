"""Runs a data set through a service and scores the vectors."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bench.quality.datasets import Pairs, Retrieval
from bench.quality.metrics import ndcg, recall, reciprocal_rank, row_cosines, spearman
from embedq import EmbeddingService

_TEXTS_PER_TASK = 1000
_DEPTH = 100
_QUERIES_AT_ONCE = 256

Vectors = npt.NDArray[np.float32]


async def score_pairs(service: EmbeddingService, pairs: Pairs) -> Mapping[str, float]:
    """By metric. The sentences travel as a caller who waits would send them."""
    vectors = np.array(await service.get_embeddings([*pairs.first, *pairs.second]), dtype=np.float32)
    half = len(pairs.first)
    return {"Spearman of cosine": spearman(row_cosines(vectors[:half], vectors[half:]), pairs.scores)}


async def document_vectors(service: EmbeddingService, data: Retrieval, prompt: str | None = None) -> Vectors:
    """Of the documents, in order. They travel as bulk tasks."""
    options = {} if prompt is None else {"prompt_name": prompt}
    texts = list(data.documents.values())
    pieces = [texts[start : start + _TEXTS_PER_TASK] for start in range(0, len(texts), _TEXTS_PER_TASK)]
    tasks = [await service.submit(piece, lane="bulk", **options) for piece in pieces]  # type: ignore[arg-type]  # one of its keys
    return np.concatenate([await service.result((await service.wait(task.id)).id) for task in tasks])


async def query_vectors(service: EmbeddingService, data: Retrieval, prompt: str | None = None) -> Vectors:
    """Of the queries, in order. They travel by a caller who waits."""
    options = {} if prompt is None else {"prompt_name": prompt}
    return np.array(await service.get_embeddings(list(data.queries.values()), **options), dtype=np.float32)  # type: ignore[arg-type]  # as above


def score_retrieval(data: Retrieval, queries: Vectors, documents: Vectors, ids: Sequence[str]) -> Mapping[str, float]:
    """By metric. `ids` are those of the documents, in the order of their vectors."""
    rankings = rank(_unit(queries), _unit(documents), list(data.queries), ids)
    judged = [(ranking, data.relevance[query]) for query, ranking in zip(data.queries, rankings, strict=True)]
    return {
        "nDCG@10": _mean([ndcg(ranking, relevance, 10) for ranking, relevance in judged]),
        "MRR@10": _mean([reciprocal_rank(ranking, relevance, 10) for ranking, relevance in judged]),
        "R@100": _mean([recall(ranking, relevance, _DEPTH) for ranking, relevance in judged]),
    }


def rank(
    queries: Vectors, documents: Vectors, query_ids: Sequence[str], document_ids: Sequence[str]
) -> list[list[str]]:
    """Ids of the nearest documents of each query, nearest first; a document with the query's own id is left out."""
    depth = min(_DEPTH + 1, len(document_ids))
    rankings = []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        cosines = queries[start : start + _QUERIES_AT_ONCE] @ documents.T
        for query_id, row in zip(query_ids[start:], cosines, strict=False):
            best = np.argsort(-row, kind="stable")[:depth]
            ids = [document_ids[index] for index in best.tolist()]
            rankings.append([document_id for document_id in ids if document_id != query_id][:_DEPTH])
    return rankings


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
