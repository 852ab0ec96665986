"""Models as an overview of the ledger shows them, and what makes tasks for them."""

from typing import Any

import orjson

from api.schemas.embeddings import TaskBody
from api.served_models import ServedModels
from api.submit import NewTasks
from api.waiting.wait_for_vectors import wanted_for
from tasks.ledger.heartbeat import Worker
from tasks.ledger.overview import Queue
from tasks.ledger.task import Lane, NewTask
from tasks.model import Model
from tasks.records.api_keys import ALL_SCOPES, Key
from tasks.wire.embeddings_body import EmbeddingsBody
from worker_config.settings import load_settings

MODEL = "test/model"
ENTRY = Model(
    id=MODEL,
    model=MODEL,
    revision="r",
    dimension=8,
    max_tokens=100,
    prompts=("query",),
    device="cpu",
    compute="fake",
    precision="float32",
    created_at=0,
    query_prompt="query",
)
WORKER = Worker(
    id="w",
    pid=1,
    host="h",
    started_at=0,
    rate=2000,
    rss_bytes=0,
    forward_passes=0,
    items=0,
    tokens=0,
    padded_tokens=0,
)


def overview(*, workers: int = 2, rate: float | None = 4000, online: int = 0, owners: int = 1) -> Queue:
    """`online`: what waits in the online lane, of so many `owners`."""
    return Queue(
        MODEL,
        ENTRY,
        (WORKER,) * workers,
        rate=rate,
        backlog_cost={Lane.ONLINE: online, Lane.BULK: 0},
        owners={Lane.ONLINE: owners if online else 0, Lane.BULK: 0},
    )


def served(seen: Queue | None = None, **settings: Any) -> ServedModels:
    """What is served, once a worker has been `seen`; None: none has been."""
    loaded = load_settings(served_name=MODEL, **settings)
    models = ServedModels(loaded, several=lambda: len(loaded.api_keys) > 1)
    if seen is not None:
        models.update({MODEL: seen})
    return models


def new_tasks(seen: Queue | None = None, **settings: Any) -> NewTasks:
    """What makes tasks, likewise."""
    return NewTasks(load_settings(served_name=MODEL, **settings), served(seen, **settings))


ME = Key(name="me", owner="me", digests=(), scopes=ALL_SCOPES, created=0)


def task(made_by: NewTasks, **fields: Any) -> NewTask:
    """Of a body of `POST /v1/tasks`."""
    return made_by.listed(ME, made_by.read(TaskBody, orjson.dumps(fields)), None)


def synchronous(made_by: NewTasks, wait_s: float = 20, **fields: Any) -> NewTask:
    """Of a body of `POST /v1/embeddings`."""
    return made_by.awaited(ME, made_by.read(EmbeddingsBody, orjson.dumps(fields)), wanted_for(wait_s))
