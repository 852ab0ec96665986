"""Whatever is wrong with a request: its status, its stable code, the field, and nothing stored."""

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis

from api.offload import _ONE_BY_ONE, LARGE_BYTES
from tests.integration.api.served import ServedApp
from tests.processes import wait_until

JSON = {"content-type": "application/json"}

Case = tuple[str, Any, int, str, str | None]
"""Name, body, then the status, the code and the field of the answer."""

BOTH_ROUTES: list[Case] = [
    ("missing input", {}, 400, "missing_required_parameter", "input"),
    ("null input", {"input": None}, 400, "missing_required_parameter", "input"),
    ("empty list", {"input": []}, 400, "empty_input", "input"),
    ("empty string", {"input": ""}, 400, "empty_input", "input[0]"),
    ("empty string in a list", {"input": ["a", ""]}, 400, "empty_input", "input[1]"),
    ("number", {"input": 7}, 400, "invalid_type", "input"),
    ("object", {"input": {"text": "a"}}, 400, "invalid_type", "input"),
    ("object in a list", {"input": ["a", {}]}, 400, "invalid_type", "input[1]"),
    ("null in a list", {"input": ["a", None]}, 400, "invalid_type", "input[1]"),
    ("too many", {"input": ["a"] * 2049}, 400, "too_many_inputs", "input"),
    ("dimensions 0", {"input": "a", "dimensions": 0}, 400, "invalid_value", "dimensions"),
    ("dimensions above the model's", {"input": "a", "dimensions": 5}, 400, "invalid_value", "dimensions"),
    ("dimensions true", {"input": "a", "dimensions": True}, 400, "invalid_type", "dimensions"),
    ("dimensions as a float", {"input": "a", "dimensions": 2.5}, 400, "invalid_type", "dimensions"),
    ("dimensions as text", {"input": "a", "dimensions": "2"}, 400, "invalid_type", "dimensions"),
    ("normalize as text", {"input": "a", "normalize": "yes"}, 400, "invalid_type", "normalize"),
    ("truncate as a number", {"input": "a", "truncate": 1}, 400, "invalid_type", "truncate"),
    ("unknown prompt", {"input": "a", "prompt_name": "nope"}, 400, "invalid_value", "prompt_name"),
    ("unknown model", {"input": "a", "model": "nope"}, 404, "model_not_found", "model"),
    ("model as a number", {"input": "a", "model": 3}, 400, "invalid_type", "model"),
    ("a list", ["a"], 400, "invalid_type", None),
    ("a string", "a", 400, "invalid_type", None),
]
NATIVE: list[Case] = [
    ("misspelt field", {"input": "a", "dimensoins": 2}, 400, "unknown_parameter", "dimensoins"),
    ("misspelt field without a value", {"input": "a", "dimensoins": None}, 400, "unknown_parameter", "dimensoins"),
    ("misspelt input", {"inputs": "a"}, 400, "unknown_parameter", "inputs"),
    ("unknown lane", {"input": "a", "lane": "fast"}, 400, "invalid_value", "lane"),
    ("deadline 0", {"input": "a", "deadline_s": 0}, 400, "invalid_value", "deadline_s"),
    ("deadline too far", {"input": "a", "deadline_s": 1e9}, 400, "invalid_value", "deadline_s"),
    ("deadline as text", {"input": "a", "deadline_s": "1"}, 400, "invalid_type", "deadline_s"),
    ("metadata as a list", {"input": "a", "metadata": []}, 400, "invalid_type", "metadata"),
    ("metadata value", {"input": "a", "metadata": {"k": 1}}, 400, "invalid_type", "metadata.k"),
    ("metadata too large", {"input": "a", "metadata": {"k": "é" * 2048}}, 400, "invalid_value", "metadata"),
]
OPENAI: list[Case] = [
    ("a text among token numbers", {"input": [1, "a"]}, 400, "invalid_type", "input[1]"),
    ("no token number", {"input": [[1], [2, -1]]}, 400, "invalid_value", "input[1][1]"),
    ("no token numbers", {"input": [[1], []]}, 400, "empty_input", "input[1]"),
    ("unknown format", {"input": "a", "encoding_format": "md5"}, 400, "invalid_value", "encoding_format"),
]
RAW: list[Case] = [
    ("nothing", b"", 400, "invalid_json", None),
    ("not JSON", b'{"input": "a",}', 400, "invalid_json", None),
    ("NaN", b'{"input": "a", "dimensions": NaN}', 400, "invalid_json", None),
    ("too deep", b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "invalid_json", None),
    ("not UTF-8", b'{"input": "\xff"}', 400, "invalid_unicode", None),
    ("lone surrogate", b'{"input": ["a", "b", "c", "\\ud800"]}', 400, "invalid_unicode", "input[3]"),
    ("lone surrogate elsewhere", b'{"input": "a", "model": "\\udc00"}', 400, "invalid_unicode", "model"),
]
TASKS, EMBEDDINGS = "/v1/tasks", "/v1/embeddings"


@pytest.fixture(autouse=True)
def _nothing_stored(app: ServedApp, redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert list(redis_client.scan_iter("eq:task:*")) == []


def refused(answer: httpx.Response, status: int, code: str, param: str | None, *, case: str = "") -> str:
    body = answer.json()
    assert answer.status_code == status, f"{case}: {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert (body["error"]["code"], body["error"]["param"]) == (code, param), f"{case}: {answer.text}"
    assert body["status"] == status
    assert body["detail"] == body["error"]["message"]
    if param is not None and status == 400:
        assert param in body["detail"], body["detail"]
    detail: str = body["detail"]
    return detail


@pytest.mark.parametrize(
    ("path", "cases"),
    [(TASKS, BOTH_ROUTES), (EMBEDDINGS, BOTH_ROUTES), (TASKS, NATIVE), (EMBEDDINGS, OPENAI)],
    ids=["task", "embeddings", "task only", "embeddings only"],
)
def test_a_bad_value(client: httpx.Client, path: str, cases: list[Case]) -> None:
    for name, body, status, code, param in cases:
        refused(client.post(path, json=body), status, code, param, case=name)


@pytest.mark.parametrize("path", [TASKS, EMBEDDINGS])
def test_bytes_that_are_no_object(client: httpx.Client, path: str) -> None:
    for name, body, status, code, param in RAW:
        refused(client.post(path, content=body, headers=JSON), status, code, param, case=name)


def test_a_misspelt_field_names_the_nearest_known_one(client: httpx.Client) -> None:
    detail = refused(client.post("/v1/tasks", json={"inputs": "a"}), 400, "unknown_parameter", "inputs")

    assert "did you mean input?" in detail


def test_invalid_json_says_where(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", content=b'{"input":\n "a" "b"}', headers=JSON)

    assert "line 2 column" in refused(answer, 400, "invalid_json", None)


def test_too_many_texts_names_the_way_out(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", json={"input": ["a"] * 2049})

    assert "/v1/batches" in refused(answer, 400, "too_many_inputs", "input")


def test_one_text_of_ten_megabytes(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", json={"input": ["ok", "x" * 10_000_000]})

    detail = refused(answer, 400, "input_too_large", "input[1]")
    assert "10,000,000" in detail
    assert "1,048,576" in detail


def test_a_body_over_the_limit(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", content=b'{"input":"' + b"x" * 17_000_000 + b'"}', headers=JSON)

    assert "/v1/batches" in refused(answer, 413, "body_too_large", None)


def test_a_streamed_body_over_the_limit(serve: Callable[..., ServedApp]) -> None:
    small = serve(max_body_bytes=2000, max_input_bytes=1000)
    chunks = (b" " * 500 for _ in range(10))

    answer = small.client.post("/v1/tasks", content=chunks, headers=JSON)

    refused(answer, 413, "body_too_large", None)


@pytest.mark.parametrize("path", [TASKS, EMBEDDINGS, "/embed", "/v1/batches", "/v1/ingestions"])
@pytest.mark.parametrize("dear", [b"[" + b"[]," * 100_000 + b"[]]", b"{" + b'"0":0,' * 100_000 + b'"0":0}'])
def test_a_body_of_lists_or_fields_is_not_parsed(client: httpx.Client, path: str, dear: bytes) -> None:
    body = b'{"input":"a","z":' + dear + b"}"
    answer = client.post(path, content=body, headers=JSON)

    assert "100,000 lists" in answer.text
    assert answer.status_code == (422 if path == "/embed" else 400)  # as TEI has it
    if path != "/embed":
        refused(answer, 400, "body_too_complex", None)


def test_large_bodies_are_parsed_in_turn_and_beside_the_loop(client: httpx.Client) -> None:
    go_on = threading.Event()
    body = b'{"input":"","z":"' + b"x" * LARGE_BYTES + b'"}'
    paths = [TASKS, EMBEDDINGS, "/embed", "/v1/batches", "/v1/ingestions"]
    with ThreadPoolExecutor(len(paths)) as callers:
        _ONE_BY_ONE.submit(go_on.wait)
        try:
            made = [callers.submit(client.post, path, content=body, headers=JSON) for path in paths]
            wait_until(lambda: _ONE_BY_ONE._work_queue.qsize() == len(paths), message="a body does not wait")
            assert client.get("/health/live").status_code == 200
        finally:
            go_on.set()
        assert {answer.result().status_code for answer in made} == {400, 422}


def test_brackets_and_colons_in_texts_are_no_parts(client: httpx.Client) -> None:
    body = b'{"input":["' + b"[{:" * 60_000 + b'"],"metadata":{"k":[]}}'

    refused(client.post(TASKS, content=body, headers=JSON), 400, "invalid_type", "metadata.k")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_does_not_say_it_is_json(client: httpx.Client, content_type: str) -> None:
    answer = client.post("/v1/tasks", content=b'{"input":"a"}', headers={"content-type": content_type})

    refused(answer, 415, "unsupported_media_type", None)


def test_a_compressed_body_is_named_as_what_it_is(client: httpx.Client) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    answer = client.post("/v1/tasks", content=gzip.compress(b'{"input":"a"}'), headers=headers)

    detail = refused(answer, 415, "unsupported_media_type", None)
    assert "Content-Encoding" in detail


def test_an_unknown_route_and_a_wrong_method(client: httpx.Client) -> None:
    refused(client.get("/v1/nothing"), 404, "route_not_found", None)
    answer = client.put("/v1/tasks")
    refused(answer, 405, "method_not_allowed", None)
    assert answer.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/tasks/x", "DELETE, GET, HEAD"),
        ("DELETE", "/v1/tasks/x/cancel", "POST"),
        ("PUT", "/v1/embeddings/", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/health/live", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_all_that_the_path_has(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)

    refused(answer, 405, "method_not_allowed", None)
    assert answer.headers["allow"] == allowed


def test_a_number_alone_is_no_list_of_token_numbers(client: httpx.Client) -> None:
    detail = refused(client.post(TASKS, json={"input": 5}), 400, "invalid_type", "input")

    assert detail == "input must be a string or a list of strings."


@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        ("POST", "/v1/v1/embeddings", "without /v1"),
        ("POST", "/v1", "without /v1"),
        ("POST", "/v1/", "without /v1"),
        ("GET", "/v2/models", "/openapi.json"),
    ],
)
def test_a_wrong_base_address_gets_a_hint(client: httpx.Client, method: str, path: str, hint: str) -> None:
    assert hint in refused(client.request(method, path), 404, "route_not_found", None)


def test_no_error_repeats_what_was_submitted(client: httpx.Client) -> None:
    secret = "the secret sentence"
    bodies: list[dict[str, Any]] = [
        {"input": {"text": secret}},
        {"input": "a", "lane": secret},
        {"input": "a", "prompt_name": secret},
        {"input": "a", "metadata": {"k": [secret]}},
    ]

    for body in bodies:
        assert secret not in client.post("/v1/tasks", json=body).text
