"""What holds for every route of the OpenAPI document: who may call it, what it answers, what it tells of others.

A route that is new is called here by its description. One that has no case where it needs one fails.

Bob has one of everything. Ann calls each route with what is Bob's, and with a twin of it that exists nowhere. Both
answers must be the same, nothing of Bob's may be in any of them, and nothing of Bob's may change.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from fastapi.routing import APIRoute

from tasks.records import api_keys as records
from tasks.records.api_keys import Key, environment_owner
from tests.integration.api.conformance import Operation, operations, standard_path
from tests.integration.api.file_uploads import LINES
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MANAGED_KEYS, MODEL, Serve, ServedApp
from tests.integration.api.things import BATCH, GOOD, INGESTION, NAME, SECRET, Things, end, make_things
from tests.made_datasets import document, load
from tests.processes import PATIENCE_S, RedisServer

NUMBER = "01a1fa1818cc7626bb9271b2af5733d5"
UNKNOWN = Things(
    {
        **{f"{{{kind}_id}}": (f"{kind}_{NUMBER}",) for kind in ("task", "batch")},
        "{file_id}": (f"file-{NUMBER}",),
        "{ingestion_id}": (f"ing_{NUMBER}",),
        "{name}": ("nothing",),
        "{model_id}": (MODEL,),
        "{path}": ("nothing.js",),
    }
)
"""Well-formed and unknown, so that only the caller or Redis can be at fault."""
PUBLIC = {"GET /", "GET /health", "GET /health/live", "GET /health/ready", "GET /metrics"}
"""Whoever has no key is shown nothing but these. A new route is public only if this list says so too."""


def is_thing(route: Operation) -> bool:
    """Whether its path names something that belongs to a tenant."""
    return any(part in route.path for part in ("{task_id}", "{file_id}", "{batch_id}", "{ingestion_id}", "{name}"))


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
    found = client.get("/openapi.json").json()
    return operations(found), found["components"]["schemas"]


def answers(
    client: httpx.Client, things: Things = UNKNOWN, among: Callable[[Operation], bool] = bool
) -> Iterator[tuple[Operation, httpx.Response]]:
    """Those of every operation, where all is unknown."""
    listed, schemas = read(client)
    for operation in filter(among, listed):
        for address in things.addresses(operation.path):
            yield operation, client.request(operation.method, address, **body(operation, schemas))


def test_an_unknown_thing_is_not_found(client: httpx.Client) -> None:
    nonsense = {part: ("x", f"{values[0][:5]}%2e%2e", "x" * 3000) for part, values in UNKNOWN.parts.items()}
    for things in (UNKNOWN, Things(nonsense)):
        for operation, answer in answers(client, things, is_thing):
            if operation.scopes != {"admin"}:
                code = answer.json()["error"]["code"]
                assert code == "task_expired" or code.endswith("_not_found"), (operation.name, code)


def test_the_routes_that_need_a_key_are_all_but_these(serve: Serve) -> None:
    for operation, answer in answers(serve(api_keys=KEYS).client):
        refused = answer.status_code == httpx.codes.UNAUTHORIZED
        assert refused == bool(operation.scopes) == (operation.name not in PUBLIC), operation.name


def test_the_document_covers_every_route(app: ServedApp) -> None:
    paths = app.client.get("/openapi.json").json()["paths"]
    served = {standard_path(route.path).replace(":path", "") for route in app.app.routes if isinstance(route, APIRoute)}
    assert served - {*paths} == {"/console", "/docs", "/openapi.json"}, "pages for people, and itself"
    for path, methods in paths.items():
        form = "application/json" if path in {"/", "/embed", "/info", "/health"} else "application/problem+json"
        for operation, errors in product(methods.values(), ("4XX", "5XX")):
            refused = operation["responses"][errors]
            assert list(refused["content"]) == [form], path
            assert {"Retry-After", "x-should-retry"} <= set(refused["headers"])


def test_without_redis_every_answer_is_described(private_redis: RedisServer, tmp_path: Path) -> None:
    with ServedApp(private_redis.url, storage_url=str(tmp_path / "storage")) as served:
        private_redis.kill()
        away = {operation.name for operation, answer in answers(served.client) if answer.status_code == 503}
    assert {"GET /v1/tasks", "GET /v1/tasks/{task_id}", "GET /v1/files/{file_id}", "POST /v1/tasks"} <= away


def calls(operation: Operation, etag: str) -> list[dict[str, str]]:
    """Headers of the requests that show everything an operation can answer: none, and each that it reads.

    `etag`: those of all things, as a list.
    """
    values = {"if-none-match": etag, "idempotency-key": "a key", "if-range": '"no"'}
    values |= {"range": "bytes=0-0", "x-stainless-read-timeout": "9", "x-stainless-timeout": "9"}
    named = [one for one in operation.parameters if one["in"] == "header"]
    tried = ((one["name"], value) for one in named for value in (one.get("example"), values.get(one["name"].lower())))
    requests = [{}, *({name: value} for name, value in tried if value)]
    usual = operation.described["responses"].get("200", {}).get("content", {})
    return requests + [{**headers, "Accept": "text/html"} for headers in requests if "text/html" in usual]


def rank(operation: Operation) -> int:
    """What ends a thing comes after what reads it, and what needs a worker after what needs an open task."""
    last = operation.path.rpartition("/")[2]
    return ["GET", "cancel", "retry", "POST", "DELETE"].index(last if last in {"cancel", "retry"} else operation.method)


def test_every_answer_that_is_described_comes_with_its_headers(serve: Serve, worker: LedgerWorker, root: Path) -> None:
    app = serve(api_keys=MANAGED_KEYS)
    app.client.headers.update(ANN)
    gone = Key(name="gone", owner="owner_gone", digests=(), scopes=frozenset(), created=1, revoked=2)
    assert worker.ledger.run(records.make_key(gone, "new"))
    worker.ledger.run(records.make_mark(records.Mark(name="gone", owner="owner_gone", purged=3)))
    parts = {**make_things(app.client, worker, root, "ann").parts, "keys/{name}": ("keys/gone", "keys/acme")}
    loaded = INGESTION.make(app.client)
    end(worker.ledger, loaded)
    things = Things(parts | {"{ingestion_id}": (*parts["{ingestion_id}"], loaded)})
    etag = ", ".join(app.client.get(path).headers["etag"] for path in ("/console", f"/console/{parts['{path}'][0]}"))
    listed, schemas = read(app.client)
    with ExitStack() as stack:
        for operation in sorted(listed, key=rank):
            if operation.name == "POST /v1/embeddings":
                stack.enter_context(worker.serving())
            for address, headers in product(things.addresses(operation.path), calls(operation, etag)):
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


# Not positive_data_acceptance: which prompts, dimensions and ids exist is no matter of a document.
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance",
    "use_after_free", "ensure_resource_availability",
)  # fmt: skip
MUST_SUCCEED = {
    "POST /v1/embeddings", "POST /v1/tasks", "GET /v1/tasks/{task_id}", "POST /v1/files", "GET /v1/files/{file_id}",
    "POST /v1/batches", "POST /v1/ingestions", "GET /v1/models", "POST /embed",
}  # fmt: skip
"""Or the checks of their answers have looked at refusals only."""


@pytest.mark.thorough
def test_the_document_is_true(serve: Serve, worker: LedgerWorker, tmp_path: Path) -> None:
    """schemathesis tries to prove it wrong, with requests that fit it and that do not."""
    # With a key from the start: the first one that is made would close the service to all calls after it.
    client = serve(api_keys=MANAGED_KEYS, max_wait_s=1).client
    document = str(client.base_url.join("/openapi.json"))
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", "4"]
    command += ["--generation-deterministic", "--request-timeout", "10"]
    command += ["--header", f"Authorization: {ANN['authorization']}"]
    # A model id may hold slashes, and schemathesis throws away most of the paths that it makes for it.
    command += ["--suppress-health-check", "filter_too_much"]
    with worker.serving():
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2000:]
    counted = r'^embedq_http_requests_total{method="(\w+)",route="(\S+)",status="2..?"}'
    found = re.findall(counted, client.get("/metrics").text, re.MULTILINE)
    assert {f"{method} {route}" for method, route in found} >= MUST_SUCCEED


# ---- tenants ---------------------------------------------------------------------------------------------------------

NOBODYS = {
    "GET /", "GET /info", "GET /health", "GET /health/live", "GET /health/ready", "GET /metrics", "GET /console",
    "GET /console/{path}", "GET /v1/models", "GET /v1/models/{model_id}", "GET /v1/service",
    "GET /v1/service/redis",
}  # fmt: skip
"""What they answer belongs to nobody: the same for all who may call them."""
LISTS = {"GET /v1/tasks", "GET /v1/files", "GET /v1/batches", "GET /v1/ingestions", "GET /v1/jobs", "GET /v1/datasets"}
OWN = {"GET /v1/key"}
"""They read nothing but who calls."""
READERS: dict[Any, tuple[Any, ...]] = {
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"string": ("GET",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
}
NO_NAMES = {
    "status", "limit", "purpose", "order", "filter", "kind", "wait", "encoding_format", "range",
    "x-stainless-read-timeout", "x-stainless-timeout", "if-none-match", "if-range",
}  # fmt: skip
"""Headers and parameters that name nothing that a tenant has."""


def twin(thing: str) -> str:
    """A name as long and as old as this one that nobody has."""
    path, slash, last = thing.rpartition("/")
    if slash and thing.startswith("ing_"):
        return re.sub("^ing_[0-9a-f]+", lambda found: twin(found[0]), thing)
    if slash:
        return f"{twin(path)}/{last}"
    return thing[:-1] + ("0" if thing[-1] != "0" else "1")


def exchanged(value: Any, mine: str) -> Any:
    """A request with the twin of this thing in its place; "": as it is."""
    if isinstance(value, str):
        return value.replace(mine, twin(mine)) if mine else value
    if isinstance(value, dict):
        return {key: exchanged(item, mine) for key, item in value.items()}
    return [exchanged(item, mine) for item in value] if isinstance(value, list) else value


def told(answer: httpx.Response, name: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body as far as they depend on the request, without the name that was sent."""
    own = {"date", "x-request-id"}
    headers = {key: value.replace(name, "…") for key, value in answer.headers.items() if key not in own}
    return answer.status_code, headers, re.sub(r"req_\w+", "", answer.text.replace(name, "…"))


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
        return [route for route in read(self.ann)[0] if route.scopes != {"admin"}]

    def bobs_state(self) -> dict[str, object]:
        """Everything in Redis that is Bob's, and everything that was in the storage in the beginning."""
        own = (environment_owner("bob"), *self.bobs.ids)
        keys = [key for key in self.redis.scan_iter("*") if any(one in key.decode() for one in own)]
        files: dict[str, object] = {str(path): path.stat().st_mtime_ns for path in self.stored if path.is_file()}
        return files | {key.decode(): self.value(key) for key in keys}

    def value(self, key: bytes) -> object:
        """What a key of any type holds."""
        command, *how = READERS[self.redis.type(key)]
        value: object = self.redis.execute_command(command, key, *how)  # type: ignore[no-untyped-call]
        return value

    def tell_apart(self, method: str, address: str, mine: str, **request: Any) -> None:
        """Fails if Ann can tell Bob's thing `mine` from its twin, wherever it is in the request, or sees Bob's word."""
        real = told(self.ann.request(method, address, **request), mine)
        other = self.ann.request(method, exchanged(address, mine), **exchanged(request, mine))
        assert real == told(other, twin(mine)), f"{method} {address} {request}"
        self.quiet(real[2])

    def quiet(self, text: str) -> None:
        """Fails if a text tells something of Bob's."""
        assert not [one for one in (SECRET, *self.bobs.ids) if one in text], text


def ids(tenants: Tenants) -> None:
    """Every route with the ids of another tenant."""
    tried = set[str]()
    for route in filter(is_thing, tenants.routes):
        request = {"json": {"query": "a"}} if route.method == "POST" else {}
        for address in tenants.bobs.addresses(route.path):
            (mine,) = [one for one in tenants.bobs.ids if one in address]
            tenants.tell_apart(route.method, address, mine, **request)
            for header in route.headers & {"if-none-match", "if-range", "range"}:
                value = {"range": "bytes=0-0"}.get(header, '"1"')
                tenants.tell_apart(route.method, address, mine, headers={header: value}, **request)
        tried.add(route.name)
    assert {"GET /v1/tasks/{task_id}/result", "DELETE /v1/files/{file_id}", "POST /v1/datasets/{name}/search"} <= tried


def managing_keys(tenants: Tenants) -> None:
    """No tenant manages keys."""
    managing = [route for route in read(tenants.ann)[0] if route.scopes == {"admin"}]
    for route in managing:
        for address in tenants.bobs.addresses(route.path):
            refused = tenants.ann.request(route.method, address)
            assert refused.json()["error"]["code"] == "scope_missing", route.name
    assert {"POST /v1/keys", "POST /v1/keys/{name}/revoke"} <= {route.name for route in managing}


def cursors(tenants: Tenants, route: Operation, name: str) -> list[str]:
    """Values of Bob's for a header or parameter of a route."""
    if name.lower() in NO_NAMES:
        return []
    parts = tenants.bobs.parts
    if name == "name":  # a part of a name or of an id
        return [SECRET, *parts["{task_id}"]]
    if name == "document_id":
        return [tenants.bobs.document]
    assert name == "after", f"{route.name} reads {name}: whose is it?"
    if "{" in route.path:
        return [f"{part}-{row}-0" for part, row in product(range(2), repeat=2)]  # places are numbers
    kinds = {"tasks": "{task_id}", "files": "{file_id}", "batches": "{batch_id}", "ingestions": "{ingestion_id}"}
    of_path = route.path.rpartition("/")[2]
    asked = [kind for of, kind in kinds.items() if of == of_path or (of_path == "jobs" and of != "files")]
    return [one for kind in asked or ["{name}"] for one in parts[kind]]


def with_cursors(tenants: Tenants) -> None:
    """Every route with the cursors of another tenant."""
    tried = set[tuple[str, str]]()
    for route in tenants.routes:
        if route.method != "GET":
            continue
        assert is_thing(route) or route.name in NOBODYS | LISTS | OWN, f"{route.name} has no case here"
        for address in tenants.annas.addresses(route.path):
            for parameter in route.parameters:
                name, place = parameter["name"], "headers" if parameter["in"] == "header" else "params"
                for value in cursors(tenants, route, name):
                    tenants.tell_apart(route.method, address, value, **{place: {name: value}})
                    tried.add((route.name, name))
            tenants.quiet(tenants.ann.get(address).text)
    assert {(one, "after") for one in LISTS} <= tried
    for path in (name.removeprefix("GET ") for name in LISTS):
        assert tenants.ann.get(path).json()["data"], f"{path} shows nothing at all"


def creations(file_id: str) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """For each route that makes something: bodies, each with the id of Bob's that is in it, or ""."""
    of_files = [{"files": [file_id]}, {"files": [{"id": file_id, "document_id": "d"}]}]
    unsent = {"files": [{"sha256": "0" * 64, "document_id": "d"}]}
    loads = [{**GOOD, "sink": {"type": "dataset", "dataset": NAME}, "mode": mode} for mode in ("upsert", "sync")]
    return {
        "POST /v1/tasks": [({"input": f"{SECRET} 1", "metadata": {"a": SECRET}}, "")],
        "POST /v1/batches": [(BATCH | {"input_file_id": file_id}, file_id)],
        "POST /v1/ingestions/files/known": [(one | {"source": unsent}, "") for one in loads],
        "POST /v1/ingestions": [*(({"source": source}, file_id) for source in of_files), *((one, "") for one in loads)],
    }


WAITED_FOR = {"POST /v1/embeddings": "input", "POST /embed": "inputs", "POST /": "inputs"}
UPLOADS = {"POST /v1/files"}


def makes_something(tenants: Tenants) -> None:
    """Every route that makes something with what another tenant has."""
    made = creations(*tenants.bobs.parts["{file_id}"])
    for route in tenants.routes:
        name = route.name
        if route.method != "POST" or is_thing(route):
            continue
        assert name in {*made, *WAITED_FOR, *UPLOADS}, f"{name} has no case here"
        for number, (asked, bobs) in enumerate(made.get(name, ())):
            # Bob has used this key: for Ann it is a new one, whatever she sends with it.
            keyed = {"idempotency-key": f"{name.removeprefix('POST ')} of bob" + " again" * number}
            send = tenants.ann.post(route.path, json=asked, headers=keyed)
            other = {"idempotency-key": f"t{number}"}
            unknown = tenants.ann.post(route.path, json=exchanged(asked, bobs), headers=other)
            assert send.status_code == unknown.status_code, send.text
            assert "idempotency" not in send.text.lower()
            assert send.json().get("id") not in tenants.bobs.ids
            if not send.is_success:
                assert told(send, bobs) == told(unknown, twin(bobs))


def two_datasets(tenants: Tenants, root: Path) -> None:
    """Two datasets of one name are two datasets."""
    bobs = tenants.bob.get(f"/v1/datasets/{NAME}").json()
    load(root, document("own", [1, 2, 3, 4], text="own"), owner=environment_owner("ann"), name=NAME)
    for client, text in ((tenants.ann, "own 0"), (tenants.bob, f"{SECRET} 0")):
        found = client.post(f"/v1/datasets/{NAME}/search", json={"vector": [1, 2, 3, 4]}).json()["data"]
        assert [hit["text"] for hit in found] == [text]
    assert tenants.ann.delete(f"/v1/datasets/{NAME}").json()["deleted"]
    assert tenants.bob.get(f"/v1/datasets/{NAME}").json() == bobs


def test_equal_texts_of_two_tenants_are_two_tasks(
    serve: Serve, worker: LedgerWorker, redis_client: "redis.Redis"
) -> None:
    # An equal request of the same tenant joins the task that is there. One of another tenant must not: it would be
    # answered at once, and so tell that somebody has asked for this text.
    client = serve(api_keys=KEYS).client
    asynchronous = ("/v1/tasks", "input", {"idempotency-key": "both have this one"})
    waited_for = [(name.removeprefix("POST "), field, dict[str, str]()) for name, field in WAITED_FOR.items()]
    with worker.serving():
        for path, field, headers in [asynchronous, *waited_for]:
            new = []
            for who in (BOB, BOB, ANN):
                before = set(redis_client.scan_iter("eq:task:*"))
                answer = client.post(path, json={field: f"{SECRET} {path} {headers}"}, headers=headers | who)
                assert answer.is_success, answer.text
                new.append(len(set(redis_client.scan_iter("eq:task:*")) - before))
            assert new == [1, 0, 1], path


def test_no_route_tells_or_takes_what_another_tenant_has(
    serve: Serve, worker: LedgerWorker, redis_client: "redis.Redis", root: Path
) -> None:
    url = serve(api_keys=KEYS).client.base_url
    with (
        httpx.Client(base_url=url, headers=ANN, timeout=PATIENCE_S) as ann,
        httpx.Client(base_url=url, headers=BOB, timeout=PATIENCE_S) as bob,
    ):
        annas, bobs = make_things(ann, worker, root, "ann"), make_things(bob, worker, root, "bob")
        tenants = Tenants(ann, bob, annas, bobs, worker, redis_client, list(root.rglob("*")))
        before = tenants.bobs_state()
        for ask in (with_cursors, makes_something, ids, managing_keys):
            ask(tenants)
        two_datasets(tenants, root)
        assert tenants.bobs_state() == before
