"""How services usually put a model behind FastAPI, as people write it.

`python -m bench.baselines DESIGN --model FOLDER --port N`

| design | what it does |
|---|---|
| `blocking` | calls `encode` inside `async def` |
| `to_thread` | hands `encode` to a thread |
| `locked` | the same under one lock, so that one `encode` runs at a time |

| `--engine` | `encode` of |
|---|---|
| `torch` | `SentenceTransformer` in float32 |
| `openvino` | `SentenceTransformer` with its OpenVINO back end |
| `fastembed` | fastembed's `TextEmbedding`, which is ONNX Runtime |

All of them: one process, batches of 32, OpenAI's answer as JSON floats. This file imports nothing of the project: the
engines that are peers run in environments of their own.
"""

import argparse
import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

Vectors = list[list[float]]
Encode = Callable[[list[str]], Vectors]

DESIGNS = ("blocking", "to_thread", "locked")
_BATCH = 32
_WARM = ["the first pass is slow", "and so is the first one of several texts, " * 20]


class Body(BaseModel):
    """What an OpenAI client sends."""

    input: str | list[str]


def encoder(design: str, load: Callable[[int], Encode]) -> Callable[[list[str]], Awaitable[Vectors]]:
    """The heart of the design. `load` takes the number of threads that one `encode` may use.

    A model is loaded and warmed in the thread that serves. A thread that has computed keeps a team of helpers (OpenMP).
    While there are more of them than cores, idle ones included, libgomp does not let them spin (`GOMP_SPINCOUNT`).
    """
    cores = len(os.sched_getaffinity(0))
    if design == "blocking":
        encode = load(cores)
        encode(_WARM)

        async def blocking(texts: list[str]) -> Vectors:
            return encode(texts)

        return blocking
    threads, helpers = (1, cores) if design == "locked" else (cores, 1)
    pool = ThreadPoolExecutor(threads)
    encode = pool.submit(load, helpers).result()
    _warm(pool, threads, encode)
    lock = asyncio.Lock()

    async def to_thread(texts: list[str]) -> Vectors:
        return await asyncio.get_running_loop().run_in_executor(pool, encode, texts)

    async def locked(texts: list[str]) -> Vectors:
        async with lock:
            return await to_thread(texts)

    return locked if design == "locked" else to_thread


def create_app(encode: Callable[[list[str]], Awaitable[Vectors]]) -> FastAPI:
    """The service."""
    app = FastAPI()

    @app.post("/v1/embeddings")
    async def embeddings(body: Body) -> dict[str, Any]:
        vectors = await encode([body.input] if isinstance(body.input, str) else body.input)
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return {"object": "list", "model": "baseline", "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    return app


def _warm(pool: ThreadPoolExecutor, threads: int, encode: Encode) -> None:
    """One pass in every thread of the pool: the barrier keeps each of them busy until all have come."""
    all_there = threading.Barrier(threads)

    def one() -> None:
        all_there.wait()
        encode(_WARM)

    for done in [pool.submit(one) for _ in range(threads)]:
        done.result()


def _torch(folder: str, device: str | None, threads: int) -> Encode:
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch: `set_num_threads` would not reach every thread
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - an engine among others

    model = SentenceTransformer(folder, device=device, model_kwargs={"dtype": "float32"})
    return lambda texts: _listed(model, texts)


def _openvino(folder: str, _: str | None, threads: int) -> Encode:
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above

    options = {"ov_config": {"INFERENCE_NUM_THREADS": threads}}
    model = SentenceTransformer(folder, device="cpu", backend="openvino", model_kwargs=options)
    return lambda texts: _listed(model, texts)


def _listed(model: Any, texts: list[str]) -> Vectors:
    vectors = model.encode(texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False)
    return vectors.tolist()  # type: ignore[no-any-return]


def _fastembed(folder: str, _: str | None, threads: int) -> Encode:
    from fastembed import TextEmbedding  # noqa: PLC0415 - as above
    from fastembed.common.model_description import ModelSource, PoolingType  # noqa: PLC0415 - as above

    name, pooling = "bench/model", json.loads(Path(folder, "1_Pooling", "config.json").read_text())
    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.CLS if pooling["pooling_mode_cls_token"] else PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=pooling["word_embedding_dimension"],
        model_file="model.onnx",
    )
    model = TextEmbedding(name, specific_model_path=folder, threads=threads)
    return lambda texts: [vector.tolist() for vector in model.embed(texts, batch_size=_BATCH)]


_ENGINES = {"torch": _torch, "openvino": _openvino, "fastembed": _fastembed}


def main() -> int:
    """Loads the model and serves until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines")
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--engine", choices=_ENGINES, default="torch")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True, help="a folder, or a hub id that is in the cache")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    engine, device = _ENGINES[options.engine], None if options.device == "auto" else options.device
    encode = encoder(options.design, lambda threads: engine(options.model, device, threads))
    uvicorn.run(create_app(encode), port=options.port, log_level="warning", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
