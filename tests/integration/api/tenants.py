"""Tenants with one of everything, and all that Redis holds of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import redis

from tasks.records.jobs import JobStatus
from tests.integration.api.jobs import FAILED, end
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL
from tests.made_datasets import document, load

SECRET = "hidden-word"
"""In all names, texts and metadata of Bob's."""
NAME = f"{SECRET}-{'b' * 8}"
"""Of a dataset."""
OF_NOBODY = {"{model_id}", "{path}"}
"""Parts of paths that name nothing of a tenant's."""


@dataclass(frozen=True, slots=True)
class Things:
    """What a tenant has, by the part of a path that names it."""

    parts: Mapping[str, tuple[str, ...]]
    document: str

    def addresses(self, path: str) -> list[str]:
        """A path of the document with each thing of the tenant that fits."""
        named = [part for part in self.parts if part in path]
        for outer in [part for part in named if any(part != other and part in other for other in named)]:
            named.remove(outer)
        paths = [path]
        for part in named:
            paths = [one.replace(part, value) for one, value in product(paths, self.parts[part])]
        assert not any("{" in one for one in paths), f"{path}: a part of its path is not known here"
        return paths

    @property
    def ids(self) -> list[str]:
        """All that must never be told to others."""
        own = (values for part, values in self.parts.items() if "/" not in part and part not in OF_NOBODY)
        return [value for values in own for value in values]


def make_things(client: httpx.Client, worker: LedgerWorker, root: Path, owner: str) -> Things:
    """One of each kind. `client` has the tenant's key."""
    word = SECRET if owner == "bob" else "word"
    dataset = NAME if owner == "bob" else f"{'w' * (len(NAME) - 2)}.d"

    def post(path: str, *, named: bool = False, **content: Any) -> str:
        headers = {"idempotency-key": f"{path} of {owner}"} if named else {}
        answer = client.post(path, headers=headers, **content)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    ended = post("/v1/tasks", json={"input": f"{word} 1", "metadata": {"a": word}}, named=True)
    worker.work()
    waiting = post("/v1/tasks", json={"input": f"{word} 2"})
    form, file = {"purpose": "batch"}, {"file": (f"{word}.jsonl", f'{{"custom_id": "{word}"}}\n'.encode())}
    file_id = post("/v1/files", data=form, files=file)
    batch = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch_id, failed = post("/v1/batches", json=batch, named=True), post("/v1/batches", json=batch)
    end(worker.ledger, failed, JobStatus.FAILED)
    source = {"documents": [{"id": f"{word} doc", "text": f"{word} text"}]}
    sink = {"type": "dataset", "dataset": dataset}
    running = post("/v1/ingestions", json={"source": source, "sink": sink}, named=True)
    ingested = post("/v1/ingestions", json={"source": source})
    end(worker.ledger, ingested, counts=FAILED)
    rows = document(f"{word} doc", [1, 2, 3, 4], metadata={word: word}, text=word)
    load(root, rows, owner=client.get("/v1/key").json()["owner"], name=dataset)
    parts = {
        "{task_id}": (ended, waiting),
        "{file_id}": (file_id,),
        "{batch_id}": (batch_id, failed),
        "{ingestion_id}": (running, ingested),
        "{ingestion_id}/output/{name}": (f"{running}/output/part-000000001-1.parquet",),
        "{name}": (dataset,),
        "{model_id}": (MODEL,),
        "{path}": ("console.css",),
    }
    return Things(parts, f"{word} doc")


def contents(client: "redis.Redis", key: bytes) -> object:
    """The value of a key of any type."""
    readers: dict[object, Callable[[], object]] = {
        b"hash": lambda: client.hgetall(key),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1, withscores=True),
        b"list": lambda: client.lrange(key, 0, -1),
        b"string": lambda: client.get(key),
    }
    return readers[client.type(key)]()
