"""The OpenAPI document against what happens: every route is called by its description, none by a literal brace."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from fastapi.routing import APIRoute

from tasks.records import api_keys as records
from tasks.records.api_keys import Key
from tests.integration.api.conformance import Operation, operations, standard_path
from tests.integration.api.file_uploads import LINES
from tests.integration.api.jobs import create, end
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, MANAGED_KEYS, MODEL, ServedApp
from tests.integration.api.tenants import make_things
from tests.processes import RedisServer

Ids = dict[str, tuple[str, ...]]
"""What can stand in the place of a part of a path; the longest ending that fits decides."""

UNKNOWN: Ids = {
    "{task_id}": ("task_01a1fa1818cc7626bb9271b2af5733d5",),
    "{file_id}": ("file-01a1fa1818cc7626bb9271b2af5733d5",),
    "{batch_id}": ("batch_01a1fa1818cc7626bb9271b2af5733d5",),
    "{ingestion_id}": ("ing_01a1fa1818cc7626bb9271b2af5733d5",),
    "{name}": ("nothing",),
    "{model_id}": (MODEL,),
    "{path}": ("nothing.js",),
}
"""Well-formed and unknown, so that only the caller or Redis can be at fault."""


def addresses(operation: Operation, ids: Ids) -> list[str]:
    """Its path with each of these ids that fits."""
    found = [operation.path]
    for part, values in sorted(ids.items(), key=lambda item: len(item[0]), reverse=True):
        found = [one.replace(part, value) for one in found for value in (values if part in one else ("",))]
    assert not any("{" in one for one in found), f"{operation.name}: nothing is known for a part of its path"
    return found


def body(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a request with the example of the document as its body."""
    content = operation.described.get("requestBody", {}).get("content", {})
    if "multipart/form-data" in content:
        return {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", LINES)}}
    if "application/json" in content:
        return {"json": schemas[content["application/json"]["schema"]["$ref"].rpartition("/")[2]]["examples"][0]}
    return {}


def read(client: httpx.Client) -> tuple[list[Operation], dict[str, Any]]:
    """All operations, and the schemas."""
    document = client.get("/openapi.json").json()
    return operations(document), document["components"]["schemas"]


def answers(client: httpx.Client, ids: Ids) -> Iterator[tuple[Operation, httpx.Response]]:
    """One of every operation."""
    listed, schemas = read(client)
    for operation in listed:
        yield operation, client.request(operation.method, addresses(operation, ids)[0], **body(operation, schemas))


PUBLIC = {"GET /", "GET /health", "GET /health/live", "GET /health/ready", "GET /metrics"}
"""Whoever has no key is shown nothing but these. A new route is public only if this list says so too."""


def test_the_routes_that_need_a_key_are_all_but_these(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=KEYS).client
    for operation, answer in answers(client, UNKNOWN):
        refused = answer.status_code == httpx.codes.UNAUTHORIZED
        assert refused == bool(operation.scopes) == (operation.name not in PUBLIC), operation.name


def test_the_document_covers_every_route(app: ServedApp) -> None:
    paths = app.client.get("/openapi.json").json()["paths"]
    served = {standard_path(route.path).replace(":path", "") for route in app.app.routes if isinstance(route, APIRoute)}
    assert served - {*paths} == {"/console", "/docs", "/openapi.json"}, "pages for people, and itself"
    for path, methods in paths.items():
        for operation in methods.values():
            for errors in ("4XX", "5XX"):
                refused = operation["responses"][errors]
                form = "application/json" if path in {"/", "/embed", "/info", "/health"} else "application/problem+json"
                assert list(refused["content"]) == [form], path
                assert {"Retry-After", "x-should-retry"} <= set(refused["headers"])


def test_without_redis_every_answer_is_described(private_redis: RedisServer, tmp_path: Path) -> None:
    with ServedApp(private_redis.url, storage_url=str(tmp_path / "storage")) as served:
        private_redis.kill()
        away = set()
        for operation, answer in answers(served.client, UNKNOWN):
            away |= {operation.name} if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else set()
    assert {"GET /v1/tasks", "GET /v1/tasks/{task_id}", "GET /v1/files/{file_id}", "POST /v1/tasks"} <= away


def calls(operation: Operation, etag: str) -> list[dict[str, str]]:
    """Headers of the requests that show everything an operation can answer: none, and each that it reads.

    `etag`: those of all things, as a list.
    """
    values = {"if-none-match": etag, "idempotency-key": "a key", "if-range": '"no"'}
    values |= {"range": "bytes=0-0", "x-stainless-read-timeout": "9", "x-stainless-timeout": "9"}
    read = [one for one in operation.parameters if one["in"] == "header"]
    tried = ((one["name"], value) for one in read for value in (one.get("example"), values.get(one["name"].lower())))
    requests = [{}, *({name: value} for name, value in tried if value)]
    usual = operation.described["responses"].get("200", {}).get("content", {})
    return requests + [{**headers, "Accept": "text/html"} for headers in requests if "text/html" in usual]


def rank(operation: Operation) -> int:
    """What ends a thing comes after what reads it, and what needs a worker after what needs an open task."""
    last = operation.path.rpartition("/")[2]
    return ["GET", "cancel", "retry", "POST", "DELETE"].index(last if last in {"cancel", "retry"} else operation.method)


def test_every_answer_that_is_described_comes_with_its_headers(
    serve: Callable[..., ServedApp], worker: LedgerWorker, root: Path
) -> None:
    app = serve(api_keys=MANAGED_KEYS)
    app.client.headers.update(ANN)
    gone = Key(name="gone", owner="owner_gone", digests=(), scopes=frozenset(), created=1, revoked=2)
    assert worker.ledger.run(records.make_key(gone, "new"))
    worker.ledger.run(records.make_mark(records.Mark(name="gone", owner="owner_gone", purged=3)))
    ids = {**make_things(app.client, worker, root, "ann").parts, "keys/{name}": ("keys/gone", "keys/acme")}
    loaded = create(app.client)["id"]
    end(worker.ledger, loaded)
    ids["{ingestion_id}"] = (*ids["{ingestion_id}"], loaded)
    known = ("/console", f"/console/{ids['{path}'][0]}")
    etag = ", ".join(app.client.get(path).headers["etag"] for path in known)
    listed, schemas = read(app.client)
    with ExitStack() as stack:
        for operation in sorted(listed, key=rank):
            if operation.name == "POST /v1/embeddings":
                stack.enter_context(worker.serving())
            for address, headers in product(addresses(operation, ids), calls(operation, etag)):
                app.client.request(operation.method, address, headers=headers, **body(operation, schemas))
        # The example has larger chunks than this model reads.
        unsent = {"files": [{"sha256": "0" * 64, "document_id": "d"}]}
        app.client.post("/v1/ingestions/files/known", json={"source": unsent}).raise_for_status()

    described = {
        (operation.method, operation.path, int(status), name.lower())
        for operation in listed
        for status, response in operation.described["responses"].items()
        if status not in {"4XX", "5XX"}
        for name in ("", *response.get("headers", ()))
    }
    assert described - app.conformance.seen == set()
