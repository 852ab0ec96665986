"""A purge: of one tenant nothing is left, in Redis or in the storage, and of the others everything."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import redis

from stack.testing import PATIENCE_S, wait_until
from tasks.ledger import ANONYMOUS
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import problem
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp
from tests.integration.api.tenants import contents, make_things
from tests.made_keys import found

OF_ALL = ("eq:memory", "eq:purged", "eq:keys", "eq:ingestion-order", "eq:q:@documents:state")
"""Keys of all tenants together, which change by themselves."""
ACCOUNTS = ("cost_", "tasks_", "bytes", "owners_", "pass_", "tvt_")
"""Fields of a queue's state that say who has what."""


def everything(client: "redis.Redis", root: Path) -> dict[str, object]:
    """All that Redis and the storage hold."""
    names = [str(name, "ascii") for name in client.scan_iter("*")]
    state = {name: contents(client, name.encode()) for name in names if not name.startswith(OF_ALL)}
    for name in [name for name in state if name.endswith(":state")]:
        fields: Any = client.hgetall(name)
        state[name] = {field: value for field, value in fields.items() if field.decode().startswith(ACCOUNTS)}
    state |= {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    return state


def purge(client: httpx.Client, name: str) -> Counter[str]:
    """Purges until nothing is left; what was deleted."""
    deleted, done = Counter[str](), False
    while not done:
        answer = client.post(f"/v1/keys/{name}/purge").raise_for_status().json()
        deleted.update(answer["deleted"])
        done = answer["done"]
    return deleted


def first_key(app: ServedApp) -> str:
    return found(app.client, app.services.settings.redis_url)["authorization"].removeprefix("Bearer ")


def client_of(app: ServedApp, key: str) -> httpx.Client:
    return httpx.Client(base_url=app.client.base_url, headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE_S)


def test_a_purge_leaves_what_was_there_before_the_tenant_came(
    serve: Callable[..., ServedApp], worker: LedgerWorker, redis_client: "redis.Redis", tmp_path: Path
) -> None:
    root = tmp_path / "storage"
    app, storage = serve(storage_url=str(root)), Storage.open(str(root))
    with client_of(app, first_key(app)) as ops:

        def come(name: str) -> dict[str, Any]:
            key = ops.post("/v1/keys", json={"name": name}).raise_for_status().json()["key"]
            with client_of(app, key) as client:
                things = make_things(client, worker, storage, name)
                with worker.serving():
                    client.post("/v1/embeddings", json={"input": "both ask this"}).raise_for_status()
                client.post("/v1/tasks", json={"input": ["still", "open"]}).raise_for_status()
                found = client.post(f"/v1/datasets/{things.parts['{name}'][0]}/search", json={"vector": [1, 2, 3, 4]})
                assert found.raise_for_status().json()["data"]
                shown = {path: client.get(path).json() for path in ("/v1/jobs", "/v1/files", "/v1/datasets")}
            return {"key": key, "things": things, "shown": shown}

        ann = come("ann")
        worker.work()  # nothing of Ann's is open: Bob's visit changes it in no way
        before, kept_bytes = everything(redis_client, root), app.services.datasets.kept_bytes
        bob = come("bob")
        assert app.services.datasets.kept_bytes > kept_bytes
        assert len(everything(redis_client, root)) > len(before) + 15

        problem(ops.post("/v1/keys/bob/purge"), 409, "key_in_use")
        ops.post("/v1/keys/bob/revoke").raise_for_status()
        problem(ops.delete("/v1/keys/bob"), 409, "key_in_use")
        deleted = purge(ops, "bob")

        counts = {"tasks": 4, "files": 1, "batches": 2, "ingestions": 2, "datasets": 1}
        assert {name: deleted[name] for name in counts} == counts
        assert deleted["bytes"] > 1000
        after = everything(redis_client, root)
        assert after == before
        wait_until(lambda: app.services.datasets.kept_bytes == kept_bytes)
        assert not any(
            b"bob" in field for name in redis_client.keys("eq:q:*:state") for field in redis_client.hkeys(name)
        )
        assert not purge(ops, "bob").total(), "a purge may be repeated"
        assert ops.get("/v1/keys/bob").json()["purged_at"]

        ops.delete("/v1/keys/bob").raise_for_status()
        again = ops.post("/v1/keys", json={"name": "bob"}).raise_for_status().json()["key"]
        with client_of(app, again) as client:
            assert not any(client.get(path).json()["data"] for path in bob["shown"])
        with client_of(app, ann["key"]) as client:
            assert {path: [one.get("id") for one in client.get(path).json()["data"]] for path in ann["shown"]} == {
                path: [one.get("id") for one in shown["data"]] for path, shown in ann["shown"].items()
            }


def test_what_was_made_without_a_key_is_purged_as_well(
    serve: Callable[..., ServedApp], worker: LedgerWorker, redis_client: "redis.Redis", tmp_path: Path
) -> None:
    root = tmp_path / "storage"
    app, storage = serve(storage_url=str(root)), Storage.open(str(root))
    make_things(app.client, worker, storage, ANONYMOUS)
    with client_of(app, first_key(app)) as ops:
        problem(ops.post("/v1/keys/no%20name/purge"), 404, "key_not_found", "name")
        assert purge(ops, ANONYMOUS)["tasks"] == 2
        assert not purge(ops, "of-an-earlier-setting").total()
    left = [name for name in redis_client.scan_iter("*") if ANONYMOUS.encode() in name or b"task" in name]
    assert left == []
