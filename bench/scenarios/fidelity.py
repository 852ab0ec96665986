"""Whether the vectors of a server are those of the library: a server that computes something else is no measure."""

import os
from functools import cache
from typing import Any

import numpy as np

from bench import texts
from bench.load import apart
from bench.report import Observed
from bench.scenarios.workload import Workload
from bench.sizes import Sizes
from tasks.encoder.locate import locate
from worker_config.settings import load_settings

_EACH = 32
_SEED = 2_000_003


def cosines(workload: Workload, _: Sizes) -> Observed:
    """The least cosine between a vector of the server and that of the library."""
    found = []
    with workload.server.client() as client:
        for inputs in _texts():
            answer = client.post("/embeddings", json={"model": workload.server.model, "input": inputs})
            found += [item["embedding"] for item in answer.raise_for_status().json()["data"]]
    vectors = np.array(found)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Observed({"fidelity_least": float((vectors * _expected()).sum(axis=1).min())})


def _texts() -> list[list[str]]:
    return [texts.passages(_EACH, _SEED), texts.queries(_EACH, _SEED)]


@cache
def _expected() -> Any:
    return apart(_library)


def _library() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - heavy

    settings = load_settings()
    model = SentenceTransformer(
        str(locate(settings.model)),
        device="cpu",
        model_kwargs={"dtype": "float32"},
        trust_remote_code=settings.trust_remote_code,
    )
    return np.concatenate([model.encode(each, normalize_embeddings=True) for each in _texts()])
