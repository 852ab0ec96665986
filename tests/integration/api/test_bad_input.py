"""Bodies of embeddings, whichever way they come: a call, a task, a line of a batch. What is refused, in which words."""

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import redis

from api.offload import _ONE_BY_ONE, LARGE_BYTES
from tasks.ledger.client import Ledger
from tests.integration.api.served import MODEL, ServedApp
from tests.integration.batches.hands import Hands
from tests.processes import wait_until

JSON = {"content-type": "application/json"}
TASKS, EMBEDDINGS = "/v1/tasks", "/v1/embeddings"
PATHS = [TASKS, EMBEDDINGS, "/embed", "/v1/batches", "/v1/ingestions"]
WRONG: dict[tuple[str, str], Sequence[Any]] = {
    ("missing_required_parameter", "input"): [None],
    ("empty_input", "input"): [[]],
    ("empty_input", "input[0]"): [""],
    ("empty_input", "input[1]"): [["a", ""], [[1], []]],
    ("input_too_large", "input"): [[58040] * 9000],  # tokens of 128 spaces each
    ("input_too_large", "input[0]"): ["x" * (2**20 + 1)],
    ("too_many_inputs", "input"): [["a"] * 2049, [[1]] * 2049],
    ("invalid_type", "input"): [7, True, {"text": "a"}],
    ("invalid_type", "input[0]"): [[True], [["a", "b"]], [["a"]], [[]], [[[1]]], [[], [1]], [1e5]],
    ("invalid_type", "input[1]"): [
        *(["a", other] for other in (None, 1, {"a": 1}, ["b"])),
        *([1, other] for other in (True, 2.0, None, "a", [2])),
        [[1], "a"],
    ],
    ("invalid_type", "input[1][0]"): [[[1], [[2]]]],
    ("invalid_value", "input[0]"): [[-1], [100256]],
    ("invalid_value", "input[1][0]"): [[[1], [100277]]],
    ("invalid_value", "input[1][1]"): [[[1], [2, -1]]],
}
"""Values of `input`, by the code and the field of the answer."""
FIELDS: dict[tuple[str, str], Sequence[Any]] = {
    ("invalid_type", "dimensions"): [2.5, "2", True],
    ("invalid_value", "dimensions"): [0, -1, 5, 1536, 1e30],
    ("invalid_type", "normalize"): ["yes"],
    ("invalid_type", "prompt_name"): [7],
    ("invalid_value", "prompt_name"): ["nope", "", "x" * 201],
    ("invalid_type", "truncate"): [1, {"a": 1}],
    ("invalid_value", "truncate"): ["START"],
    ("invalid_value", "encoding_format"): ["md5", ["float"], "FLOAT"],
    ("invalid_value", "add_special_tokens"): [False],
    ("invalid_value", "embedding_type"): ["ubinary"],
    ("invalid_value", "embedding_types"): [["int8"]],
    ("invalid_value", "endianness"): ["big"],
    ("invalid_value", "late_chunking"): [True],
    ("invalid_value", "output_dtype"): ["int8"],
}
"""Values of the other fields."""
VENDORS: dict[tuple[str, str], Sequence[Mapping[str, Any]]] = {
    ("invalid_type", "normalize"): [{"normalized": 1}],
    ("invalid_value", "dimensions"): [{"output_dimension": 1536}],
    ("invalid_value", "output_dimension"): [{"dimensions": 2, "output_dimension": 3}],
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
    {"input": "a", "dimensions": 4.0},
    {"input": "a", "dimensions": None, "normalize": None},
    {"input": "a", "output_dimension": 2, "output_dtype": "float"},
    {"input": "a", "truncate": "NONE"},
    {"input": "a", "truncation": False, "normalized": False},
    {"input": "a", "task": "retrieval.query", "late_chunking": False},
    {"input": "a", "input_type": "document"},
    {"input": "a", "input_type": 7},
    {"input": "a", "encoding_format": ""},
    {"input": "a", "embedding_type": "base64"},
    {"input": [606]},
    {"input": [[606], [20375]], "dimensions": 2.0},
    {"input": "\0"},
    {"input": "a", "user": {"any": ["thing"]}, "stream": True, "stream_options": None},
]
NATIVE: list[tuple[dict[str, Any], str, str]] = [
    ({"dimensoins": 2}, "unknown_parameter", "dimensoins"),
    ({"dimensoins": None}, "unknown_parameter", "dimensoins"),
    ({"lane": "fast"}, "invalid_value", "lane"),
    ({"deadline_s": 0}, "invalid_value", "deadline_s"),
    ({"deadline_s": 1e9}, "invalid_value", "deadline_s"),
    ({"deadline_s": "1"}, "invalid_type", "deadline_s"),
    ({"metadata": []}, "invalid_type", "metadata"),
    ({"metadata": {"k": 1}}, "invalid_type", "metadata.k"),
    ({"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
]
"""What a task alone has, beside a good input."""
RAW: list[tuple[bytes, str, str | None]] = [
    (b"", "invalid_json", None),
    (b'"a"', "invalid_type", None),
    (b'["a"]', "invalid_type", None),
    (b'{"input": "a",}', "invalid_json", None),
    (b'{"input": "a", "dimensions": NaN}', "invalid_json", None),
    (b'{"input": 1e400}', "invalid_json", None),
    (b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}", "invalid_json", None),
    (b'{"input":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_type", "input[0]"),
    (b'{"input": "\xff"}', "invalid_unicode", None),
    (b'{"input": ["a", "b", "c", "\\ud800"]}', "invalid_unicode", "input[3]"),
    (b'{"input": "a", "model": "\\udc00"}', "invalid_unicode", "model"),
    (b'{"input": "a", "input": ""}', "empty_input", "input[0]"),  # the last one of two fields counts
]


@pytest.fixture
def nothing_stored(app: ServedApp, redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert list(redis_client.scan_iter("eq:task:*")) == []


@pytest.fixture
def hands(ledger: Ledger, tmp_path: Path) -> Hands:
    return Hands(ledger, tmp_path)


def of_batch(hands: Hands, bodies: Sequence[Any], *, urls: Sequence[Any] = (EMBEDDINGS,)) -> str:
    """A batch of these bodies, each once for each URL, that has been worked on."""
    asked = [(url, body) for url in urls for body in bodies]
    batch_id = hands.create(
        [{"custom_id": f"{n}", "method": "POST", "url": url, "body": body} for n, (url, body) in enumerate(asked)]
    )
    hands.work()
    return batch_id


def lines_of_a_batch(hands: Hands, bodies: Sequence[Any]) -> list[dict[str, Any]]:
    """What a batch answers to each of these bodies."""
    batch = hands.batch(of_batch(hands, bodies))
    assert not batch.errors
    found = [*hands.lines(batch.output_file_id), *hands.lines(batch.error_file_id)]
    by_number = {int(line["custom_id"]): line["response"] for line in found}
    assert len(found) == len(by_number) == len(bodies)
    return [by_number[n] for n in range(len(bodies))]


def refused(answer: httpx.Response, status: int, code: str, param: str | None, *, case: object = "") -> str:
    body = answer.json()
    assert answer.status_code == status, f"{case}: {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["error"]["code"], body["error"]["param"]) == (code, param), f"{case}: {answer.text}"
    assert (body["status"], body["detail"]) == (status, body["error"]["message"])
    detail: str = body["detail"]
    assert param is None or status != 400 or param in detail, detail
    return detail


# ---- three ways, one judgement ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_an_odd_body_is_refused_in_the_same_words_whichever_way_it_comes(client: httpx.Client, hands: Hands) -> None:
    bodies = [{"model": MODEL} | body for body, _ in BODIES]
    lines = lines_of_a_batch(hands, bodies)
    for body, (_, (code, param)), line in zip(bodies, BODIES, lines, strict=True):
        case = orjson.dumps(body)[:200]
        for path in (EMBEDDINGS, TASKS):
            answer = client.post(path, json=body)
            refused(answer, 400, code, param, case=case)
            assert (line["status_code"], line["body"]["error"]) == (400, answer.json()["error"]), case


def test_a_body_that_can_be_used_can_be_used_whichever_way_it_comes(client: httpx.Client, hands: Hands) -> None:
    bodies = [{"model": MODEL} | body for body in USABLE]
    assert {line["status_code"] for line in lines_of_a_batch(hands, bodies)} == {200}
    for body in bodies:
        stored = {key: value for key, value in body.items() if key != "stream_options"}  # nobody knows this field
        assert client.post(TASKS, json=stored).status_code == 202, body
        headers = {"x-stainless-read-timeout": "0.01"}  # no worker works here: it is taken, and not ready in time
        assert client.post(EMBEDDINGS, json=body, headers=headers).json()["error"]["code"] == "wait_timeout", body


def test_a_model_that_is_not_served_is_told_with_those_that_are(client: httpx.Client, hands: Hands) -> None:
    bodies: list[Any] = [{"model": model, "input": "a"} for model in ("", 7, [MODEL], "x" * 201, "nope")]
    faults = hands.batch(of_batch(hands, bodies)).errors
    for path in (EMBEDDINGS, TASKS):
        errors = [client.post(path, json=body).json()["error"] for body in bodies]
        assert [(error["code"], error["message"], f"body.{error['param']}") for error in errors] == [
            (fault.code, fault.message, fault.param) for fault in faults
        ]
    assert (faults[-1].code, faults[-1].message) == (
        "model_not_found",
        f"There is no model 'nope' here. This server serves {MODEL}.",
    )


def test_the_url_of_a_line_may_be_any_that_the_route_takes(hands: Hands) -> None:
    body = {"model": MODEL, "input": "a"}
    urls = [EMBEDDINGS, "/v1/embeddings/", "v1/embeddings", "/embeddings", "//v1/embeddings", "embeddings/"]
    assert hands.batch(of_batch(hands, [body], urls=urls)).counts.completed == len(urls)
    others = ["https://host/v1/embeddings", "/openai/v1/embeddings", "/v1/chat/completions", 7]
    faults = hands.batch(of_batch(hands, [body], urls=others)).errors
    assert [(fault.code, fault.param) for fault in faults] == [("invalid_url", "url")] * len(others)
    assert all("'/v1/embeddings'" in fault.message for fault in faults)


def test_lines_of_other_alphabets_and_encodings(hands: Hands) -> None:
    ids = ["one\u2028two", "three\u2029four", "five\x85six"]  # which Python takes for line breaks
    line = {"method": "POST", "url": EMBEDDINGS, "body": {"model": MODEL, "input": "ä"}}
    batch_id = hands.create([{"custom_id": custom_id, **line} for custom_id in ids])
    hands.work()
    assert [orjson.loads(one)["custom_id"] for one in hands.output(batch_id).decode().splitlines()] == ids
    text = orjson.dumps({"custom_id": "ä", **line}).decode()
    told = {}
    for encoding in ("utf-16", "cp1252"):
        batch_id = hands.create(f"{text}\n{text}\n".encode(encoding))
        hands.work()
        told[encoding] = hands.batch(batch_id).errors[0].message
    assert told["utf-16"] == "The file is in UTF-16. Save it as UTF-8."
    assert told["cp1252"].startswith("The line is not in UTF-8 (byte ")
    assert told["cp1252"].endswith(" Save the file as UTF-8.")


# ---- what one route has alone, and what is no body -------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_stored")
def test_a_bad_value(client: httpx.Client) -> None:
    for fields, code, param in NATIVE:
        refused(client.post(TASKS, json={"input": "a"} | fields), 400, code, param, case=fields)
    for path in (TASKS, EMBEDDINGS):
        for content, code, field in RAW:
            refused(client.post(path, content=content, headers=JSON), 400, code, field, case=content[:60])
        refused(client.post(path, json={"input": "a", "model": "nope"}), 404, "model_not_found", "model")


WAYS_OUT: list[tuple[bytes, int, str, str | None, str]] = [
    (b'{"inputs": "a"}', 400, "unknown_parameter", "inputs", "did you mean input?"),
    (b'{"input":\n "a" "b"}', 400, "invalid_json", None, "line 2 column"),
    (orjson.dumps({"input": ["a"] * 2049}), 400, "too_many_inputs", "input", "/v1/batches"),
    (b'{"input": 5}', 400, "invalid_type", "input", "input must be a string or a list of strings."),
    # Brackets and colons in texts are no parts of the body.
    (b'{"input":["' + b"[{:" * 60_000 + b'"],"metadata":{"k":[]}}', 400, "invalid_type", "metadata.k", ""),
]


@pytest.mark.usefixtures("nothing_stored")
def test_a_refusal_names_the_way_out(client: httpx.Client) -> None:
    for content, status, code, param, hint in WAYS_OUT:
        assert hint in refused(client.post(TASKS, content=content, headers=JSON), status, code, param)
    detail = refused(client.post(TASKS, json={"input": ["a", "x" * 10_000_000]}), 400, "input_too_large", "input[1]")
    assert "10,000,000 bytes" in detail
    long = client.post(TASKS, content=b'{"input":"' + b"x" * 17_000_000 + b'"}', headers=JSON)
    assert "/v1/batches" in refused(long, 413, "body_too_large", None)


def test_a_streamed_body_over_the_limit(serve: Callable[..., ServedApp]) -> None:
    small = serve(max_body_bytes=2000, max_input_bytes=1000)
    answer = small.client.post(TASKS, content=(b" " * 500 for _ in range(10)), headers=JSON)
    refused(answer, 413, "body_too_large", None)


def test_a_body_of_lists_or_fields_is_not_parsed(client: httpx.Client) -> None:
    for dear in (b"[" + b"[]," * 100_000 + b"[]]", b"{" + b'"0":0,' * 100_000 + b'"0":0}'):
        for path in PATHS:
            answer = client.post(path, content=b'{"input":"a","z":' + dear + b"}", headers=JSON)
            assert "100,000 lists" in answer.text
            assert answer.status_code == (422 if path == "/embed" else 400)  # as TEI has it
            if path != "/embed":
                refused(answer, 400, "body_too_complex", None)


def test_large_bodies_are_parsed_in_turn_and_beside_the_loop(client: httpx.Client) -> None:
    go_on = threading.Event()
    body = b'{"input":"","z":"' + b"x" * LARGE_BYTES + b'"}'
    with ThreadPoolExecutor(len(PATHS)) as callers:
        _ONE_BY_ONE.submit(go_on.wait)
        try:
            made = [callers.submit(client.post, path, content=body, headers=JSON) for path in PATHS]
            wait_until(lambda: _ONE_BY_ONE._work_queue.qsize() == len(PATHS), message="a body does not wait")
            assert client.get("/health/live").status_code == 200
        finally:
            go_on.set()
        assert {answer.result().status_code for answer in made} == {400, 422}


def test_a_body_that_does_not_say_it_is_json(client: httpx.Client) -> None:
    for path in (TASKS, EMBEDDINGS, "/v1/batches", "/v1/ingestions"):
        for media_type in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = client.post(path, content=b'{"input":"a"}', headers={"content-type": media_type})
            refused(answer, 415, "unsupported_media_type", None)
        headers = {**JSON, "content-encoding": "gzip"}
        answer = client.post(path, content=gzip.compress(b'{"input":"a"}'), headers=headers)
        assert "Content-Encoding" in refused(answer, 415, "unsupported_media_type", None)


ELSEWHERE = [
    ("GET", "/v1/nothing", ""),
    ("POST", "/v1/v1/embeddings", "without /v1"),
    ("POST", "/v1", "without /v1"),
    ("POST", "/v1/", "without /v1"),
    ("GET", "/v2/models", "/openapi.json"),
]
"""Requests for what no route has, and a part of what they are told."""
METHODS = [
    ("PUT", "/v1/tasks", "GET, HEAD, POST"),
    ("PATCH", "/v1/tasks/x", "DELETE, GET, HEAD"),
    ("DELETE", "/v1/tasks/x/cancel", "POST"),
    ("PUT", "/v1/embeddings/", "POST"),
    ("POST", "/v1/models", "GET, HEAD"),
    ("POST", "/health/live", "GET, HEAD"),
]
"""Methods that a path lacks, and all that it has."""


def test_an_unknown_route_and_a_wrong_method(client: httpx.Client) -> None:
    for method, path, hint in ELSEWHERE:
        assert hint in refused(client.request(method, path), 404, "route_not_found", None), path
    for method, path, allowed in METHODS:
        answer = client.request(method, path)
        refused(answer, 405, "method_not_allowed", None)
        assert answer.headers["allow"] == allowed, path


def test_no_error_repeats_what_was_submitted(client: httpx.Client) -> None:
    secret = "the secret sentence"
    bodies: list[dict[str, Any]] = [
        {"input": {"text": secret}},
        {"input": "a", "lane": secret},
        {"input": "a", "prompt_name": secret},
        {"input": "a", "metadata": {"k": [secret]}},
    ]
    for body in bodies:
        assert secret not in client.post(TASKS, json=body).text
