"""Tenants: every route is tried with another tenant's ids, cursors, idempotency keys, files and texts.

Bob has one of everything. Ann calls each route with what is Bob's, and with a twin of it that exists nowhere. Both
answers must be the same, nothing of Bob's may be in any of them, and nothing of Bob's may change. The routes come from
the OpenAPI document: one that is new and has no case here fails.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tasks.records.api_keys import environment_owner
from tests.integration.api.conformance import Operation, operations
from tests.integration.api.jobs import GOOD
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, ServedApp
from tests.integration.api.tenants import SECRET, Things, contents, make_things
from tests.made_datasets import document, load
from tests.processes import PATIENCE_S

NOBODYS = {
    "GET /", "GET /info", "GET /health", "GET /health/live", "GET /health/ready", "GET /metrics", "GET /console",
    "GET /console/{path}", "GET /v1/models", "GET /v1/models/{model_id}", "GET /v1/service",
    "GET /v1/service/redis",
}  # fmt: skip
"""What they answer belongs to nobody: the same for all who may call them."""
LISTS = {"GET /v1/tasks", "GET /v1/files", "GET /v1/batches", "GET /v1/ingestions", "GET /v1/jobs", "GET /v1/datasets"}
OWN = {"GET /v1/key"}
"""They read nothing but who calls."""
OF_NOBODY = {
    "status", "limit", "purpose", "order", "filter", "kind", "wait", "encoding_format", "range",
    "x-stainless-read-timeout", "x-stainless-timeout", "if-none-match", "if-range",
}  # fmt: skip
"""Headers and parameters that name nothing that a tenant has."""


def is_thing(route: Operation) -> bool:
    """Whether its path names something that belongs to a tenant."""
    return any(part in route.path for part in ("{task_id}", "{file_id}", "{batch_id}", "{ingestion_id}", "{name}"))


def is_managing(route: Operation) -> bool:
    """Whether it is of people who manage keys. No tenant may call it."""
    return route.scopes == {"admin"}


@dataclass(frozen=True, slots=True)
class Tenants:
    """Two tenants of one service. The clients have their keys."""

    ann: httpx.Client
    bob: httpx.Client
    annas: Things
    bobs: Things
    worker: LedgerWorker
    redis: "redis.Redis"
    stored: Sequence[Path]

    @property
    def routes(self) -> list[Operation]:
        """Every route but those of people who manage keys."""
        return [route for route in self.all_routes if not is_managing(route)]

    @property
    def all_routes(self) -> list[Operation]:
        """Every route."""
        return operations(self.ann.get("/openapi.json").json())

    def bobs_state(self) -> dict[str, object]:
        """Everything in Redis that is Bob's, and everything that was in the storage in the beginning."""
        owned = [
            key
            for key in self.redis.scan_iter("*")
            if any(one in key.decode() for one in (environment_owner("bob"), *self.bobs.ids))
        ]
        files: dict[str, object] = {str(path): path.stat().st_mtime_ns for path in self.stored if path.is_file()}
        return files | {key.decode(): contents(self.redis, key) for key in owned}

    def tell_apart(self, method: str, address: str, mine: str, **request: Any) -> None:
        """Fails if Ann can tell Bob's thing `mine` from its twin, wherever it is in the request, or sees Bob's word."""

        def exchanged(value: Any) -> Any:
            if isinstance(value, str):
                return value.replace(mine, twin(mine))
            if isinstance(value, dict):
                return {key: exchanged(item) for key, item in value.items()}
            return [exchanged(item) for item in value] if isinstance(value, list) else value

        real = told(self.ann.request(method, address, **request), mine)
        other = told(self.ann.request(method, exchanged(address), **exchanged(request)), twin(mine))
        assert real == other, f"{method} {address} {request}"
        self.quiet(real[2])

    def quiet(self, text: str) -> None:
        """Fails if a text tells something of Bob's."""
        assert not [one for one in (SECRET, *self.bobs.ids) if one in text], text


def twin(thing: str) -> str:
    """A name as long and as old as this one that nobody has."""
    path, slash, last = thing.rpartition("/")
    if slash and thing.startswith("ing_"):
        return re.sub("^ing_[0-9a-f]+", lambda found: twin(found[0]), thing)
    if slash:
        return f"{twin(path)}/{last}"
    return thing[:-1] + ("0" if thing[-1] != "0" else "1")


def told(answer: httpx.Response, name: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body as far as they depend on the request, without the name that was sent."""
    own = {"date", "x-request-id"}
    headers = {key: value.replace(name, "…") for key, value in answer.headers.items() if key not in own}
    return answer.status_code, headers, re.sub(r"req_\w+", "", answer.text.replace(name, "…"))


@pytest.fixture
def tenants(
    serve: Callable[..., ServedApp], worker: LedgerWorker, redis_client: "redis.Redis", tmp_path: Path
) -> Iterator[Tenants]:
    root = tmp_path / "storage"
    app = serve(api_keys=KEYS, storage_url=str(root))
    clients = [httpx.Client(base_url=app.client.base_url, headers=key, timeout=PATIENCE_S) for key in (ANN, BOB)]
    ann, bob = clients
    annas, bobs = (
        make_things(client, worker, root, name) for client, name in zip(clients, ("ann", "bob"), strict=True)
    )
    yield Tenants(ann, bob, annas, bobs, worker, redis_client, list(root.rglob("*")))
    for client in clients:
        client.close()


def test_every_route_with_the_ids_of_another_tenant(tenants: Tenants) -> None:
    before, tried = tenants.bobs_state(), set[str]()
    for route in tenants.routes:
        if not is_thing(route):
            continue
        body = {"json": {"query": "a"}} if route.method == "POST" else {}
        for address, own in zip(tenants.bobs.addresses(route.path), tenants.annas.addresses(route.path), strict=True):
            (mine,) = [one for one in tenants.bobs.ids if one in address]
            tenants.tell_apart(route.method, address, mine, **body)
            for header in route.headers & {"if-none-match", "if-range", "range"}:
                value = {"range": "bytes=0-0"}.get(header, '"1"')
                tenants.tell_apart(route.method, address, mine, headers={header: value}, **body)
            assert own != address
        tried.add(route.name)
    assert tenants.bobs_state() == before
    assert {"GET /v1/tasks/{task_id}/result", "DELETE /v1/files/{file_id}", "POST /v1/datasets/{name}/search"} <= tried


def cursors(tenants: Tenants, route: Operation, name: str) -> list[str]:
    """Values of Bob's for a header or parameter of a route."""
    if name.lower() in OF_NOBODY:
        return []
    parts = tenants.bobs.parts
    if name == "name":  # a part of a name or of an id
        return [SECRET, *parts["{task_id}"]]
    if name in {"document_id", "color"}:
        return [tenants.bobs.document]
    if name == "after" and "{" in route.path:
        return [f"{part}-{row}-0" for part, row in product(range(2), repeat=2)]  # places are numbers
    kinds = {"tasks": "{task_id}", "files": "{file_id}", "batches": "{batch_id}", "ingestions": "{ingestion_id}"}
    if name == "after" and route.path.endswith("/jobs"):
        return [one for kind in ("{task_id}", "{batch_id}", "{ingestion_id}") for one in parts[kind]]
    kind = kinds.get(route.name.rpartition("/")[2], "{name}")
    assert name == "after", f"{route.name} reads {name}: whose is it?"
    return list(parts[kind])


def test_no_tenant_manages_keys(tenants: Tenants) -> None:
    managing = [route for route in tenants.all_routes if is_managing(route)]
    for route in managing:
        for address in tenants.bobs.addresses(route.path):
            refused = tenants.ann.request(route.method, address)
            assert refused.json()["error"]["code"] == "scope_missing", route.name
    assert {"POST /v1/keys", "POST /v1/keys/{name}/revoke"} <= {route.name for route in managing}


def test_every_route_with_the_cursors_of_another_tenant(tenants: Tenants) -> None:
    before, tried = tenants.bobs_state(), set[tuple[str, str]]()
    for route in tenants.routes:
        if route.method != "GET":
            continue
        assert is_thing(route) or route.name in NOBODYS | LISTS | OWN, f"{route.name} has no case here"
        for parameter, address in product(route.parameters, tenants.annas.addresses(route.path)):
            name = parameter["name"]
            for value in cursors(tenants, route, name):
                place = "headers" if parameter["in"] == "header" else "params"
                tenants.tell_apart(route.method, address, value, **{place: {name: value}})
                tried.add((route.name, name))
        for address in tenants.annas.addresses(route.path):
            tenants.quiet(tenants.ann.get(address).text)
    assert tenants.bobs_state() == before
    assert {(one, "after") for one in LISTS} <= tried
    for path in (name.removeprefix("GET ") for name in LISTS):
        assert tenants.ann.get(path).json()["data"], f"{path} shows nothing at all"


def creations(bobs: Things) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """For each route that makes something: bodies, each with the id of Bob's that is in it, or ""."""
    (file_id,), (dataset,) = bobs.parts["{file_id}"], bobs.parts["{name}"]
    batch = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    of_files = [{"files": [file_id]}, {"files": [{"id": file_id, "document_id": "d"}]}]
    unsent = {"files": [{"sha256": "0" * 64, "document_id": "d"}]}
    loads = [{**GOOD, "sink": {"type": "dataset", "dataset": dataset}, "mode": mode} for mode in ("upsert", "sync")]
    return {
        "POST /v1/tasks": [({"input": f"{SECRET} 1", "metadata": {"a": SECRET}}, "")],
        "POST /v1/batches": [(batch, file_id)],
        "POST /v1/ingestions/files/known": [(one | {"source": unsent}, "") for one in loads],
        "POST /v1/ingestions": [*(({"source": source}, file_id) for source in of_files), *((one, "") for one in loads)],
    }


WAITED_FOR = {"POST /v1/embeddings": "input", "POST /embed": "inputs", "POST /": "inputs"}
UPLOADS = {"POST /v1/files"}


def test_every_route_that_makes_something_with_what_another_tenant_has(tenants: Tenants) -> None:
    before, made = tenants.bobs_state(), creations(tenants.bobs)
    for route in tenants.routes:
        name = route.name
        if route.method != "POST" or is_thing(route):
            continue
        assert name in {*made, *WAITED_FOR, *UPLOADS}, f"{name} has no case here"
        for number, (body, bobs) in enumerate(made.get(name, ())):
            # Bob has used this key: for Ann it is a new one, whatever she sends with it.
            keyed = {"idempotency-key": f"{name.removeprefix('POST ')} of bob" + " again" * number}
            send = tenants.ann.post(route.path, json=body, headers=keyed)
            unknown = tenants.ann.post(
                route.path, json=with_twin(body, bobs), headers={"idempotency-key": f"t{number}"}
            )
            assert send.status_code == unknown.status_code, send.text
            assert "idempotency" not in send.text.lower()
            assert send.json().get("id") not in tenants.bobs.ids
            if not send.is_success:
                assert told(send, bobs) == told(unknown, twin(bobs))
    assert tenants.bobs_state() == before


def test_two_datasets_of_one_name_are_two_datasets(tenants: Tenants, tmp_path: Path) -> None:
    (name,) = tenants.bobs.parts["{name}"]
    bobs, before = tenants.bob.get(f"/v1/datasets/{name}").json(), tenants.bobs_state()
    load(
        tmp_path / "storage",
        document("own", [1, 2, 3, 4], text="own"),
        owner=environment_owner("ann"),
        name=name,
    )
    search = {"vector": [1, 2, 3, 4]}
    for client, text in ((tenants.ann, "own 0"), (tenants.bob, f"{SECRET} 0")):
        found = client.post(f"/v1/datasets/{name}/search", json=search).json()["data"]
        assert [hit["text"] for hit in found] == [text]
    assert tenants.ann.delete(f"/v1/datasets/{name}").json()["deleted"]
    assert tenants.bob.get(f"/v1/datasets/{name}").json() == bobs
    assert tenants.bobs_state() == before


def with_twin(body: Any, bobs: str) -> Any:
    """The body with the twin of Bob's thing in its place."""
    if isinstance(body, dict):
        return {key: with_twin(value, bobs) for key, value in body.items()}
    if isinstance(body, list):
        return [with_twin(value, bobs) for value in body]
    return twin(bobs) if bobs and body == bobs else body


def test_equal_texts_of_two_tenants_are_two_tasks(tenants: Tenants) -> None:
    # An equal request of the same tenant joins the task that is there. One of another tenant must not: it would be
    # answered at once, and so tell that somebody has asked for this text.
    asynchronous = ("/v1/tasks", "input", {"idempotency-key": "both have this one"})
    waited_for = [(name.removeprefix("POST "), field, dict[str, str]()) for name, field in WAITED_FOR.items()]
    with tenants.worker.serving():
        for path, field, headers in [asynchronous, *waited_for]:
            new = []
            for client in (tenants.bob, tenants.bob, tenants.ann):
                before = set(tenants.redis.scan_iter("eq:task:*"))
                answer = client.post(path, json={field: f"{SECRET} {path} {headers}"}, headers=headers)
                assert answer.is_success, answer.text
                new.append(len(set(tenants.redis.scan_iter("eq:task:*")) - before))
            assert new == [1, 0, 1], path
