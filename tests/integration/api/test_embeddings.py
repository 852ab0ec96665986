"""Embeddings while the caller waits, over the queue: OpenAI's call, and the routes of text-embeddings-inference."""

import base64
import concurrent.futures
import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import redis
import tiktoken

from api.waiting.subscription import WaitingTimes
from tasks.item import TextError
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.heartbeat import join, stop
from tasks.ledger.overview import overview
from tasks.ledger.read import read_tasks
from tasks.ledger.task import Task
from tests.integration.api.ledger_worker import LedgerWorker, approximately, entry, vector
from tests.integration.api.served import MODEL, Serve, ServedApp, code_of
from tests.ledger_builders import a_worker
from tests.link import Link
from tests.processes import RedisServer, wait_until

IMPATIENT = {"x-stainless-read-timeout": "0.1"}
JSON = {"content-type": "application/json"}


def ask(client: httpx.Client, texts: Any, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return client.post("/v1/embeddings", json={"input": texts, **fields}, headers=headers)


def embeddings(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [item["embedding"] for item in answer.json()["data"]]


def test_vectors_come_back_in_input_order(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.truncated.add("two")
    one, two = approximately("one", "two")
    texts = [f"{'word ' * (i % 40)}{i}" for i in range(2048)]
    with worker.serving():
        answer = ask(client, ["one", "two"], model=MODEL)
        assert answer.json() == {
            "object": "list",
            "data": [
                {"object": "embedding", "index": 0, "embedding": one},
                {"object": "embedding", "index": 1, "embedding": two, "truncated": True},
            ],
            "model": MODEL,
            "usage": {"prompt_tokens": 2, "total_tokens": 2},
        }
        many = np.array(embeddings(ask(client, texts)), dtype="f4")
        [packed] = embeddings(ask(client, "one", encoding_format="base64"))
    np.testing.assert_array_equal(many, np.stack([vector(text) for text in texts]))
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), vector("one"))
    worker.ledger.run(stop(MODEL, worker.id))  # a repetition of finished work needs no worker
    assert ask(client, ["one", "two"]).json() == answer.json()


def test_a_large_call_that_reaches_redis_slowly_is_not_taken_for_one_that_is_over(
    redis_server: RedisServer, worker: LedgerWorker
) -> None:
    """While the tasks that are waited for are read again and again."""
    with (
        Link(redis_server.endpoint.port, step_s=0.005) as link,
        worker.serving(),
        ServedApp(link.url, times=WaitingTimes(catch_up_s=0.01)) as app,
    ):
        answer = ask(app.client, [f"{n} {'x' * 2000}" for n in range(400)])
    assert answer.status_code == 200, answer.text


def test_a_library_model_may_be_named_as_the_library_names_it(redis_url: str, serve: Serve) -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    client = serve(served_name="", model=name).client
    with LedgerWorker(redis_url, name) as worker:
        worker.announce()
        with worker.serving():
            answer = ask(client, "one", model="all-MiniLM-L6-v2")
    assert (answer.status_code, answer.json()["model"]) == (200, name)
    assert client.get("/v1/models/all-MiniLM-L6-v2").json()["alias_of"] == name
    assert code_of(ask(client, "one", model="MiniLM")) == (404, "model_not_found")


def test_one_failed_item_fails_the_request(client: httpx.Client, worker: LedgerWorker) -> None:
    codes = {"input_too_long": (400, 422), "no_tokens": (422, 424), "worker_lost": (422, 424)}
    worker.errors = {code: TextError(code, "It cannot be done.") for code in codes}
    with worker.serving():
        for code, (status, of_tei) in codes.items():
            answer = ask(client, ["good", code])
            assert code_of(answer) == (status, code)
            assert answer.json()["error"]["param"] == "input[1]"
            assert "It cannot be done." in answer.json()["detail"]
            assert answer.headers["x-should-retry"] == "false"
            theirs = client.post("/embed", json={"inputs": ["good", code]})
            assert (theirs.status_code, theirs.json()["error"]) == (of_tei, "inputs[1]: It cannot be done.")


def test_token_numbers_are_decoded(client: httpx.Client, worker: LedgerWorker, cl100k: tiktoken.Encoding) -> None:
    arrays = [cl100k.encode(text) for text in ("one", "zwölf")]
    many = [f"{n} " + "zwölf " * 60 for n in range(1000)]  # as many as LangChain sends at once
    task = client.post("/v1/tasks", json={"input": arrays}).json()["links"]
    with worker.serving():
        assert embeddings(ask(client, arrays)) == approximately("one", "zwölf")
        assert embeddings(ask(client, arrays[1], encoding_format="float")) == approximately("zwölf")
        assert embeddings(ask(client, [cl100k.encode(text) for text in many]))[999:] == approximately(many[999])
        client.get(f"{task['self']}?wait=20")
    assert embeddings(client.get(task["result"])) == approximately("one", "zwölf")


# ---- waiting ---------------------------------------------------------------------------------------------------------


def all_tasks(worker: LedgerWorker) -> list[Task]:
    ids = [key.decode().removeprefix("eq:task:") for key in worker.ledger.client.scan_iter("eq:task:*")]
    return [task for task in worker.ledger.run(read_tasks(ids)) if task]


def interest_ms(worker: LedgerWorker) -> int:
    """Between the creation of the only task and the moment after which nobody wants it; 0: there is none."""
    tasks = all_tasks(worker)
    assert len(tasks) <= 1
    return max((task.deadline_ms or 0) - task.created_ms for task in tasks) if tasks else 0


def waiting(app: ServedApp, number: int) -> None:
    """Returns when so many requests wait."""
    wait_until(lambda: app.process.subscription.waiting_requests == number, message=f"not {number} wait")


@contextlib.contextmanager
def requesting(app: ServedApp, text: str) -> Iterator[None]:
    """A client that has sent its request and waits; at the end it closes the connection."""
    body = f'{{"input": "{text}"}}'
    with socket.create_connection(("127.0.0.1", app.port)) as connection:
        head = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        connection.sendall(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        yield


def test_a_timeout_says_try_again_and_the_retry_joins(client: httpx.Client, worker: LedgerWorker) -> None:
    first = ask(client, ["slow"], IMPATIENT, model=MODEL)
    theirs = client.post("/embed", json={"inputs": "slow"}, headers=IMPATIENT)
    assert len(all_tasks(worker)) == 1
    with worker.serving():
        assert ask(client, ["slow"], model=MODEL, encoding_format="base64").status_code == 200
    assert code_of(first) == (503, "wait_timeout")
    assert first.headers["x-should-retry"] == "true"
    assert 1 <= int(first.headers["retry-after"]) <= 120
    assert (theirs.status_code, theirs.json()["error_type"]) == (429, "Overloaded")
    assert 1 <= int(theirs.headers["retry-after"]) <= 5
    assert worker.ledger.run(overview())[MODEL].counters["committed_items"] == 1
    assert 'embedq_joined_requests_total{model="test/model"} 2.0' in client.get("/metrics").text


def test_a_model_that_no_worker_serves_is_said_at_once(
    client: httpx.Client, worker: LedgerWorker, redis_url: str, serve: Serve
) -> None:
    """Unless it is the server's own, or its worker may only start again: the timeout says that there is none."""

    def ready(model: str) -> bool:
        return bool(client.get(f"/v1/models/{model}").json().get("ready"))

    with LedgerWorker(redis_url, "other/model") as other:
        other.announce()
        wait_until(lambda: ready("other/model"), message="it is not known")
        other.ledger.run(stop("other/model", other.id))
    worker.ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: not ready("other/model") and not ready(MODEL), message="they are not gone")
    for model in ("other/model", MODEL):
        answer = ask(client, "x", IMPATIENT, model=model)
        assert code_of(answer) == (503, "wait_timeout")
        assert f"No worker serves {model}" in answer.json()["error"]["message"]
    impatient = serve(times=WaitingTimes(restart_s=0)).client
    refused = ask(impatient, "x", model="other/model")
    assert code_of(refused) == (503, "not_ready")
    assert "No worker serves other/model" in refused.json()["error"]["message"]
    assert client.post("/v1/tasks", json={"input": "x", "model": "other/model"}).status_code == 202


def test_equal_requests_at_once_are_one_task(app: ServedApp, worker: LedgerWorker, redis_client: redis.Redis) -> None:
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(ask, app.client, text) for text in ["same"] * 5 + ["other"]]
        waiting(app, 6)
        wait_until(lambda: len(all_tasks(worker)) == 2, message="not both are stored")
        redis_client.client_kill_filter(_type="pubsub")  # the end of one is told to nobody
        worker.work()
        assert {call.result().status_code for call in calls} == {200}
    assert worker.ledger.run(overview())[MODEL].counters["committed_items"] == 2


def test_a_client_that_leaves_shortens_the_interest_and_takes_nothing_from_another(
    app: ServedApp, worker: LedgerWorker
) -> None:
    with requesting(app, "same"):
        with requesting(app, "same"):
            waiting(app, 2)
            wait_until(lambda: interest_ms(worker) > 25_000, message="nothing was stored")  # 20 s and 10 s more
        waiting(app, 1)
        assert interest_ms(worker) > 25_000
    waiting(app, 0)
    assert 0 < interest_ms(worker) < 15_000


def test_a_stopping_server_sends_waiters_home(app: ServedApp, client: httpx.Client) -> None:
    task = client.post("/v1/tasks", json={"input": "x"}).headers["location"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(ask, client, "x")
        poll = pool.submit(client.get, task, params={"wait": 20})
        waiting(app, 2)
        app.call_in_loop(app.process.subscription.close)
        assert (call.result().status_code, poll.result().json()["status"]) == (503, "queued")
        assert ask(client, "y").status_code == 503


def test_a_call_whose_model_is_exchanged_half_way_is_to_be_sent_again(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        call = caller.submit(ask, client, [f"text {n}" for n in range(100)])  # more than one piece
        wait_until(lambda: worker.work(max_pieces=1), message="the first piece of the call")
        worker.ledger.run(stop(worker.model, worker.id))
        other = dataclasses.replace(entry(worker.model), revision="r2")
        assert worker.ledger.run(join(worker.model, a_worker("new"), other, 60_000)).served
        request = ClaimRequest("new/0", "new/0/1", 10**9, 1000, 15_000, stamp=other.stamp)
        assert not worker.ledger.run(claim(worker.model, request)).pieces
        answer = call.result()
    assert code_of(answer) == (503, "not_ready")
    assert answer.headers["retry-after"] == "1"


def test_a_full_backlog_refuses_with_the_time_to_wait(worker: LedgerWorker, serve: Serve) -> None:
    """150 tokens may be done before a request is. A small one is done before a large one."""
    app, soon = serve(max_backlog_s=0.003), {"x-stainless-read-timeout": "0.02"}
    with requesting(app, "x" * 400):
        wait_until(lambda: all_tasks(worker), message="nothing was stored")
        assert code_of(ask(app.client, "y" * 400, soon)) == (503, "backlog_full")
        assert code_of(ask(app.client, "y", soon)) == (503, "wait_timeout")
    waiting(app, 0)
    assert code_of(ask(app.client, "y" * 400, soon)) == (503, "wait_timeout"), "its caller has left"
    full = {"input": ["x" * 400] * 20}
    app.client.post("/v1/tasks", json=full)
    answer = app.client.post("/v1/tasks", json=full)
    theirs = app.client.post("/embed", json={"inputs": full["input"]})
    assert code_of(answer) == (503, "backlog_full")
    assert (theirs.status_code, theirs.json()["error_type"]) == (429, "Overloaded")
    assert all(1 <= int(one.headers["retry-after"]) <= 120 for one in (answer, theirs))


# ---- text-embeddings-inference ---------------------------------------------------------------------------------------


def refused(answer: httpx.Response, status: int, kind: str) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    message: str = answer.json()["error"]
    assert answer.json() == {"error": message, "error_type": kind}
    return message


UNUSABLE: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "inputs is missing"),
    ({"inputs": [[1], [2]]}, 422, "inputs[0] holds token numbers"),
    ({"inputs": ["a", None]}, 422, "inputs[1] must be a string"),
    ({"inputs": ["a"] * 2049}, 422, "inputs has 2,049 texts"),
    ({"inputs": []}, 400, "inputs is an empty list"),
    ({"inputs": ["a", ""]}, 400, "inputs[1] is an empty string"),
    ({"inputs": "a", "truncate": "yes"}, 422, "truncate"),
    ({"inputs": "a", "truncation_direction": "left"}, 422, "truncation_direction"),
    ({"inputs": "a", "late_chunking": True}, 422, "late_chunking must be false"),
    ({"inputs": "a", "x": [[]] * 100_001}, 422, "The body holds more than 100,000 lists"),
]


def test_tei_has_bare_lists_in_input_order_and_refusals_of_its_own_form(
    client: httpx.Client, worker: LedgerWorker, serve: Serve
) -> None:
    texts = [f"{i} {'x' * i}" for i in range(70)]  # more than are rendered at once
    worker.truncated.add("one")  # truncated by default, and nothing in the answer says so
    others: dict[str, Any] = {"model": "another", "truncate": None, "parameters": {}, "truncation_direction": "Right"}
    with worker.serving():
        for path in ("/embed", "/"):
            assert client.post(path, json={"inputs": texts}).json() == approximately(*texts)
        # One text is a list of one, and the model is always the server's own.
        assert client.post("/embed", json={"inputs": "one"} | others).json() == approximately("one")
    for body, status, message in UNUSABLE:
        kind = "Empty" if status == 400 else "Validation"
        assert refused(client.post("/embed", json=body), status, kind).startswith(message), body
    refused(client.post("/embed", content=b"{", headers=JSON), 422, "Validation")
    refused(client.post("/", content=b'{"inputs": "a"}'), 415, "Validation")
    for wrong, methods in ((client.get("/embed"), "POST"), (client.put("/"), "GET, HEAD, POST")):
        refused(wrong, 405, "Validation")
        assert wrong.headers["allow"] == methods
    small = serve(max_body_bytes=2000, max_input_bytes=1000).client
    refused(small.post("/embed", json={"inputs": "x" * 3000}), 413, "Validation")
