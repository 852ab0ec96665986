"""Bodies of requests, of all routes: what is refused, with which code and words, which field is named; what is taken.

A body of embeddings comes in three ways: a call, a task, a line of a batch. One judgement is passed on it.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.records.batches import Batch
from tasks.records.ingestions import new_ingestion_id
from tests.integration.api import things
from tests.integration.api.file_uploads import problem, upload_with
from tests.integration.api.served import MODEL, Serve, ServedApp
from tests.integration.api.things import BATCH, GOOD
from tests.integration.batches.hands import Hands
from tests.made_datasets import NAME, document, load

JSON = {"content-type": "application/json"}
TASKS, EMBEDDINGS, BATCHES, INGESTIONS = "/v1/tasks", "/v1/embeddings", "/v1/batches", "/v1/ingestions"
KNOWN, SEARCH = "/v1/ingestions/files/known", f"/v1/datasets/{NAME}/search"
WRONG: dict[tuple[str, str], Sequence[Any]] = {
    ("missing_required_parameter", "input"): [None],
    ("empty_input", "input"): [[]],
    ("empty_input", "input[0]"): [""],
    ("empty_input", "input[1]"): [["a", ""], [[1], []]],
    ("input_too_large", "input"): [[58040] * 9000],  # tokens of 128 spaces each
    ("input_too_large", "input[0]"): ["x" * (2**20 + 1)],
    ("too_many_inputs", "input"): [["a"] * 2049, [[1]] * 2049],
    ("invalid_type", "input"): [7, True, {"text": "a"}],
    ("invalid_type", "input[0]"): [[True], [["a", "b"]], [[]], [[[1]]], [[], [1]], [1e5]],
    ("invalid_type", "input[1]"): [
        *(["a", other] for other in (None, 1, {"a": 1}, ["b"])),
        *([1, other] for other in (True, 2.0, None, "a", [2])),
        [[1], "a"],
    ],
    ("invalid_value", "input[0]"): [[-1], [100256]],
    ("invalid_value", "input[1][1]"): [[[1], [2, -1]]],
}
"""Values of `input`, by the code and the field of the answer."""
FIELDS: dict[tuple[str, str], Sequence[Any]] = {
    ("invalid_type", "dimensions"): [2.5, "2", True],
    ("invalid_value", "dimensions"): [0, -1, 5, 1e30],
    ("invalid_type", "prompt_name"): [7],
    ("invalid_value", "prompt_name"): ["nope", "", "x" * 201],
    ("invalid_type", "truncate"): [1, {"a": 1}],
    ("invalid_value", "truncate"): ["START"],
    ("invalid_value", "encoding_format"): ["md5", ["float"], "FLOAT"],
    ("invalid_value", "add_special_tokens"): [False, 1],
    ("invalid_value", "late_chunking"): [True, 1],
    ("invalid_value", "return_multivector"): [True],
    ("invalid_value", "truncate_prompt_tokens"): [100],
    ("invalid_value", "output_dtype"): ["int8", ["float"]],
    ("invalid_value", "embed_dtype"): ["float16"],
}
"""Values of the other fields."""
VENDORS: dict[tuple[str, str], Sequence[Mapping[str, Any]]] = {
    ("invalid_type", "normalize"): [{"normalized": 1}],
    ("invalid_value", "dimensions"): [{"output_dimension": 1536}],
    ("invalid_value", "output_dimension"): [{"dimensions": 2, "output_dimension": 3}],
    ("invalid_value", "dimension"): [{"dimensions": 2, "dimension": 3}],
    ("invalid_value", "normalized"): [{"normalize": True, "normalized": False}],
    ("invalid_value", "truncation"): [{"truncate": False, "truncation": True}],
    ("invalid_value", "truncate"): [{"truncation": "yes"}],
}
"""Fields by the names of other vendors."""
BODIES: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({}, ("missing_required_parameter", "input")),
    *(({"input": value}, told) for told, values in WRONG.items() for value in values),
    *(({"input": "a", told[1]: value}, told) for told, values in FIELDS.items() for value in values),
    *(({"input": "a"} | dict(fields), told) for told, bodies in VENDORS.items() for fields in bodies),
]
USABLE: list[dict[str, Any]] = [
    {"dimensions": 4.0},
    {"dimensions": None, "normalize": None},
    {"output_dimension": 2, "output_dtype": "float"},
    {"truncation": False, "normalized": False},
    {"task": "retrieval.query", "late_chunking": False},
    {"encoding_format": ""},
    {"embedding_type": "base64"},
    {"input": [606]},
    {"input": [[606], [20375]], "dimensions": 2.0},
    {"input": "\0"},
    {"user": {"any": ["thing"]}, "stream": True, "stream_options": None},
]
RAW: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b'{"input": "a", "dimensions": NaN}', "invalid_json", None),
    (b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_json", None),
    (b'{"input":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_type", "input[0]"),
    (b'{"input": "\xff"}', "invalid_unicode", None),
    (b'{"input": ["a", "b", "c", "\\ud800"]}', "invalid_unicode", "input[3]"),
    (b'{"input": "a", "input": ""}', "empty_input", "input[0]"),  # the last one of two fields counts
]
Wrong = list[tuple[Any, str, str]]
"""What is changed of a good body, then the code and the field of the answer."""
METADATA: Wrong = [
    ({"metadata": []}, "invalid_type", "metadata"),
    ({"metadata": {"k": 1}}, "invalid_type", "metadata.k"),
    ({"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
]
OF_TASKS: Wrong = [
    ({"dimensoins": None}, "unknown_parameter", "dimensoins"),
    ({"lane": "fast"}, "invalid_value", "lane"),
    ({"deadline_s": 0}, "invalid_value", "deadline_s"),
    *METADATA,
]
AFTER = "output_expires_after"
OF_BATCHES: Wrong = [
    *(({name: None}, "missing_required_parameter", name) for name in BATCH),
    ({"endpoint": "/v1/chat/completions"}, "invalid_value", "endpoint"),
    *(({"completion_window": some}, "invalid_value", "completion_window") for some in ("1d", "0h", "8760h", "-24h")),
    *(
        ({AFTER: {"anchor": "created_at", "seconds": 3600} | wrong}, "invalid_value", f"{AFTER}.{name}")
        for wrong, name in (({"seconds": 60}, "seconds"), ({"anchor": "now"}, "anchor"))
    ),
    *METADATA,
]
SECRET = "the secret sentence"
ONE = [{"id": "a", "text": "x"}]
UNSENT = {"sha256": sha256(b"x").hexdigest(), "document_id": "a"}
OF_SOURCES: Wrong = [
    ({"document": ONE}, "missing_required_parameter", ""),
    ({"files": ["file-1"], "documents": ONE}, "invalid_value", ".documents"),
    ({"documents": ONE * 10_001}, "invalid_value", ".documents"),
    ({"documents": [*ONE, {"id": "b", "txt": "x"}]}, "unknown_parameter", ".documents[1].txt"),
    ({"files": [UNSENT | {"id": "file-1"}]}, "invalid_value", ".files[0].id"),
    ({"files": [UNSENT, {"sha256": UNSENT["sha256"]}]}, "missing_required_parameter", ".files[1].document_id"),
    ({"files": [UNSENT | {"sha256": "x" * 64}]}, "invalid_value", ".files[0].sha256"),
    ({"files": [UNSENT | {"metadata": {}}]}, "invalid_value", ".files[0].metadata"),
    ({"urls": ["/srv/docs/a", "/etc/passwd"]}, "source_failed", ".urls[1]"),
    ({"urls": ["/srv/docs/a", "/srv/docs/b/.ssh/id_rsa"]}, "source_failed", ".urls[1]"),
    ({"urls": ["file:///srv/docs/%2egit/**"]}, "source_failed", ".urls[0]"),
    ({"urls": ["/srv/docs/%2e%2e/secret"]}, "source_failed", ".urls[0]"),
]


def static(size: Any, overlap: Any = 0, **fields: Any) -> dict[str, Any]:
    sizes = {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap}
    return {"chunking": {"type": "static", "static": sizes} | fields}


def table(**fields: Any) -> dict[str, Any]:
    return {"sink": {"type": "postgresql", "name": "store", "table": "t"} | fields}


OF_INGESTIONS: Wrong = [
    *(({"source": source}, code, f"source{param}") for source, code, param in OF_SOURCES),
    ({"chunkng": {}}, "unknown_parameter", "chunkng"),
    (static(100, type="auto"), "unknown_parameter", "chunking.static"),
    (static(2), "invalid_value", "chunking.static.max_chunk_size_tokens"),
    (static(100, 51), "invalid_value", "chunking.static.chunk_overlap_tokens"),
    (table(table="a;b"), "invalid_value", "sink.table"),
    (table(name="x"), "invalid_value", "sink.name"),
    ({"sink": {"type": "dataset", "table": "t"}}, "unknown_parameter", "sink.table"),
    ({"sink": {"type": "dataset", "dataset": "../x"}}, "invalid_value", "sink.dataset"),
    ({"sink": {"type": "dataset", "dataset": new_ingestion_id()}}, "invalid_value", "sink.dataset"),
    ({"dimensions": 100_000}, "invalid_value", "dimensions"),
    ({"prompt_name": "nothing"}, "invalid_value", "prompt_name"),
    *METADATA[2:],
]
VECTOR = {"vector": [1, 0, 0, 0]}
OF_SEARCHES: Wrong = [
    ({"vector": None}, "missing_required_parameter", "query"),
    ({"query": "a"}, "missing_required_parameter", "query"),
    ({"vector": None, "query": ""}, "invalid_value", "query"),
    *(({"vector": vector}, "invalid_value", "vector") for vector in ([], [1, 2, 3], [0] * 4, [1e300, 0, 0, 0])),
    ({"vector": [1] * 65_537}, "invalid_value", "vector"),
    *(({"vector": [value, 0, 0, 0]}, "invalid_type", "vector") for value in (True, "1")),
    ({"limt": 1}, "unknown_parameter", "limt"),
    ({"filter": {"a": 2**63}}, "invalid_value", "filter.a"),
    ({"filter": {f"f{n}": 1 for n in range(17)}}, "invalid_value", "filter"),
    ({"vector": None, "query": "a" * (2**20 + 1)}, "input_too_large", "query"),
    ({"mode": "hybrid"}, "missing_required_parameter", "query"),
    ({"mode": "text", "query": "pear"}, "invalid_value", "vector"),
]


@pytest.fixture
def app(worker: object, serve: Serve) -> ServedApp:
    sinks = "store=postgresql://me:secret-password@db/vectors"
    return serve(ingest_roots="/srv/docs,s3://bucket/in", sinks=sinks)


@pytest.fixture
def hands(ledger: Ledger, tmp_path: Path) -> Hands:
    return Hands(ledger, tmp_path)


def batch_of(hands: Hands, bodies: Sequence[Any]) -> Batch:
    """A batch of these bodies that has been worked on."""
    line = {"method": "POST", "url": EMBEDDINGS}
    batch_id = hands.create([{"custom_id": f"{n}", "body": body, **line} for n, body in enumerate(bodies)])
    hands.work()
    return hands.batch(batch_id)


def lines_of_a_batch(hands: Hands, bodies: Sequence[Any]) -> list[dict[str, Any]]:
    """What a batch answers to each of these bodies."""
    batch = batch_of(hands, bodies)
    assert not batch.errors
    found = [*hands.lines(batch.output_file_id), *hands.lines(batch.error_file_id)]
    by_number = {int(line["custom_id"]): line["response"] for line in found}
    assert len(found) == len(by_number) == len(bodies)
    return [by_number[n] for n in range(len(bodies))]


# ---- embeddings: three ways, one judgement ---------------------------------------------------------------------------


def test_an_odd_body_is_refused_in_the_same_words_whichever_way_it_comes(client: httpx.Client, hands: Hands) -> None:
    bodies = [{"model": MODEL} | body for body, _ in BODIES]
    lines = lines_of_a_batch(hands, bodies)
    for body, (_, (code, param)), line in zip(bodies, BODIES, lines, strict=True):
        case = orjson.dumps(body)[:200]
        for path in (EMBEDDINGS, TASKS):
            answer = client.post(path, json=body)
            assert param in problem(answer, 400, code, param, case=case)
            assert (line["status_code"], line["body"]["error"]) == (400, answer.json()["error"]), case
    for path in (TASKS, EMBEDDINGS):
        for content, code, field in RAW:
            problem(client.post(path, content=content, headers=JSON), 400, code, field, case=content[:60])


def test_a_body_that_can_be_used_can_be_used_whichever_way_it_comes(client: httpx.Client, hands: Hands) -> None:
    bodies = [{"model": MODEL, "input": "a"} | body for body in USABLE]
    assert {line["status_code"] for line in lines_of_a_batch(hands, bodies)} == {200}
    for body in bodies:
        stored = {key: value for key, value in body.items() if key != "stream_options"}  # nobody knows this field
        assert client.post(TASKS, json=stored).status_code == 202, body
        headers = {"x-stainless-read-timeout": "0.01"}  # no worker works here: it is taken, and not ready in time
        assert client.post(EMBEDDINGS, json=body, headers=headers).json()["error"]["code"] == "wait_timeout", body


def test_a_model_that_is_not_served_is_told_with_those_that_are(client: httpx.Client, hands: Hands) -> None:
    bodies: list[Any] = [{"model": model, "input": "a"} for model in ("", 7, [MODEL], "x" * 201, "nope")]
    faults = batch_of(hands, bodies).errors
    for path in (EMBEDDINGS, TASKS):
        errors = [client.post(path, json=body).json()["error"] for body in bodies]
        assert [(error["code"], error["message"], f"body.{error['param']}") for error in errors] == [
            (fault.code, fault.message, fault.param) for fault in faults
        ]
    assert (faults[-1].code, faults[-1].message) == (
        "model_not_found",
        f"There is no model 'nope' here. This server serves {MODEL}.",
    )


# ---- all routes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "good", "wrong"),
    [
        (TASKS, {"input": "a"}, OF_TASKS),
        (BATCHES, BATCH, OF_BATCHES),
        (INGESTIONS, GOOD, OF_INGESTIONS),
        (KNOWN, GOOD, OF_INGESTIONS),
        (SEARCH, VECTOR, OF_SEARCHES),
    ],
)
def test_what_is_wrong_with_the_request_is_refused_at_once(
    client: httpx.Client, root: Path, path: str, good: dict[str, Any], wrong: Wrong
) -> None:
    load(root, document("a", [1, 0, 0, 0]), owner="anonymous")
    for changed, code, param in wrong:
        answer = client.post(path, json=good | changed)
        problem(answer, 400, code, param, case=changed)
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert "secret-password" not in answer.text
    if path not in {BATCHES, SEARCH}:
        problem(client.post(path, json=good | {"model": "nobody/knows"}), 404, "model_not_found", "model")
    for name, hidden in (("input", {"text": SECRET}), ("metadata", {"k": [SECRET]}), ("source", SECRET)):
        assert path == BATCHES or SECRET not in client.post(path, json=good | {name: hidden}).text
    assert client.get("/v1/jobs").json()["data"] == []
    assert not [each for each in root.rglob("*") if each.is_file() and "ingestions" in each.parts]


LISTS = b"[" + b"[]," * 100_000 + b"[]]"
NAMES = b"{" + b'"0":0,' * 100_000 + b'"0":0}'
WAYS_OUT: list[tuple[str, Any, int, str, str | None, str]] = [
    (TASKS, {"inputs": "a"}, 400, "unknown_parameter", "inputs", "did you mean input?"),
    (TASKS, b'{"input":\n "a" "b"}', 400, "invalid_json", None, "line 2 column"),
    (TASKS, {"input": ["a"] * 2049}, 400, "too_many_inputs", "input", BATCHES),
    (TASKS, {"input": ["a", "x" * 10_000_000]}, 400, "input_too_large", "input[1]", "10,000,000 bytes"),
    (TASKS, {"input": "x" * 17_000_000}, 413, "body_too_large", None, BATCHES),
    # Brackets and colons in texts are no parts of the body.
    (TASKS, {"input": ["[{:" * 60_000], "metadata": {"k": []}}, 400, "invalid_type", "metadata.k", ""),
    *(
        (path, b'{"input":"a","z":' + dear + b"}", 400, "body_too_complex", None, "100,000 lists")
        for path in (TASKS, EMBEDDINGS, BATCHES, INGESTIONS)
        for dear in (LISTS, NAMES)
    ),
    *(  # the parser of the body takes some that its readers do not
        (INGESTIONS, b'{"source":{"documents":[{"id":"a","text":"x","metadata":%b}]}}' % deep, 400, code, of, "")
        for depth, code, of in ((33, "invalid_value", "source.documents[0].metadata"), (2000, "invalid_json", None))
        for deep in (b'{"a":' * depth + b"1" + b"}" * depth,)
    ),
    (INGESTIONS, {"source": {"documents": ONE, "record": 0}}, 400, "unknown_parameter", "source.record", "records?"),
    (INGESTIONS, {"source": {}}, 400, "missing_required_parameter", "source", "files, urls and documents"),
    (INGESTIONS, GOOD | table(name="x"), 400, "invalid_value", "sink.name", "it has: store"),
    (BATCHES, BATCH | {"endpoint": "/v1/responses"}, 400, "invalid_value", "endpoint", "'/v1/embeddings'"),
]


def test_a_refusal_names_the_way_out(client: httpx.Client, redis_client: redis.Redis, serve: Serve) -> None:
    for path, body, status, code, param, hint in WAYS_OUT:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        assert hint in problem(client.post(path, content=content, headers=JSON), status, code, param)
    file_id = upload_with(client)().json()["id"]
    for path in (TASKS, EMBEDDINGS, BATCHES, INGESTIONS):
        for form in ({"content-type": "text/plain"}, {"content-type": ""}, {**JSON, "content-encoding": "gzip"}):
            problem(client.post(path, content=b'{"input":"a"}', headers=form), 415, "unsupported_media_type")
    unknown = client.post(INGESTIONS, json={"source": {"files": [file_id, "file-unknown"]}})
    problem(unknown, 404, "file_not_found", "source.files[1]")
    plain = serve(max_body_bytes=2000, max_input_bytes=1000).client
    streamed = plain.post(TASKS, content=(b" " * 500 for _ in range(10)), headers=JSON)
    problem(streamed, 413, "body_too_large")
    rootless = plain.post(INGESTIONS, json={"source": {"urls": ["/srv/docs"]}})
    assert "EMBEDQ_INGEST_ROOTS" in problem(rootless, 400, "source_failed", "source.urls[0]")
    assert list(redis_client.scan_iter("eq:task:*")) == []


def test_what_is_accepted(client: httpx.Client) -> None:
    taken: list[dict[str, Any]] = [
        static(16, 8),
        {"chunking": {"type": "none"}, "mode": "sync", "dry_run": True},
        {"on_conflict": "replace"},
        {"metadata": {"k": "é" * 2047, "l": ""}},
        {"source": {"urls": ["/srv/docs", "file:///srv/docs/**/*.md", "s3://bucket/in/a"], "records": False}},
        {"source": {"documents": ONE, "fields": {"text": "body", "metadata": "*", "id": None}}},
        table(table="public.chunks"),
    ]
    for changed in taken:
        things.INGESTION.create(client, **changed)
    # Null counts as absent, at any depth.
    source = {"documents": ONE, "files": None, "urls": None, "format": None, "fields": {"id": None}}
    made = things.INGESTION.create(
        client, source=source, sink={"type": "dataset", "dataset": None, "table": None}, chunking=None
    )
    shown = made["source"]["type"], made["sink"], made["chunking"]
    assert shown == ("documents", {"type": "dataset"}, {"type": "auto"})
    after = {"anchor": "created_at", "seconds": 3600}
    things.BATCHES.create(client, completion_window="1h", metadata=None, unknown=1, output_expires_after=after)


# ---- what is no body, or of no route ---------------------------------------------------------------------------------


def test_an_unknown_route_and_a_wrong_method(client: httpx.Client) -> None:
    elsewhere = {"GET /v1/nothing": "", "POST /v1/v1/embeddings": "without /v1", "GET /v2/models": "/openapi.json"}
    for request, hint in elsewhere.items():
        assert hint in problem(client.request(*request.split()), 404, "route_not_found"), request
    methods = {"PUT /v1/tasks": "GET, HEAD, POST", "PATCH /v1/tasks/x": "DELETE, GET, HEAD", "PUT /embeddings/": "POST"}
    for request, allowed in methods.items():
        answer = client.request(*request.split())
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allowed, request
