"""The OpenAPI document against what happens: every route is called by its description, none by a literal brace."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from stack.testing import RedisServer
from tasks.ledger import Ledger
from tasks.records.api_keys import Key, write_key
from tasks.records.batches import BatchStatus, move_batch
from tasks.records.ingestions import IngestionStatus
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import LINES, upload_with
from tests.integration.api.ingestions.requests import create, move
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, MODEL, ServedApp
from tests.unit.documents.search.small_datasets import document, load

Ids = dict[str, tuple[str, ...]]
"""What can stand in the place of a part of a path; the longest ending that fits decides."""

UNKNOWN: Ids = {
    "{task_id}": ("task_01a1fa18-18cc-7626-bb92-71b2af5733d5",),
    "{file_id}": ("file-01a1fa1818cc7626bb9271b2af5733d5",),
    "{batch_id}": ("batch_01a1fa1818cc7626bb9271b2af5733d5",),
    "{ingestion_id}": ("ing_01a1fa1818cc7626bb9271b2af5733d5",),
    "{name}": ("nothing",),
    "{model_id}": (MODEL,),
    "{path}": ("nothing.js",),
}
"""Well-formed and unknown, so that only the caller or Redis can be at fault."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, as the document describes it."""

    method: str
    path: str
    described: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def headers(self) -> list[dict[str, Any]]:
        """The headers that it reads."""
        return [one for one in self.described.get("parameters", ()) if one["in"] == "header"]

    def addresses(self, ids: Ids) -> list[str]:
        addresses = [self.path]
        for part, values in sorted(ids.items(), key=lambda item: len(item[0]), reverse=True):
            addresses = [one.replace(part, value) for one in addresses for value in (values if part in one else ("",))]
        assert not any("{" in one for one in addresses), f"{self.name}: nothing is known for a part of its path"
        return addresses

    def body(self, schemas: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a request with the example of the document as its body."""
        content = self.described.get("requestBody", {}).get("content", {})
        if "multipart/form-data" in content:
            return {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", LINES)}}
        if "application/json" in content:
            return {"json": schemas[content["application/json"]["schema"]["$ref"].rpartition("/")[2]]["examples"][0]}
        return {}


def operations(client: httpx.Client) -> tuple[list[Operation], dict[str, Any]]:
    """All of them, and the schemas."""
    document = client.get("/openapi.json").json()
    listed = [
        Operation(method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]
    return listed, document["components"]["schemas"]


def answers(client: httpx.Client, ids: Ids) -> Iterator[tuple[Operation, httpx.Response]]:
    """One of every operation."""
    listed, schemas = operations(client)
    for operation in listed:
        address = operation.addresses(ids)[0]
        yield operation, client.request(operation.method, address, **operation.body(schemas))


def test_the_routes_that_need_a_key_are_those_with_a_401(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=(("alice", sha256(b"key").hexdigest()),)).client
    told = {"401": set[str](), "other": set[str]()}
    for operation, answer in answers(client, UNKNOWN):
        responses = operation.described["responses"]
        refused = answer.status_code == httpx.codes.UNAUTHORIZED
        assert refused == ("401" in responses), operation.name
        told["401" if refused else "other"].add(operation.name)
        if refused:
            assert answer.headers["content-type"] in responses["401"]["content"], operation.name
    assert all(told.values())


def test_without_redis_every_answer_is_described(private_redis: RedisServer, tmp_path: Path) -> None:
    with ServedApp(private_redis.url, storage_url=str(tmp_path / "storage")) as served:
        private_redis.kill()
        away = set()
        for operation, answer in answers(served.client, UNKNOWN):
            assert str(answer.status_code) in operation.described["responses"], f"{operation.name}: {answer.text}"
            away |= {operation.name} if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else set()
    assert {"GET /v1/tasks", "GET /v1/tasks/{task_id}", "GET /v1/files/{file_id}", "POST /v1/tasks"} <= away


def make_things(client: httpx.Client, worker: LedgerWorker, ledger: Ledger, storage: Storage) -> Ids:
    """One of each thing that a path can name, ann's; of tasks one that has ended and one that is open."""
    ended = client.post("/v1/tasks", json={"input": "a"}).json()["id"]
    worker.work()
    waiting = client.post("/v1/tasks", json={"input": "b"}).json()["id"]
    file_id = upload_with(client)().json()["id"]
    body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch_id = client.post("/v1/batches", json=body).json()["id"]
    ingestion_id = create(client, sink={"type": "parquet", "dataset": "handbook"})["id"]
    load(storage, document("refunds", [1, 2, 3, 4], metadata={"team": "sales"}), owner="ann", name="handbook")
    failed, loaded = (create(client)["id"] for _ in range(2))
    move(ledger, failed, to=IngestionStatus.COMPLETED, add={"documents": 1, "failed": 1})
    move(ledger, loaded, to=IngestionStatus.COMPLETED)
    refused = client.post("/v1/batches", json=body).json()["id"]
    ledger.run(move_batch(refused, BatchStatus.FAILED, only_from=[BatchStatus.VALIDATING]))
    gone = Key(name="gone", owner="owner_gone", digests=(), scopes=frozenset(), created=1, revoked=2, purged=3)
    assert ledger.run(write_key("gone", b"", gone.to_json()))
    return {
        "keys/{name}": ("keys/gone", "keys/acme"),
        "{task_id}": (ended, waiting),
        "{file_id}": (file_id,),
        "{batch_id}": (batch_id, refused),
        "{ingestion_id}": (ingestion_id, failed, loaded),
        "{ingestion_id}/output/{name}": (f"{ingestion_id}/output/part-000000.parquet",),
        "{name}": ("handbook",),
        "{model_id}": (MODEL,),
        "{path}": ("console.css",),
    }


def calls(operation: Operation, etag: str) -> list[dict[str, str]]:
    """Headers of the requests that show everything an operation can answer: none, and each that it reads.

    `etag`: those of all things, as a list.
    """
    values = {"If-None-Match": etag, "Idempotency-Key": "a key", "If-Range": '"no"'}
    examples = {one["name"]: one.get("example", values.get(one["name"], "9")) for one in operation.headers}
    requests = [{}, *({name: value} for name, value in examples.items())]
    usual = operation.described["responses"].get("200", {}).get("content", {})
    return requests + [{**headers, "Accept": "text/html"} for headers in requests if "text/html" in usual]


def rank(operation: Operation) -> int:
    """What ends a thing comes after what reads it, and what needs a worker after what needs an open task."""
    last = operation.path.rpartition("/")[2]
    return ["GET", "cancel", "retry", "POST", "DELETE"].index(last if last in {"cancel", "retry"} else operation.method)


def test_every_answer_that_is_described_comes_with_its_headers(
    serve: Callable[..., ServedApp], worker: LedgerWorker, redis_url: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "storage")
    app = serve(storage_url=root, api_keys=KEYS, admin_keys="ann")
    app.client.headers.update(ANN)
    ids = make_things(app.client, worker, Ledger.connect(redis_url), Storage.open(root))
    known = ("/console", f"/console/{ids['{path}'][0]}")
    etag = ", ".join(app.client.get(path).headers["etag"] for path in known)
    listed, schemas = operations(app.client)
    with ExitStack() as stack:
        for operation in sorted(listed, key=rank):
            if operation.name == "POST /v1/embeddings":
                stack.enter_context(worker.serving())
            for address, headers in product(operation.addresses(ids), calls(operation, etag)):
                app.client.request(operation.method, address, headers=headers, **operation.body(schemas))

    described = {
        (operation.method, operation.path, int(status), name.lower())
        for operation in listed
        for status, response in operation.described["responses"].items()
        if int(status) < 400
        for name in ("", *response["headers"])
    }
    assert described - app.conformance.seen == set()


def test_the_headers_that_a_route_reads_are_named(client: httpx.Client) -> None:
    timeouts = {"x-stainless-read-timeout", "x-stainless-timeout"}
    named = {one.name: {header["name"] for header in one.headers} for one in operations(client)[0]}
    read = {
        "POST /v1/embeddings": timeouts,
        "POST /embed": timeouts,
        "POST /": timeouts,
        "POST /v1/tasks": {"Idempotency-Key"},
        "POST /v1/batches": {"Idempotency-Key"},
        "POST /v1/ingestions": {"Idempotency-Key"},
        "GET /": {"If-None-Match"},
        "GET /console": {"If-None-Match"},
        "GET /console/{path}": {"If-None-Match"},
        "GET /v1/files/{file_id}/content": {"Range", "If-Range"},
        "GET /v1/ingestions/{ingestion_id}/output/{name}": {"Range", "If-Range"},
    }
    assert named == named | read


def test_the_document_is_made_before_anybody_asks(app: ServedApp) -> None:
    assert app.app.openapi_schema is not None
