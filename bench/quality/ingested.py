"""The documents of a data set on the way that users take: uploaded, ingested, and read from the Parquet output."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.quality.datasets import BadDataError, Retrieval
from bench.quality.scores import Vectors
from embedq.ingestions import Ingestions

_FIELDS = {"id": "_id", "text": ["title", "text"], "separator": " "}
_LOOK_EVERY_S = 0.5


async def ingested(server: Ingestions, data: Retrieval, prompt: str | None = None) -> tuple[Sequence[str], Vectors]:
    """Ids and vectors of the documents, one chunk each, by `POST /v1/ingestions`.

    Raises:
        EmbedqClientError: the server refuses, or cannot be reached.
        BadDataError: it did not take every document.
    """
    file_id = await server.upload(data.corpus, f"{data.name}.jsonl")
    try:
        ingestion_id = await _completed(server, data, file_id, prompt)
    finally:
        await server.delete_upload(file_id)
    ids: list[str] = []
    vectors: list[Vectors] = []
    with tempfile.TemporaryDirectory(prefix="embedq-eval-") as folder:
        for part in (await server.output(ingestion_id)).parts:
            path = Path(folder) / part
            with path.open("wb") as file:
                await server.download(ingestion_id, part, file)
            table = pq.read_table(path, columns=["doc_id", "embedding"])
            ids += table["doc_id"].to_pylist()
            vectors += [np.stack(table["embedding"].to_numpy())]
    if sorted(ids) != sorted(data.documents):
        raise BadDataError(f"{len(ids)} chunks came back for the {len(data.documents)} documents of {data.corpus}")
    return ids, np.concatenate(vectors)


async def _completed(server: Ingestions, data: Retrieval, file_id: str, prompt: str | None) -> str:
    body = {"source": {"files": [file_id], "fields": _FIELDS}, "chunking": {"type": "none"}, "mode": "upsert"}
    ingestion = await server.start(body | ({} if prompt is None else {"prompt_name": prompt}))
    while not ingestion.ended:
        await asyncio.sleep(_LOOK_EVERY_S)
        ingestion = await server.status(ingestion.id)
    if not ingestion.succeeded:
        raise BadDataError(f"the ingestion of {data.corpus} ended as {ingestion.raw}")
    return ingestion.id
