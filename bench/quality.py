"""What the vectors are good for: data sets through a service, and their scores.

Retrieval as in trec_eval and BEIR: gain is the relevance itself, discounted by log2(rank + 1); means are over queries.
"""

import asyncio
import csv
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from scipy.stats import spearmanr

from embedq import EmbeddingService
from embedq.ingestions import Ingestions

_DEPTH = 100
_FIELDS = {"id": "_id", "text": ["title", "text"], "separator": " "}
_LOOK_EVERY_S = 0.5

Vectors = npt.NDArray[np.floating]
Scores = Mapping[str, float]


class BadDataError(Exception):
    """The folder does not hold what it should, or the server did not take it. The message names the file."""


async def of_pairs(service: EmbeddingService, file: Path) -> Scores:
    """Of a CSV without header: sentence, sentence, score. Sentences travel as a caller who waits would send them.

    Raises:
        BadDataError: a row is not of this kind.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            first, second, scores = zip(*csv.reader(lines), strict=True)
        expected = np.array(scores, dtype=np.float64)
    except ValueError as error:
        raise BadDataError(f"{file} must have rows of sentence,sentence,score: {error}") from None
    vectors = unit(np.array(await service.get_embeddings([*first, *second])))
    cosines = (vectors[: len(first)] * vectors[len(first) :]).sum(axis=1)
    return {"Spearman of cosine": float(spearmanr(cosines, expected).statistic)}


async def of_retrieval(
    service: EmbeddingService,
    server: Ingestions,
    folder: Path,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
) -> Scores:
    """Of a folder in BEIR's layout: its corpus is ingested, its queries travel by a caller who waits.

    Raises:
        BadDataError: a file is missing or malformed, or the server did not take every document.
    """
    try:
        relevance: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, document, grade = line.split("\t")
            relevance.setdefault(query, {})[document] = int(grade)
        queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl") if row["_id"] in relevance}
        known = sorted(row["_id"] for row in _rows(folder / "corpus.jsonl"))
    except (OSError, KeyError, ValueError) as error:
        raise BadDataError(f"{folder} is no BEIR data set: {error}") from None
    options: Any = {} if query_prompt is None else {"prompt_name": query_prompt}
    asked = np.array(await service.get_embeddings(list(queries.values()), **options))
    ids, documents = await _ingested(server, folder / "corpus.jsonl", document_prompt)
    if sorted(ids) != known:
        raise BadDataError(f"{len(ids)} chunks came back for the {len(known)} documents of {folder}")
    rankings = zip(queries, ranked(asked, documents, list(queries), ids), strict=True)
    scores = [retrieval_scores(ranking, relevance[query]) for query, ranking in rankings]
    return {metric: float(np.mean([each[metric] for each in scores])) for metric in scores[0]}


def unit(vectors: Vectors) -> Vectors:
    """The rows, each of length 1."""
    rows: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows


def ranked(queries: Vectors, documents: Vectors, query_ids: Sequence[str], ids: Sequence[str]) -> Iterator[list[str]]:
    """Ids of the nearest documents of each query, nearest first; a document with the query's own id is left out."""
    documents = unit(documents)
    for query_id, query in zip(query_ids, unit(queries), strict=True):
        nearest = np.argsort(-(documents @ query), kind="stable")[: _DEPTH + 1]
        yield [ids[index] for index in nearest if ids[index] != query_id][:_DEPTH]


def retrieval_scores(ranking: Sequence[str], relevance: Mapping[str, int]) -> Scores:
    """Of one query: gain of the first ten of the best, one over the first relevant of them, part of the relevant."""
    relevant = {document for document, grade in relevance.items() if grade > 0}
    ideal = _gain(sorted(relevance.values(), reverse=True)[:10])
    first = next((rank for rank, document in enumerate(ranking[:10], 1) if document in relevant), None)
    return {
        "nDCG@10": _gain([relevance.get(document, 0) for document in ranking[:10]]) / ideal if ideal else 0.0,
        "MRR@10": 1 / first if first else 0.0,
        "R@100": len(relevant.intersection(ranking[:_DEPTH])) / len(relevant) if relevant else 0.0,
    }


def _gain(grades: Sequence[int]) -> float:
    return float(sum(grade / np.log2(rank + 1) for rank, grade in enumerate(grades, 1)))


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


async def _ingested(server: Ingestions, corpus: Path, prompt: str | None) -> tuple[Sequence[str], Vectors]:
    """Ids and vectors of the documents, one chunk each, on the way that users take: uploaded, ingested, downloaded."""
    file_id = await server.upload(corpus, corpus.name)
    body = {"source": {"files": [file_id], "fields": _FIELDS}, "chunking": {"type": "none"}, "mode": "upsert"}
    ingestion = await server.start(body | ({} if prompt is None else {"prompt_name": prompt}))
    while not ingestion.ended:
        await asyncio.sleep(_LOOK_EVERY_S)
        ingestion = await server.status(ingestion.id)
    await server.delete_upload(file_id)
    if not ingestion.succeeded:
        raise BadDataError(f"the ingestion of {corpus} ended as {ingestion}")
    ids: list[str] = []
    vectors: list[Vectors] = []
    with tempfile.TemporaryDirectory(prefix="embedq-eval-") as folder:
        for part in (await server.output(ingestion.id))["data"]:
            path = Path(folder) / part["name"]
            with path.open("wb") as file:
                await server.download(ingestion.id, part["name"], file)
            table = pq.read_table(path, columns=["doc_id", "embedding"])
            ids += table["doc_id"].to_pylist()
            vectors.append(np.stack(table["embedding"].to_numpy()))
    return ids, np.concatenate(vectors)
