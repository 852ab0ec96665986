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


async def score_retrieval(
    service: EmbeddingService, data: Retrieval, *, query_prompt: str | None = None, document_prompt: str | None = None
) -> Mapping[str, float]:
    """By metric. Documents travel as bulk tasks, queries by a caller who waits."""
    documents = await _bulk(service, list(data.documents.values()), document_prompt)
    prompt = {} if query_prompt is None else {"prompt_name": query_prompt}
    queries = np.array(await service.get_embeddings(list(data.queries.values()), **prompt), dtype=np.float32)  # type: ignore[arg-type]  # one of its keys
    rankings = rank(_unit(queries), _unit(documents), list(data.queries), list(data.documents))
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
            found = np.argsort(-row, kind="stable")[:depth]
            ids = [document_ids[index] for index in found.tolist()]
            rankings.append([document_id for document_id in ids if document_id != query_id][:_DEPTH])
    return rankings


async def _bulk(service: EmbeddingService, texts: Sequence[str], prompt: str | None) -> Vectors:
    options = {} if prompt is None else {"prompt_name": prompt}
    pieces = [texts[start : start + _TEXTS_PER_TASK] for start in range(0, len(texts), _TEXTS_PER_TASK)]
    tasks = [await service.submit(piece, lane="bulk", **options) for piece in pieces]  # type: ignore[arg-type]  # as above
    return np.concatenate([await service.result((await service.wait(task.id)).id) for task in tasks])


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
