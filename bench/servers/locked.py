"""How services usually put a model behind FastAPI: `encode` in a thread under one lock, one process, batches of 32.

`python -m bench.servers.locked --model FOLDER --port N [--backend openvino]`. It imports nothing of the project: with
the OpenVINO back end it runs in an environment of its own.
"""

import argparse
import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

_BATCH = 32
_WARM = ["the first pass is slow", "and so is the first one of several texts, " * 20]


class Body(BaseModel):
    """What an OpenAI client sends."""

    input: str | list[str]


class Model:
    """Loaded, warmed and used in one thread: a thread that has computed keeps a team of helpers (OpenMP)."""

    def __init__(self, folder: str, backend: str, device: str | None) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._lock = asyncio.Lock()
        self._model = self._thread.submit(_load, folder, backend, device).result()
        self._thread.submit(self._encode, _WARM).result()

    async def encode(self, texts: list[str]) -> list[list[float]]:
        """The vectors, in order."""
        async with self._lock:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts)

    def _encode(self, texts: list[str]) -> list[list[float]]:
        vectors = self._model.encode(texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False)
        return vectors.tolist()  # type: ignore[no-any-return]


def create_app(model: Model) -> FastAPI:
    """The service, with OpenAI's answer as JSON floats."""
    app = FastAPI()

    @app.post("/v1/embeddings")
    async def embeddings(body: Body) -> dict[str, Any]:
        vectors = await model.encode([body.input] if isinstance(body.input, str) else body.input)
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return {"object": "list", "model": "locked", "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _load(folder: str, backend: str, device: str | None) -> Any:
    cores = len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(cores)  # before torch: `set_num_threads` would not reach every thread
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - reads the environment when it is imported

    if backend == "openvino":
        options = {"ov_config": {"INFERENCE_NUM_THREADS": cores}}
        return SentenceTransformer(folder, device="cpu", backend="openvino", model_kwargs=options)
    return SentenceTransformer(folder, device=device, model_kwargs={"dtype": "float32"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.servers.locked")
    parser.add_argument("--model", required=True, help="a folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backend", choices=("torch", "openvino"), default="torch")
    parser.add_argument("--device")
    parsed = parser.parse_args()
    uvicorn.run(
        create_app(Model(parsed.model, parsed.backend, parsed.device)),
        port=parsed.port,
        log_level="warning",
        access_log=False,
    )
