"""One body of embeddings, whichever way it comes: a route, a task, a line of a batch. Its answer is the same."""

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tasks.ledger.client import Ledger
from tests.integration.api.served import MODEL
from tests.integration.batches.hands import Hands

ODD: list[dict[str, Any]] = [
    {},
    {"input": None},
    {"input": []},
    {"input": ""},
    {"input": ["a", ""]},
    {"input": 7},
    {"input": True},
    {"input": [True]},
    {"input": {"text": "a"}},
    {"input": ["a", None]},
    {"input": ["a", 1]},
    {"input": ["a", ["b"]]},
    {"input": [["a", "b"]]},
    {"input": [["a"]]},
    {"input": [[]]},
    {"input": [[[1]]]},
    {"input": ["a"] * 2049},
    {"input": "x" * (2**20 + 1)},
    {"input": "a", "dimensions": 0},
    {"input": "a", "dimensions": 1536},
    {"input": "a", "dimensions": 2.5},
    {"input": "a", "dimensions": "2"},
    {"input": "a", "dimensions": True},
    {"input": "a", "output_dimension": 1536},
    {"input": "a", "dimensions": 2, "output_dimension": 3},
    {"input": "a", "normalize": "yes"},
    {"input": "a", "normalized": 1},
    {"input": "a", "truncate": "START"},
    {"input": "a", "truncate": 1},
    {"input": "a", "truncation": "yes"},
    {"input": "a", "prompt_name": "nope"},
    {"input": "a", "prompt_name": ""},
    {"input": "a", "encoding_format": "md5"},
    {"input": "a", "encoding_format": ["float"]},
    {"input": "a", "embedding_type": "ubinary"},
    {"input": "a", "output_dtype": "int8"},
    {"input": "a", "late_chunking": True},
    {"input": "a", "add_special_tokens": False},
    {"input": "a", "endianness": "big"},
    {"input": "a", "embedding_types": ["int8"]},
    {"input": "a", "encoding_format": "FLOAT"},
    {"input": "a", "prompt_name": 7},
    {"input": "a", "prompt_name": "x" * 201},
    {"input": "a", "dimensions": -1},
    {"input": "a", "dimensions": 1e30},
    {"input": "a", "truncate": {"a": 1}},
    {"input": [[]]},
    {"input": [[], [1]]},
    {"input": [1, True]},
    {"input": [1, 2.0]},
    {"input": [1, None]},
    {"input": [1, "a"]},
    {"input": [1, [2]]},
    {"input": [1e5]},
    {"input": [[1], "a"]},
    {"input": [[1], []]},
    {"input": [[1], [[2]]]},
    {"input": [-1]},
    {"input": [100256]},
    {"input": [[1], [100277]]},
    {"input": [[1]] * 2049},
    {"input": [58040] * 9000},  # 128 spaces each
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
Answer = tuple[int, dict[str, Any]]


def lines_of_a_batch(redis_url: str, folder: Path, bodies: list[dict[str, Any]]) -> list[Answer]:
    """What a batch answers to each of these bodies."""
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, folder)
    url = "/v1/embeddings"
    lines = [{"custom_id": f"{n}", "method": "POST", "url": url, "body": body} for n, body in enumerate(bodies)]
    batch_id = hands.create(lines)
    hands.work()
    batch = hands.batch(batch_id)
    assert not batch.errors
    found = [*hands.lines(batch.output_file_id), *hands.lines(batch.error_file_id)]
    ledger.close()
    assert len(found) == len(bodies)
    by_number = {int(line["custom_id"]): line["response"] for line in found}
    return [(by_number[n]["status_code"], by_number[n]["body"]) for n in range(len(bodies))]


def test_an_odd_body_is_refused_in_the_same_words_whichever_way_it_comes(
    client: httpx.Client, redis_url: str, tmp_path: Path
) -> None:
    bodies = [{"model": MODEL} | body for body in ODD]
    for body, (status, of_line) in zip(bodies, lines_of_a_batch(redis_url, tmp_path, bodies), strict=True):
        shown = orjson.dumps(body)[:200]
        for path in ("/v1/embeddings", "/v1/tasks"):
            answer = client.post(path, json=body)
            assert answer.status_code == status == 400, (path, shown, answer.text, of_line)
            assert answer.json()["error"] == of_line["error"], (path, shown)


def test_a_body_that_can_be_used_can_be_used_whichever_way_it_comes(
    client: httpx.Client, redis_url: str, tmp_path: Path
) -> None:
    bodies = [{"model": MODEL} | body for body in USABLE]
    assert [status for status, _ in lines_of_a_batch(redis_url, tmp_path, bodies)] == [200] * len(bodies)
    for body in bodies:
        stored = {key: value for key, value in body.items() if key != "stream_options"}  # nobody knows this field
        assert client.post("/v1/tasks", json=stored).status_code == 202, body
        headers = {"x-stainless-read-timeout": "0.01"}  # no worker works here: it is taken, and not ready in time
        assert client.post("/v1/embeddings", json=body, headers=headers).json()["error"]["code"] == "wait_timeout", body


def test_a_model_that_is_no_name_is_told_in_the_same_words(
    client: httpx.Client, redis_url: str, tmp_path: Path
) -> None:
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, tmp_path)
    bodies: list[dict[str, Any]] = [{"model": model, "input": "a"} for model in ("", 7, [MODEL], "x" * 201, "nope")]
    batch_id = hands.create(
        [
            {"custom_id": f"{n}", "method": "POST", "url": "/v1/embeddings", "body": body}
            for n, body in enumerate(bodies)
        ]
    )
    hands.work()
    faults = [(fault.code, fault.message, fault.param) for fault in hands.batch(batch_id).errors]
    ledger.close()
    for path in ("/v1/embeddings", "/v1/tasks"):
        errors = [client.post(path, json=body).json()["error"] for body in bodies]
        assert [(error["code"], error["message"], f"body.{error['param']}") for error in errors] == faults


@pytest.mark.parametrize(
    ("input_", "code"),
    [
        (b"NaN", "invalid_json"),
        (b"1e400", "invalid_json"),
        (b'"a",', "invalid_json"),
        (b"[" * 1100 + b"]" * 1100, "invalid_json"),
        (b'"\\ud800"', "invalid_unicode"),
        (b'"\xff"', "invalid_unicode"),
        (b"[" * 300 + b"]" * 300, "invalid_type"),
        (b'"a","input":""', "empty_input"),  # the last one of two fields counts
    ],
)
def test_odd_json_is_told_in_the_same_words(client: httpx.Client, input_: bytes, code: str) -> None:
    content = b'{"model": "%s", "input": %s}' % (MODEL.encode(), input_)
    headers = {"content-type": "application/json"}
    first, second = (
        client.post(path, content=content, headers=headers).json()["error"] for path in ("/v1/embeddings", "/v1/tasks")
    )
    assert first == second
    assert first["code"] == code


def test_the_url_of_a_line_may_be_any_that_the_route_takes(redis_url: str, tmp_path: Path) -> None:
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, tmp_path)
    body = {"model": MODEL, "input": "a"}
    urls = ["/v1/embeddings", "/v1/embeddings/", "v1/embeddings", "/embeddings", "//v1/embeddings", "embeddings/"]
    good = hands.create([{"custom_id": url, "method": "POST", "url": url, "body": body} for url in urls])
    others = ["https://host/v1/embeddings", "/openai/v1/embeddings", "/v1/chat/completions", 7]
    bad = hands.create([{"custom_id": f"{url}", "method": "POST", "url": url, "body": body} for url in others])
    hands.work()
    assert hands.batch(good).counts.completed == len(urls)
    faults = hands.batch(bad).errors
    ledger.close()
    assert [(fault.code, fault.param) for fault in faults] == [("invalid_url", "url")] * len(others)
    assert all("'/v1/embeddings'" in fault.message for fault in faults)


def test_a_model_that_is_not_served_is_told_with_those_that_are(
    client: httpx.Client, redis_url: str, tmp_path: Path
) -> None:
    message = f"There is no model 'text-embedding-3-small' here. This server serves {MODEL}."
    body = {"model": "text-embedding-3-small", "input": "a"}
    for path in ("/v1/embeddings", "/v1/tasks"):
        error = client.post(path, json=body).json()["error"]
        assert (error["code"], error["message"], error["param"]) == ("model_not_found", message, "model")
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, tmp_path)
    batch_id = hands.create([{"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body}])
    hands.work()
    [fault] = hands.batch(batch_id).errors
    ledger.close()
    assert (fault.code, fault.message) == ("model_not_found", message)


def test_line_breaks_of_other_alphabets_do_not_divide_a_line_of_an_output(redis_url: str, tmp_path: Path) -> None:
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, tmp_path)
    ids = ["one\u2028two", "three\u2029four", "five\x85six"]
    body = {"model": MODEL, "input": "a"}
    batch_id = hands.create(
        [{"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body} for custom_id in ids]
    )
    hands.work()
    record = hands.output(batch_id)
    ledger.close()
    lines = record.decode().splitlines()
    assert [orjson.loads(line)["custom_id"] for line in lines] == ids


def test_another_encoding_of_a_file_is_named(redis_url: str, tmp_path: Path) -> None:
    ledger = Ledger.connect(redis_url)
    hands = Hands(ledger, tmp_path)
    line = (
        '{"custom_id": "ä", "method": "POST", "url": "/v1/embeddings", "body": {"model": "test/model", "input": "ä"}}'
    )
    told = {}
    for encoding in ("utf-16", "cp1252"):
        batch_id = hands.create(f"{line}\n{line}\n".encode(encoding))
        hands.work()
        told[encoding] = hands.batch(batch_id).errors[0].message
    ledger.close()
    assert told["utf-16"] == "The file is in UTF-16. Save it as UTF-8."
    assert told["cp1252"] == "The line is not in UTF-8 (byte 15). Save the file as UTF-8."
