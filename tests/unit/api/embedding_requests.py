"""Models as an overview of the ledger shows them, and what makes submissions for them."""

from typing import Any

from api.queue.served_models import ServedModels
from api.queue.submission import EmbeddingRequests
from tasks.ledger import Lane, ModelEntry, ModelOverview, WorkerEntry
from worker_config.settings import load_settings

MODEL = "test/model"
ENTRY = ModelEntry(
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
WORKER = WorkerEntry(
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


def overview(
    *,
    workers: int = 2,
    rate: float | None = 4000,
    online: int = 0,
    tasks: int = 1,
    others: dict[str, int] | None = None,
) -> ModelOverview:
    """`online`: what "me" has queued in the online lane, in so many `tasks`."""
    owners = {"me": online} | (others or {})
    return ModelOverview(
        queue=MODEL,
        entry=ENTRY,
        workers=(WORKER,) * workers,
        rate=rate,
        backlog_cost={Lane.ONLINE: sum(owners.values()), Lane.BULK: 0},
        backlog_tasks={Lane.ONLINE: 0, Lane.BULK: 0},
        backlog_bytes=0,
        leases=0,
        counters={},
        memory_percent=0,
        owner_cost={Lane.ONLINE: {owner: cost for owner, cost in owners.items() if cost}, Lane.BULK: {}},
        owner_tasks={Lane.ONLINE: {"me": tasks}, Lane.BULK: {}},
    )


def requests(seen: ModelOverview | None = None, **settings: Any) -> EmbeddingRequests:
    """What makes submissions, once a worker has been `seen`; None: none has been."""
    loaded = load_settings(served_name=MODEL, **settings)
    registry = ServedModels(loaded, several=lambda: len(loaded.api_keys) > 1)
    if seen is not None:
        registry.update({MODEL: seen})
    return EmbeddingRequests(loaded, registry)
