"""A purge: of one tenant nothing is left, in Redis or in the storage, and of the others everything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import redis

from tasks.ingestion.driver import Driver
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.batches import BatchRecord, read_batches
from tasks.records.ingestions import IngestionRecord, read_ingestions
from tasks.records.jobs import list_jobs
from tasks.records.storage_identity import StorageProof
from tasks.records.store import OPEN
from tasks.storage.storage import Storage
from tasks.storage.sweep import GRACE_S, SWEEPER, Sweep
from tests.integration.api.file_uploads import problem
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MANAGED_KEYS, Serve, ServedApp, make_key
from tests.integration.api.things import make_things
from tests.made_datasets import document, load
from tests.made_keys import found
from tests.processes import PATIENCE_S, wait_until


def stored(root: Path) -> dict[str, int]:
    """All objects of the storage but that of who sweeps it."""
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file() and path.name != SWEEPER}


def purge(app: ServedApp, ops: httpx.Client, name: str) -> None:
    """Purges until nothing is left, with what a documents worker does meanwhile, which drives no job of others."""
    settings, now_s = app.process.settings, 0.0
    ledger, plain = Ledger.connect(settings.redis_url), Storage.open(settings.storage_url)
    proof = StorageProof(plain, ledger.run)
    proof.before_writing()  # nothing is swept before something was stored
    storage = plain.proved(proof)
    sweep, driver = Sweep(ledger, storage, settings, lambda: now_s), Driver(ledger, storage, settings)
    ops.post(f"/v1/keys/{name}/purge").raise_for_status()
    kinds: tuple[tuple[Any, Any], ...] = ((BatchRecord, read_batches), (IngestionRecord, read_ingestions))
    for _ in range(20):
        sweep()
        for kind, read in kinds:
            opened: list[str] = ledger.run(list_jobs(kind, OPEN, limit=100))[0]
            for job_id in opened:
                [job] = ledger.run(read([job_id]))
                while job.deleted and driver.move_on(job):
                    [job] = ledger.run(read([job_id]))
        now_s += GRACE_S + 1
        for entry in cast("list[bytes]", ledger.client.zrange("eq:litter", 0, -1)):
            ledger.client.zadd("eq:litter", {entry: 0})  # a minute goes by for Redis too
        shown = ops.get(f"/v1/keys/{name}").raise_for_status().json()
        left = {what: shown["left"][what] for what in ("jobs", "files", "stored_bytes")}
        if not any(left.values()) and not list(storage.stored(shown["owner"])):
            break  # what a caller waited for is gone at the end of its minute
    else:
        pytest.fail(f"something is left: {left}")
    ledger.close()


def client_of(app: ServedApp, key: dict[str, str] | None = None) -> httpx.Client:
    """Of who has this key; None: the first one, made for it."""
    header = key or found(app.client, app.process.settings.redis_url)
    return httpx.Client(base_url=app.client.base_url, headers=header, timeout=PATIENCE_S)


LISTS = ("/v1/tasks", "/v1/files", "/v1/batches", "/v1/ingestions", "/v1/datasets", "/v1/jobs")


def own(client: httpx.Client, header: dict[str, str]) -> str:
    owner: str = client.get("/v1/key", headers=header).json()["owner"]
    return owner


def nothing_of(client: httpx.Client, header: dict[str, str]) -> bool:
    return not any(client.get(path, headers=header).raise_for_status().json()["data"] for path in LISTS)


def test_a_purge_leaves_what_was_there_before_the_tenant_came(
    serve: Serve, worker: LedgerWorker, redis_client: "redis.Redis", root: Path
) -> None:
    app = serve()
    with client_of(app) as ops:

        def come(name: str) -> tuple[dict[str, str], list[str]]:
            """The header of a new tenant's key, and the ids of what it has."""
            header = make_key(ops, {}, name)
            with client_of(app, header) as client:
                things = make_things(client, worker, root, name)
                with worker.serving():
                    client.post("/v1/embeddings", json={"input": "both ask this"}).raise_for_status()
                client.post("/v1/tasks", json={"input": ["still", "open"]}).raise_for_status()
                found = client.post(f"/v1/datasets/{things.parts['{name}'][0]}/search", json={"vector": [1, 2, 3, 4]})
                assert found.raise_for_status().json()["data"]
            return header, [own(app.client, header), *things.ids]

        def shown(header: dict[str, str]) -> list[Any]:
            listed = (app.client.get(path, headers=header).raise_for_status().json()["data"] for path in LISTS)
            return [[one.get("id") for one in data] for data in listed]

        ann, _ = come("ann")
        worker.work()  # nothing of Ann's is open: Bob's visit changes it in no way
        before, annas = stored(root), shown(ann)
        _, ids = come("bob")
        assert len(stored(root)) > len(before)
        problem(ops.post("/v1/keys/bob/purge"), 409, "key_in_use")
        ops.post("/v1/keys/bob/revoke").raise_for_status()
        problem(ops.delete("/v1/keys/bob"), 409, "key_in_use")
        left = ops.post("/v1/keys/bob/purge").raise_for_status().json()["left"]
        assert (left["files"], left["stored_bytes"] > 0, left["memory_bytes"] > 1000) == (1, True, True)
        for _ in range(2):  # it may be repeated
            purge(app, ops, "bob")
            assert stored(root) == before
        names = [name.decode() for name in redis_client.scan_iter("*") if redis_client.ttl(name) < 0]
        marks = [f"eq:{kind}:{ids[0]}" for kind in ("key", "mark", "owner")]
        assert sorted(name for name in names if any(one in name for one in ids)) == marks, "the key and the mark stay"
        ops.delete("/v1/keys/bob").raise_for_status()
        assert nothing_of(app.client, make_key(ops, {}, "bob"))
        assert shown(ann) == annas


def test_what_is_made_without_a_key_is_purged_and_then_of_somebody_new(
    serve: Serve, worker: LedgerWorker, redis_client: "redis.Redis", root: Path
) -> None:
    everybody, ops_app = serve().client, serve(api_keys=MANAGED_KEYS)
    make_things(everybody, worker, root, ANONYMOUS)
    old = everybody.post("/v1/tasks", json={"input": "old"}).json()["id"]
    first = own(everybody, {})
    with client_of(ops_app, ANN) as ops:
        problem(ops.post("/v1/keys/no%20name/purge"), 404, "key_not_found", "name")

        def half_by_half() -> Iterator[bytes]:
            yield b'{"input": '
            purge(ops_app, ops, ANONYMOUS)
            left = [name.decode() for name in redis_client.scan_iter("*") if b"anonymous" in name or b"task:" in name]
            assert sorted(left) == [f"eq:mark:{ANONYMOUS}", f"eq:owner:{ANONYMOUS}"], "the marks stay"
            wait_until(lambda: own(everybody, {}) != first)
            yield b'"a"}'

        sent = everybody.post("/v1/tasks", content=half_by_half(), headers={"content-type": "application/json"})
        problem(sent, 401, "invalid_api_key")
        assert nothing_of(everybody, {})
        assert everybody.get(f"/v1/tasks/{old}").status_code == 404
        new = everybody.post("/v1/tasks", json={"input": "new"}).json()["id"]
        assert [one["id"] for one in everybody.get("/v1/tasks").json()["data"]] == [new]
        purge(ops_app, ops, ANONYMOUS)
        wait_until(lambda: nothing_of(everybody, {}))
        purge(ops_app, ops, "of-an-earlier-setting")


# An owner's id is nobody else's: whatever is late reaches nobody.


def give_away(app: ServedApp, ops: httpx.Client, name: str) -> dict[str, str]:
    """The name goes from one tenant to the next; the header of its new key."""
    ops.post(f"/v1/keys/{name}/revoke").raise_for_status()
    purge(app, ops, name)
    ops.delete(f"/v1/keys/{name}").raise_for_status()
    return make_key(ops, {}, name)


FORM = (
    b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
    b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\nsecret\r\n--x--\r\n'
)
OF_FORM = {"content-type": "multipart/form-data; boundary=x"}
OF_JSON = {"content-type": "application/json"}


def test_what_is_late_for_a_tenant_that_was_purged_is_nobody_s(serve: Serve, root: Path) -> None:
    app = serve()
    sent: list[tuple[str, bytes, dict[str, str]]] = [
        ("/v1/tasks", b'{"input": "secret"}', OF_JSON),
        ("/v1/ingestions", b'{"source": {"documents": [{"id": "a", "text": "secret"}]}}', OF_JSON),
        ("/v1/files", FORM, OF_FORM),
    ]
    with client_of(app) as ops:
        bob = make_key(ops, {}, "bob")
        for path, body, form in sent:
            made = list[Any]()

            def half_by_half(body: bytes = body, made: list[Any] = made) -> Iterator[bytes]:
                yield body[:8]
                made += [give_away(app, ops, "bob"), stored(root)]
                yield body[8:]

            answer = app.client.post(path, content=half_by_half(), headers={**bob, **form})
            problem(answer, 401, "invalid_api_key")
            bob, before = made
            assert stored(root) == before, "the purge was the end of it"
            assert nothing_of(app.client, bob)

        # A documents worker that stood still writes nothing for the next one.
        owner = own(app.client, bob)
        bob = give_away(app, ops, "bob")
        load(root, document("a", [1, 2, 3, 4], text="secret"), owner=owner, name="handbook")
        assert nothing_of(app.client, bob)
        problem(app.client.get("/v1/datasets/handbook", headers=bob), 404, "dataset_not_found", "name")


def test_a_purged_name_of_the_environment_stays_refused(serve: Serve, redis_url: str, root: Path) -> None:
    both = serve(api_keys=KEYS)
    both.client.post("/v1/files", headers=BOB | OF_FORM, content=FORM).raise_for_status()
    one = serve(api_keys=MANAGED_KEYS.partition(",")[0])
    with client_of(one, ANN) as ops:
        purge(one, ops, "bob")
        wait_until(lambda: both.client.get("/v1/key", headers=BOB).status_code == 401)
        assert "another name" in both.client.get("/v1/key", headers=BOB).json()["detail"]
        new = make_key(ops, {}, "bob")
        assert nothing_of(one.client, new), "a key of Redis may have the name, and is somebody else"
    assert serve(api_keys=KEYS).client.get("/v1/key", headers=BOB).status_code == 401
