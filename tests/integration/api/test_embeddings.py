"""OpenAI's embeddings call, synchronous over the queue."""

import base64
import concurrent.futures
import contextlib
import socket
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest
import redis
import tiktoken

from api.waiting.subscription import WaitingTimes
from tasks.item import TextError
from tasks.ledger.heartbeat import stop
from tasks.ledger.overview import overview
from tasks.ledger.read import read_tasks
from tasks.ledger.task import Lane, Task
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import MODEL, ServedApp
from tests.link import Link
from tests.processes import RedisServer, wait_until

IMPATIENT = {"x-stainless-read-timeout": "0.1"}


def open_tasks(worker: LedgerWorker) -> int:
    return worker.ledger.run(overview())[MODEL].backlog_tasks[Lane.ONLINE]


def test_vectors_come_back_in_input_order(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.truncated.add("two")
    one, two = (pytest.approx(vector(text).tolist()) for text in ("one", "two"))
    with worker.serving():
        for path in ("/v1/embeddings", "/v1/embeddings/", "/embeddings", "/embeddings/"):
            answer = client.post(path, json={"input": ["one", "two"], "model": MODEL})
            assert answer.status_code == 200
            assert answer.json() == {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": 0, "embedding": one},
                    {"object": "embedding", "index": 1, "embedding": two, "truncated": True},
                ],
                "model": MODEL,
                "usage": {"prompt_tokens": 2, "total_tokens": 2},
            }
    worker.ledger.run(stop(MODEL, worker.id))  # a repetition of finished work needs no worker
    assert client.post("/v1/embeddings", json={"input": ["one", "two"]}).json() == answer.json()


def test_a_large_call_that_reaches_redis_slowly_is_not_taken_for_one_that_is_over(
    redis_server: RedisServer, worker: LedgerWorker
) -> None:
    """While the tasks that are waited for are read again and again."""
    body = {"input": [f"{n} {'x' * 2000}" for n in range(400)]}
    with (
        Link(redis_server.endpoint.port, step_s=0.005) as link,
        worker.serving(),
        ServedApp(link.url, times=WaitingTimes(catch_up_s=0.01)) as app,
    ):
        answer = app.client.post("/v1/embeddings", json=body)

    assert answer.status_code == 200, answer.text


def test_a_library_model_may_be_named_as_the_library_names_it(redis_url: str, serve: Callable[..., ServedApp]) -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    client = serve(served_name="", model=name).client
    with LedgerWorker(redis_url, name) as worker:
        worker.announce()
        with worker.serving():
            answer = client.post("/v1/embeddings", json={"input": "one", "model": "all-MiniLM-L6-v2"})

    assert (answer.status_code, answer.json()["model"]) == (200, name)
    assert client.get("/v1/models/all-MiniLM-L6-v2").json()["alias_of"] == name
    refused = client.post("/v1/embeddings", json={"input": "one", "model": "MiniLM"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


def test_base64_is_the_float32_buffer(client: httpx.Client, worker: LedgerWorker) -> None:
    with worker.serving():
        answer = client.post("/v1/embeddings", json={"input": "one", "encoding_format": "base64"})

    packed = answer.json()["data"][0]["embedding"]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed), "<f4"), vector("one"))


def test_nulls_and_unknown_fields_are_ignored(client: httpx.Client, worker: LedgerWorker) -> None:
    nulls = b'{"input": "one", "dimensions": null, "encoding_format": null, "user": null, "input_type": "query"}'
    deep = b'{"input": "one", "user": ' + b"[" * 300 + b"]" * 300 + b"}"  # deeper than anything writes
    with worker.serving():
        for body in (nulls, deep):
            answer = client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text


def test_fields_of_other_vendors_are_honoured_or_refused_by_name(client: httpx.Client, worker: LedgerWorker) -> None:
    with worker.serving():
        cut = client.post("/v1/embeddings", json={"input": "one", "output_dimension": 4, "output_dtype": "float"})
        packed = client.post("/v1/embeddings", json={"input": "one", "embedding_type": "base64"})
    bytes_for_int8 = client.post("/v1/embeddings", json={"input": "one", "output_dtype": "int8"})
    tei = client.post("/embed", json={"inputs": "one", "late_chunking": True})

    assert len(cut.json()["data"][0]["embedding"]) == 4
    assert isinstance(packed.json()["data"][0]["embedding"], str)
    assert (bytes_for_int8.status_code, bytes_for_int8.json()["error"]["param"]) == (400, "output_dtype")
    assert (tei.status_code, "late_chunking must be false" in tei.json()["error"]) == (422, True)


def test_many_texts_in_many_units(client: httpx.Client, worker: LedgerWorker) -> None:
    texts = [f"{'word ' * (i % 40)}{i}" for i in range(2048)]
    with worker.serving():
        answer = client.post("/v1/embeddings", json={"input": texts})

    vectors = np.array([item["embedding"] for item in answer.json()["data"]], dtype="f4")
    np.testing.assert_array_equal(vectors, np.stack([vector(text) for text in texts]))


def test_one_failed_item_fails_the_request(client: httpx.Client, worker: LedgerWorker) -> None:
    codes = {"input_too_long": 400, "invalid_dimensions": 400, "no_tokens": 422, "worker_crashed": 422}
    worker.errors = {code: TextError(code, "It cannot be done.") for code in codes}
    with worker.serving():
        for code, status in codes.items():
            answer = client.post("/v1/embeddings", json={"input": ["good", code]})
            assert (answer.status_code, answer.headers["x-should-retry"]) == (status, "false")
            assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, "input[1]")
            assert "It cannot be done." in answer.json()["detail"]


def test_a_timeout_says_try_again_and_the_retry_joins(client: httpx.Client, worker: LedgerWorker) -> None:
    request = {"input": ["slow"], "model": MODEL}
    first = client.post("/v1/embeddings", json=request, headers=IMPATIENT)
    assert open_tasks(worker) == 1

    with worker.serving():
        second = client.post("/v1/embeddings", json=request | {"encoding_format": "base64"})

    assert first.status_code == 503
    assert first.json()["error"]["code"] == "wait_timeout"
    assert first.headers["x-should-retry"] == "true"
    assert 1 <= int(first.headers["retry-after"]) <= 120
    assert second.status_code == 200
    assert worker.ledger.run(overview())[MODEL].counters["committed_items"] == 1


def test_a_model_that_no_worker_serves_is_said_at_once(
    client: httpx.Client, worker: LedgerWorker, redis_url: str, serve: Callable[..., ServedApp]
) -> None:
    """Unless it is the server's own, or its worker may only start again: the timeout says that there is none."""
    with LedgerWorker(redis_url, "other/model") as other:
        other.announce()
        wait_until(lambda: client.get("/v1/models/other/model").json().get("ready"), message="it is not known")
        other.ledger.run(stop("other/model", other.id))
    worker.ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: not ready(client, "other/model") and not ready(client, MODEL), message="they are not gone")

    restarting = client.post("/v1/embeddings", json={"input": "x", "model": "other/model"}, headers=IMPATIENT)
    waited = client.post("/v1/embeddings", json={"input": "x"}, headers=IMPATIENT)
    impatient = serve(times=WaitingTimes(restart_s=0)).client
    refused = impatient.post("/v1/embeddings", json={"input": "x", "model": "other/model"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
    assert "No worker serves other/model" in refused.json()["error"]["message"]
    for answer, model in ((waited, MODEL), (restarting, "other/model")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "wait_timeout")
        assert f"No worker serves {model}" in answer.json()["error"]["message"]
    assert client.post("/v1/tasks", json={"input": "x", "model": "other/model"}).status_code == 202


def ready(client: httpx.Client, model: str) -> bool:
    return bool(client.get(f"/v1/models/{model}").json()["ready"])


def test_equal_requests_at_once_are_one_task(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(client.post, "/v1/embeddings", json={"input": "same"}) for _ in range(5)]
        wait_until(lambda: app.process.subscription.waiting_requests == 5, message="not all wait")
        wait_until(lambda: open_tasks(worker), message="nothing was stored")
        assert open_tasks(worker) == 1
        with worker.serving():
            answers = [call.result() for call in calls]

    assert {answer.status_code for answer in answers} == {200}


def test_a_client_that_leaves_shortens_the_interest(app: ServedApp, worker: LedgerWorker) -> None:
    with requesting(app, "x"):
        task = wait_until(lambda: only_task(worker), message="nothing was stored")
        assert interest_ms(task) > 25_000  # the wait of 20 s and 10 s more
    wait_until(lambda: app.process.subscription.waiting_requests == 0, message="the request still waits")

    left = only_task(worker)
    assert left is not None
    assert interest_ms(left) < 15_000


def test_a_client_that_leaves_takes_nothing_from_another(app: ServedApp, worker: LedgerWorker) -> None:
    with requesting(app, "same"):
        with requesting(app, "same"):
            wait_until(lambda: app.process.subscription.waiting_requests == 2, message="not both wait")
            wait_until(lambda: only_task(worker), message="nothing was stored")
        wait_until(lambda: app.process.subscription.waiting_requests == 1, message="the one who left still waits")

        task = only_task(worker)
        assert task is not None
        assert interest_ms(task) > 25_000


@contextlib.contextmanager
def requesting(app: ServedApp, text: str) -> Iterator[None]:
    """A client that has sent its request and waits; at the end it closes the connection."""
    body = f'{{"input": "{text}"}}'
    with socket.create_connection(("127.0.0.1", app.port)) as connection:
        head = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        head += f"\r\ncontent-length: {len(body)}"
        connection.sendall(f"{head}\r\n\r\n{body}".encode())
        yield


def interest_ms(task: Task) -> int:
    """Between the creation of a task and the moment after which nobody wants it."""
    assert task.deadline_ms is not None
    return task.deadline_ms - task.created_ms


def only_task(worker: LedgerWorker) -> Task | None:
    tasks = all_tasks(worker)
    assert len(tasks) <= 1
    return tasks[0] if tasks else None


def all_tasks(worker: LedgerWorker) -> list[Task]:
    ids = [key.decode().removeprefix("eq:task:") for key in worker.ledger.client.scan_iter("eq:task:*")]
    return [task for task in worker.ledger.run(read_tasks(ids)) if task]


def test_an_end_that_was_told_to_nobody_is_caught_up_with(
    app: ServedApp, client: httpx.Client, worker: LedgerWorker, redis_client: redis.Redis
) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = [pool.submit(client.post, "/v1/embeddings", json={"input": text}) for text in ("x", "y")]
        wait_until(lambda: app.process.subscription.waiting_requests == 2, message="not both wait")
        wait_until(lambda: len(all_tasks(worker)) == 2, message="not both are stored")
        redis_client.client_kill_filter(_type="pubsub")
        worker.work()
        assert [call.result().status_code for call in calls] == [200, 200]


def test_a_stopping_server_sends_waiters_home(app: ServedApp, client: httpx.Client) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(client.post, "/v1/embeddings", json={"input": "x"})
        wait_until(lambda: app.process.subscription.waiting_requests == 1, message="nobody waits")
        app.call_in_loop(app.process.subscription.close)

        assert call.result().status_code == 503
        assert client.post("/v1/embeddings", json={"input": "y"}).status_code == 503


def test_a_large_request_delays_large_ones_until_its_caller_leaves(
    worker: LedgerWorker, serve: Callable[..., ServedApp]
) -> None:
    """150 tokens may be done before a request is. A small one is done before a large one."""
    app = serve(max_backlog_s=0.003)

    def asked(text: str) -> str:
        answer = app.client.post("/v1/embeddings", json={"input": text}, headers={"x-stainless-read-timeout": "0.02"})
        return str(answer.json()["error"]["code"])

    with requesting(app, "x" * 400):
        wait_until(lambda: only_task(worker), message="nothing was stored")
        assert asked("y" * 400) == "backlog_full"
        assert asked("y") == "wait_timeout"
    wait_until(lambda: app.process.subscription.waiting_requests == 0, message="the request still waits")
    assert asked("y" * 400) == "wait_timeout"


def test_a_full_backlog_refuses_with_the_time_to_wait(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    client = serve(max_backlog_s=0.01).client
    client.post("/v1/tasks", json={"input": ["x" * 400] * 20})

    answer = client.post("/v1/tasks", json={"input": ["x" * 400] * 20})

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "backlog_full"
    assert 1 <= int(answer.headers["retry-after"]) <= 120


# ---- token numbers ---------------------------------------------------------------------------------------------------


def test_token_numbers_are_decoded(client: httpx.Client, worker: LedgerWorker, cl100k: tiktoken.Encoding) -> None:
    arrays = [cl100k.encode(text) for text in ("one", "zwölf")]
    with worker.serving():
        several = client.post("/v1/embeddings", json={"input": arrays})
        one = client.post("/embeddings/", json={"input": arrays[1], "encoding_format": "float"})

    found = [item["embedding"] for item in several.json()["data"]]
    assert found == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
    assert [item["embedding"] for item in one.json()["data"]] == found[1:]


def test_a_large_body_of_token_numbers_is_decoded_in_a_thread(
    client: httpx.Client, worker: LedgerWorker, cl100k: tiktoken.Encoding
) -> None:
    texts = [f"{n} " + "zwölf " * 60 for n in range(1000)]  # as many as LangChain sends at once
    with worker.serving():
        answer = client.post("/v1/embeddings", json={"input": [cl100k.encode(text) for text in texts]})

    assert answer.json()["data"][999]["embedding"] == pytest.approx(vector(texts[999]).tolist())


def test_tasks_take_token_numbers_too(client: httpx.Client, worker: LedgerWorker) -> None:
    task = client.post("/v1/tasks", json={"input": [[606], [31881, 3029, 11253]]})
    with worker.serving():
        client.get(f"{task.json()['links']['self']}?wait=20")
        found = client.get(task.json()["links"]["result"]).json()["data"]

    assert [item["embedding"] for item in found] == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
