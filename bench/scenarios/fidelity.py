"""Whether the vectors of a server are those of the library: a server that computes something else is no measure.

`python -m bench.scenarios.fidelity` prints the library's own.
"""

import json
import subprocess
import sys
from functools import cache

import numpy as np
import numpy.typing as npt

from bench import texts
from bench.load.run import CHECKOUT, LoadError
from bench.quality.metrics import row_cosines
from bench.scenarios.client import open_client
from bench.scenarios.observed import Observed
from bench.scenarios.workload import Workload
from bench.sizes import Sizes
from tasks.encoder.locate import locate
from tasks.pieces import pieces
from worker_config.settings import child_environment, load_settings

_EACH = 32
_SEED = 2_000_003
_AT_ONCE = 32

Vectors = npt.NDArray[np.float64]


def cosines(workload: Workload, _: Sizes) -> Observed:
    """The least cosine between a vector of the server and that of the library."""
    found = []
    with open_client(workload.server) as client:
        for inputs in pieces(_texts(), _AT_ONCE):
            body = {"model": workload.server.model, "input": list(inputs)}
            answer = client.post("/embeddings", json=body).raise_for_status().json()
            found += [item["embedding"] for item in answer["data"]]
    vectors, expected = np.array(found), _expected()
    assert vectors.shape == expected.shape, f"{vectors.shape} numbers, and the library has {expected.shape}"
    return Observed({"fidelity_least": float(row_cosines(vectors, expected).min())})


def _texts() -> list[str]:
    return [*texts.passages(_EACH, _SEED), *texts.queries(_EACH, _SEED)]


@cache
def _expected() -> Vectors:
    """In a process of its own: this one must not load torch beside what it measures."""
    command = [sys.executable, "-m", "bench.scenarios.fidelity"]
    environment = {**child_environment(), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=CHECKOUT, env=environment, check=False)
    if done.returncode:
        raise LoadError(f"the library's encoder ended with {done.returncode}")
    return np.array(json.loads(done.stdout))


def _library() -> list[list[float]]:
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - heavy

    settings = load_settings()
    model = SentenceTransformer(
        str(locate(settings.model)),
        device="cpu",
        model_kwargs={"dtype": "float32"},
        trust_remote_code=settings.trust_remote_code,
    )
    vectors: list[list[float]] = model.encode(_texts(), normalize_embeddings=True, show_progress_bar=False).tolist()
    return vectors


if __name__ == "__main__":
    print(json.dumps(_library()))
