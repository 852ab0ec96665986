"""What a model says of its use, over HTTP and through real processes: prompts by purpose, how vectors are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.heavy import sentence_transformers
from tests.integration.encoder.tiny_model import TinyModel, save
from tests.processes import Roles, wait_until

TEXT = "what a text says"
NAME = "handbook"


def served(roles: Roles, **settings: Any) -> httpx.Client:
    """A client of a web tier with both workers behind it."""
    roles.worker(**settings)
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
        ({"query": "query: ", "passage": "a passage: "}, None, ("query", "passage")),
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
    with served(roles, model=folder, served_name="tiny", compute="torch", threads=1) as http:
        told = http.get("/v1/models/tiny").json()
        assert (told["query_prompt"], told["document_prompt"]) == purposes
        for word in ("query", "search_query", "retrieval.query"):
            np.testing.assert_allclose(vector(http, input_type=word), expected["query"], atol=1e-5)
        for word in ("document", "passage", "search_document"):
            np.testing.assert_allclose(vector(http, input_type=word), expected["document"], atol=1e-5)
        untyped = library.encode(TEXT, normalize_embeddings=True)
        np.testing.assert_allclose(vector(http), untyped, atol=1e-5)
        ingested(http)
        assert score(http, vector=expected["document"].tolist()) == pytest.approx(1, abs=1e-4)
        both = float(expected["query"] @ expected["document"])
        assert score(http, query=TEXT) == pytest.approx(both, abs=1e-4)


@pytest.mark.model
def test_a_model_that_does_not_compare_by_cosine_says_so_and_its_ingestions_warn(roles: Roles, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", similarity_fn_name="dot")
    with served(roles, model=folder, served_name="tiny", compute="torch", threads=1) as http:
        assert http.get("/v1/models").json()["data"][0]["similarity"] == "dot"
        (warning,) = ingested(http)["warnings"]
    assert warning.startswith("tiny compares vectors by dot product. Datasets are searched by cosine")
