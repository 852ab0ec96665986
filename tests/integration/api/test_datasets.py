"""Datasets over HTTP: listed, looked at and deleted by whom they belong to, and by nobody else."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tasks.records.api_keys import environment_owner
from tests.integration.api.file_uploads import problem, served
from tests.integration.api.served import ServedApp
from tests.made_datasets import VECTORS, datasets_in, document, load
from tests.processes import PATIENCE_S

KEYS = {name: f"sk-{name}" for name in ("alice", "bob")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def app(serve: Callable[..., ServedApp], root: Path) -> ServedApp:
    return served(serve, root, api_keys=",".join(f"{name}:{digest(key)}" for name, key in KEYS.items()))


@pytest.fixture
def alice(app: ServedApp) -> Iterator[httpx.Client]:
    yield from client_of(app, "alice")


@pytest.fixture
def bob(app: ServedApp) -> Iterator[httpx.Client]:
    yield from client_of(app, "bob")


def client_of(app: ServedApp, name: str) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {KEYS[name]}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{app.port}", headers=headers, timeout=PATIENCE_S) as client:
        yield client


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def loaded(root: Path, key: str, *names: str) -> None:
    """Datasets of the owner of a key."""
    for name in names:
        load(root, document("a", *[[1.0, 2.0, 3.0, 4.0]] * 7), document("b"), owner=environment_owner(key), name=name)


def names(client: httpx.Client, **query: object) -> list[str]:
    return [each["name"] for each in client.get("/v1/datasets", params=query).json()["data"]]  # type: ignore[arg-type]


def test_datasets_are_listed_page_by_page(root: Path, alice: httpx.Client, bob: httpx.Client) -> None:
    assert alice.get("/v1/datasets").json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
    mine = ["handbook", "A.b", "a-b", "z", "B", "ing_is_no_id"]
    loaded(root, "alice", *mine)
    loaded(root, "alice", "z")  # a second version
    loaded(root, "bob", "bobs")
    assert names(bob) == ["bobs"]

    found: list[str] = []
    more, query = True, {"limit": "2"}
    while more:
        page = alice.get("/v1/datasets", params=query).json()
        found += [each["name"] for each in page["data"]]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["name"], page["data"][-1]["name"])
        more, query = page["has_more"], query | {"after": page["last_id"]}
    assert sorted(found) == sorted(mine)
    problem(alice.get("/v1/datasets", params={"after": "a b"}), 400, "invalid_value", "after")
    problem(alice.get("/v1/datasets", params={"limit": "0"}), 400, "invalid_value", "limit")


def test_a_dataset_that_is_being_loaded_is_deleted_later_and_holds_up_nobody(
    root: Path, alice: httpx.Client, bob: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.async_datasets._PATIENCE_S", 0.1)
    loaded(root, "alice", "handbook")
    with datasets_in(root).file(environment_owner("alice"), "handbook").locked(), ThreadPoolExecutor() as pool:
        deletions = [pool.submit(alice.delete, "/v1/datasets/handbook") for _ in range(8)]
        assert names(bob) == []
        for each in deletions:
            problem(each.result(), 503, "sink_unavailable")
    assert alice.delete("/v1/datasets/handbook").status_code == 200


def test_a_dataset_is_shown_and_deleted_by_its_owner_alone(root: Path, alice: httpx.Client, bob: httpx.Client) -> None:
    loaded(root, "alice", "handbook")
    shown = alice.get("/v1/datasets/handbook").json()
    assert {key: shown[key] for key in ("object", "name", "version", "dimension", "vectors", "rows", "documents")} == {
        "object": "dataset",
        "name": "handbook",
        "version": 1,
        "dimension": 4,
        "vectors": VECTORS,
        "rows": 7,
        "documents": 2,
    }
    assert 0 < shown["created_at"] <= shown["updated_at"]
    assert (shown["of_one_ingestion"], shown["bytes"] > 0) == (False, True)
    for path in ("/v1/datasets/handbook", "/v1/datasets/nothing", "/v1/datasets/a%20b"):
        problem(bob.get(path), 404, "dataset_not_found", "name")
        problem(bob.delete(path), 404, "dataset_not_found", "name")
    problem(httpx.get(f"{alice.base_url}/v1/datasets/handbook"), 401, "invalid_api_key")
    assert alice.put("/v1/datasets/handbook").headers["allow"] == "DELETE, GET, HEAD"
    assert names(alice) == ["handbook"]

    assert alice.delete("/v1/datasets/handbook").json() == {"name": "handbook", "object": "dataset", "deleted": True}
    problem(alice.delete("/v1/datasets/handbook"), 404, "dataset_not_found", "name")
    problem(alice.get("/v1/datasets/handbook"), 404, "dataset_not_found", "name")
    assert names(alice) == []
    loaded(root, "alice", "handbook")
    assert alice.get("/v1/datasets/handbook").json()["id"] != shown["id"]


def test_a_storage_that_is_away_is_no_empty_list(
    root: Path, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(root, "alice", "handbook")
    assert names(alice) == ["handbook"]
    (root / ".incoming").rename(root / ".aside")  # as an unmounted disk looks
    for path in ("/v1/datasets", "/v1/datasets/handbook"):
        problem(alice.get(path), 503, "storage_unavailable")
    problem(alice.delete("/v1/datasets/handbook"), 503, "storage_unavailable")
    (root / ".aside").rename(root / ".incoming")

    assert names(alice) == ["handbook"]


def test_datasets_count_for_those_who_start_an_ingestion(serve: Callable[..., ServedApp], root: Path) -> None:
    keys = ",".join(f"{name}:{digest(key)}" for name, key in KEYS.items())
    app = served(serve, root, api_keys=keys, file_quota_bytes=1000)
    body = {"source": {"documents": [{"id": "a", "text": "b"}]}}
    for alice, bob in zip(client_of(app, "alice"), client_of(app, "bob"), strict=True):
        first = alice.post("/v1/ingestions", json=body, headers={"idempotency-key": "k"})
        loaded(root, "alice", "handbook")
        refused = alice.post("/v1/ingestions", json=body)
        again = alice.post("/v1/ingestions", json=body, headers={"idempotency-key": "k"})
        others = bob.post("/v1/ingestions", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "quota_exceeded")
    assert "Your files, datasets and ingestions hold" in refused.json()["detail"]
    assert (first.status_code, again.json()["id"], others.status_code) == (202, first.json()["id"], 202)
