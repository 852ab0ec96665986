"""A tenant that is purged in the middle of its work, while whoever purges and whoever works is killed."""

import json
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis

from tasks.storage.sweep import SWEEPER
from tests.bulk import line
from tests.faults.conftest import QUICK
from tests.made_keys import found
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

LINES, DOCUMENTS, TASKS = 1500, 100, 100


def begin(client: httpx.Client) -> list[str]:
    """Tasks, a batch and an ingestion that take a while; paths of the last two."""
    for n in range(TASKS):  # first: many calls take long beside other work, and the jobs would end meanwhile
        client.post("/v1/tasks", json={"input": f"task {n}", "lane": "bulk"}).raise_for_status()
    lines = b"".join(json.dumps(line(f"{n}", f"text {n}")).encode() + b"\n" for n in range(LINES))
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", lines)}).json()["id"]
    batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    documents = [{"id": f"d{n}", "text": f"Some text {n}. " * 20} for n in range(DOCUMENTS)]
    ingestion = {"source": {"documents": documents}, "sink": {"type": "dataset", "dataset": "handbook"}}
    jobs = {"/v1/batches": batch, "/v1/ingestions": ingestion}
    return [f"{path}/{client.post(path, json=body).raise_for_status().json()['id']}" for path, body in jobs.items()]


def test_a_purge_goes_on_to_the_end_whoever_is_killed(private_redis: RedisServer, private_roles: Roles) -> None:
    root = private_roles.folder / "storage"
    settings: dict[str, Any] = QUICK | {"storage_url": str(root), "fake_tokens_per_s": 500}
    api = private_roles.api(**settings)
    model, documents = private_roles.worker(**settings), private_roles.documents(**settings)
    api.wait_ready()
    with api.client() as client, private_redis.client() as redis:
        ops = found(client, private_redis.url)
        bob = client.post("/v1/keys", json={"name": "bob"}, headers=ops).raise_for_status().json()["key"]
        client.headers["authorization"] = f"Bearer {bob}"
        owner = client.get("/v1/key").json()["owner"]
        paths = begin(client)
        running = lambda: all(client.get(path).json()["status"] == "in_progress" for path in paths)  # noqa: E731
        wait_until(running, message="a batch and an ingestion that run")
        client.post("/v1/keys/bob/revoke", headers=ops).raise_for_status()

        left = client.post("/v1/keys/bob/purge", headers=ops).raise_for_status().json()["left"]
        assert left["jobs"] >= 2
        api.kill()
        documents.kill()
        model.kill_child()
        (root / SWEEPER).unlink(missing_ok=True)  # or its successor waits ten minutes to be sure
        api.start()
        api.wait_ready()
        documents.start()

    def swept() -> bool:
        with api.client() as client:
            return client.get("/v1/keys/bob", headers=ops).json()["swept_at"] is not None

    wait_until(swept, message="the end of the purge")
    with private_redis.client() as redis:
        tokens = [f"eq:q:{queue}:leases" for queue in [*map(bytes.decode, redis.hkeys("eq:models")), "@documents"]]
        wait_until(lambda: not any(map(redis.exists, tokens)), message="nobody to work any more")
        nothing_stored(redis, root)
        names = [name.decode() for name in redis.scan_iter("*") if redis.ttl(name) < 0]
        ids = [path.rpartition("/")[2] for path in paths]
        ids.append(owner)
        marks = [f"eq:{kind}:{owner}" for kind in ("key", "mark", "owner")]
        assert sorted(name for name in names if any(one in name for one in ids)) == marks


def nothing_stored(redis: "redis.Redis", root: Path) -> None:
    """Returns when the sweep has removed all objects, whose minute of grace is over."""
    kept = {"models", "storage-ids", SWEEPER}

    def left() -> list[Path]:
        for entry in cast("list[bytes]", redis.zrange("eq:litter", 0, -1)):
            redis.zadd("eq:litter", {entry: 0}, xx=True)
        return [path for path in root.rglob("*") if path.is_file() and not kept & {*path.parts, path.name}]

    wait_until(lambda: not left(), message="an empty storage")
