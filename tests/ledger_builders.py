"""Values of the ledger for tests: complete and plain, with what a test is about given by name."""

from typing import Any

from tasks.item import Options
from tasks.ledger.heartbeat import Worker
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tasks.model import Model

UNLIMITED = Admission(max_backlog_s=1e9)


def a_model(**changed: Any) -> Model:
    values: dict[str, Any] = {
        "id": "m",
        "model": "org/model",
        "revision": "abc",
        "dimension": 384,
        "max_tokens": 256,
        "prompts": ("query", "passage"),
        "device": "cpu",
        "compute": "torch",
        "precision": "float32",
        "created_at": 1,
        "query_prompt": "query",
        "document_prompt": "passage",
    }
    return Model(**(values | changed))


def a_worker(worker_id: str = "w", rate: float = 0, **changed: Any) -> Worker:
    values: dict[str, Any] = {
        "id": worker_id,
        "pid": 1,
        "host": "h",
        "started_at": 0,
        "rate": rate,
        "rss_bytes": 0,
    }
    return Worker(**(values | changed))


def new_task(**changed: Any) -> NewTask:
    """A task `t` of queue `m` for the online lane: one piece of one text that costs 10."""
    values: dict[str, Any] = {
        "task_id": "t",
        "queue": "m",
        "lane": Lane.ONLINE,
        "owner": "anonymous",
        "pieces": (NewPiece(items=1, cost=10, payload=b'["a"]'),),
        "options": Options(),
        "ttl_ms": 3_600_000,
        "admission": UNLIMITED,
    }
    return NewTask(**(values | changed))
