"""How services usually put a model behind FastAPI, as people write it: `python -m bench.baselines DESIGN --port N`.

| design | what it does |
|---|---|
| `blocking` | calls `encode` inside `async def` |
| `to_thread` | hands `encode` to a thread |
| `locked` | the same under one lock, so that one `encode` runs at a time |

All of them: `SentenceTransformer` in float32 with its default batch of 32, one process, OpenAI's answer as JSON floats.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

from bench.servers.others import DESIGNS
from tasks.model.location import locate
from worker_config.settings import DEFAULT_MODEL

Vectors = list[list[float]]


class Body(BaseModel):
    """What an OpenAI client sends."""

    input: str | list[str]


def encoder(design: str, model: SentenceTransformer) -> Callable[[list[str]], Awaitable[Vectors]]:
    """The heart of the design."""
    lock = asyncio.Lock()

    def encode(texts: list[str]) -> Vectors:
        vectors: Vectors = model.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()
        return vectors

    async def blocking(texts: list[str]) -> Vectors:
        return encode(texts)

    async def to_thread(texts: list[str]) -> Vectors:
        return await asyncio.to_thread(encode, texts)

    async def locked(texts: list[str]) -> Vectors:
        async with lock:
            return await asyncio.to_thread(encode, texts)

    return {"blocking": blocking, "to_thread": to_thread, "locked": locked}[design]


def create_app(design: str, model: SentenceTransformer) -> FastAPI:
    """The service."""
    app = FastAPI()
    encode = encoder(design, model)

    @app.post("/v1/embeddings")
    async def embeddings(body: Body) -> dict[str, Any]:
        vectors = await encode([body.input] if isinstance(body.input, str) else body.input)
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        return {"object": "list", "model": "baseline", "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}}

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "ok"}

    return app


def main() -> int:
    """Loads the model and serves until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m bench.baselines")
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = None if options.device == "auto" else options.device
    model = SentenceTransformer(locate(options.model), device=device, model_kwargs={"dtype": "float32"})
    model.encode(["the first pass is slow"])
    uvicorn.run(create_app(options.design, model), port=options.port, log_level="warning", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
