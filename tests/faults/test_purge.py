"""A tenant that is purged in the middle of its work, while whoever purges and whoever works is killed."""

import json
import threading
from typing import Any

import httpx
import pytest

from stack.testing import ApiProcess, RedisServer, Roles, wait_until
from tests.bulk import line
from tests.faults.conftest import QUICK
from tests.made_keys import found

pytestmark = pytest.mark.faults

LINES, DOCUMENTS, TASKS = 1500, 100, 100


def begin(client: httpx.Client) -> list[str]:
    """A batch, an ingestion and tasks that take a while; paths of the first two."""
    lines = b"".join(json.dumps(line(f"{n}", f"text {n}")).encode() + b"\n" for n in range(LINES))
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", lines)}).json()["id"]
    batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    documents = [{"id": f"d{n}", "text": f"Some text {n}. " * 20} for n in range(DOCUMENTS)]
    ingestion = {"source": {"documents": documents}, "sink": {"type": "parquet", "dataset": "handbook"}}
    made = [
        (path, client.post(path, json=body)) for path, body in (("/v1/batches", batch), ("/v1/ingestions", ingestion))
    ]
    for n in range(TASKS):
        client.post("/v1/tasks", json={"input": f"task {n}", "lane": "bulk"}).raise_for_status()
    return [f"{path}/{answer.raise_for_status().json()['id']}" for path, answer in made]


def purge_once(api: ApiProcess, key: dict[str, str]) -> dict[str, Any] | None:
    """What a call said; None if nobody answered."""
    try:
        with api.client() as client:
            answer = client.post("/v1/keys/bob/purge", headers=key)
    except httpx.HTTPError:
        return None
    assert answer.status_code in {200, 503}, answer.text
    said: dict[str, Any] = answer.json()
    return said if answer.is_success else None


def test_a_purge_that_is_killed_goes_on_to_the_end(private_redis: RedisServer, private_roles: Roles) -> None:
    root = private_roles.folder / "storage"
    settings: dict[str, Any] = QUICK | {"storage_url": str(root)}
    api = private_roles.api(**settings)
    model, documents = private_roles.worker(**settings), private_roles.documents(**settings)
    api.wait_ready()
    with api.client() as client, private_redis.client() as redis:
        ops, bob = make_keys(client, private_redis.url)
        client.headers.update(bob)
        owner = client.get("/v1/key").json()["owner"]
        paths = begin(client)
        running = lambda: all(client.get(path).json()["status"] == "in_progress" for path in paths)  # noqa: E731
        wait_until(running, message="a batch and an ingestion that run")
        client.post("/v1/keys/bob/revoke", headers=ops).raise_for_status()

        first = threading.Thread(target=purge_once, args=(api, ops))
        first.start()
        wait_until(lambda: redis.exists(f"eq:purge:{owner}"), message="a purge that has begun")
        api.kill()
        documents.kill()
        model.kill_child()
        first.join()
        api.start()
        api.wait_ready()
        documents.start()
        wait_until(lambda: (purge_once(api, ops) or {}).get("done"), message="the end of the purge")

        tokens = [f"eq:q:{queue}:leases" for queue in [*map(bytes.decode, redis.hkeys("eq:models")), "@documents"]]
        wait_until(lambda: not any(map(redis.exists, tokens)), message="nobody to work any more")
        names = [name.decode() for name in redis.scan_iter("*")]
        ids = [path.rpartition("/")[2] for path in paths]
        kinds = ("eq:task:", "eq:result:", "eq:units:", "eq:file:", "eq:batch:", "eq:ingestion:")
        ids.append(owner)
        assert [name for name in names if name.startswith(kinds) or any(one in name for one in ids)] == []
        kept = {"models", "storage-id", "sweeper"}
        assert [str(path) for path in root.rglob("*") if path.is_file() and not kept & {*path.parts, path.name}] == []
        assert int(redis.get("eq:reserved") or 0) == 0
        assert purge_once(api, ops)["deleted"]["bytes"] == 0  # type: ignore[index]


def make_keys(client: httpx.Client, redis_url: str) -> list[dict[str, str]]:
    """Headers of the keys ops, which may manage keys, and bob."""
    ops = found(client, redis_url)
    bob = client.post("/v1/keys", json={"name": "bob"}, headers=ops).raise_for_status().json()["key"]
    return [ops, {"authorization": f"Bearer {bob}"}]
