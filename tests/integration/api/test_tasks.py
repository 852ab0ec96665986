"""The life of a task over HTTP."""

import base64
import concurrent.futures
import dataclasses
import io
from typing import Any

import httpx
import numpy as np

from tasks.item import Options, TextError
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import join, stop
from tasks.ledger.submit import submit as store
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tests.integration.api.ledger_worker import DIMENSION, LedgerWorker, entry, vector
from tests.integration.api.served import MODEL, ServedApp
from tests.ledger_builders import a_worker
from tests.processes import wait_until


def submit(client: httpx.Client, texts: Any, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/tasks", json={"input": texts, **fields})
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_submitted_task_is_told_where_to_look(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", json={"input": ["a", "b"], "metadata": {"job": "7"}})

    task = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/tasks/{task['id']}"
    assert 1 <= int(answer.headers["retry-after"]) <= 120
    assert task["object"] == "embedding.task"
    assert task["status"] == "queued"
    assert task["counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert task["metadata"] == {"job": "7"}
    assert task["model"] == MODEL


def test_behind_a_proxy_with_a_prefix_paths_begin_with_it(client: httpx.Client) -> None:
    prefix = {"x-forwarded-prefix": "/tools/embedq/"}
    answer = client.post("/v1/tasks", json={"input": "a"}, headers=prefix)
    path = f"/tools/embedq/v1/tasks/{answer.json()['id']}"

    assert answer.headers["location"] == path
    links = {"self": path, "result": f"{path}/result", "cancel": f"{path}/cancel"}
    assert answer.json()["links"] == links
    there = client.get(path.removeprefix("/tools/embedq"), headers=prefix)
    assert there.json()["links"] == links
    assert client.get("/openapi.json", headers=prefix).json()["servers"] == [{"url": "/tools/embedq"}]
    assert "servers" not in client.get("/openapi.json").json()
    for nonsense in ("//elsewhere.example.org", "https://elsewhere.example.org/", "x", "/a b"):
        plain = client.get(there.request.url.path, headers={"x-forwarded-prefix": nonsense})
        assert plain.json()["links"]["self"] == path.removeprefix("/tools/embedq")


def test_the_answer_to_a_submission_is_what_the_ledger_holds(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", json={"input": "a", "lane": "bulk", "deadline_s": 500, "metadata": {"k": "v"}})

    read = client.get(answer.headers["location"])

    submitted, stored = answer.json(), read.json()
    for name in ("created_at", "deadline"):  # one is this machine's time, the other the Redis server's
        assert abs(submitted.pop(name) - stored.pop(name)) <= 1
    assert (submitted.pop("waiting"), stored.pop("waiting")["code"]) == (None, "in_line")
    assert submitted == stored
    assert read.headers["cache-control"] == "no-store"


def test_a_finished_task_has_its_vectors_in_input_order(client: httpx.Client, worker: LedgerWorker) -> None:
    texts = [f"text {i}" * (i % 3 + 1) for i in range(150)]
    worker.truncated.add(texts[3])
    task = submit(client, texts)
    worker.work()

    status = client.get(task["links"]["self"])
    result = client.get(task["links"]["result"]).json()

    assert status.json()["status"] == "completed"
    assert status.json()["usage"] == {"prompt_tokens": 150, "total_tokens": 150}
    assert status.json()["expires_at"] > status.json()["finished_at"]
    assert "retry-after" not in status.headers
    assert result["object"] == "list"
    assert result["model"] == MODEL
    assert [item["index"] for item in result["data"]] == list(range(150))
    assert [item["index"] for item in result["data"] if item.get("truncated")] == [3]
    np.testing.assert_array_equal(
        np.array([item["embedding"] for item in result["data"]], dtype="f4"), np.stack([vector(t) for t in texts])
    )


def test_the_result_as_npy_and_base64(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, ["one", "two"])
    worker.work()

    npy = client.get(task["links"]["result"], headers={"accept": "application/x-npy"})
    packed = client.get(task["links"]["result"], params={"encoding_format": "base64"}).json()["data"]

    vectors = np.load(io.BytesIO(npy.content), allow_pickle=False)
    assert npy.headers["content-type"] == "application/x-npy"
    assert vectors.dtype == np.dtype("<f4")
    assert vectors.shape == (2, DIMENSION)
    np.testing.assert_array_equal(vectors[1], vector("two"))
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed[0]["embedding"]), "<f4"), vector("one"))


def test_the_death_of_a_worker_is_told_while_the_texts_are_tried_again(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    task = submit(client, ["a", "b"])
    ask = ClaimRequest("w", "w/1", 10**9, 1000, 15_000, stamp=entry(MODEL).stamp)
    taken = worker.ledger.run(claim(MODEL, ask))
    assert taken.pieces
    worker.ledger.run(give_back(MODEL, taken.token, blame=True))
    waiting = client.get(task["links"]["self"]).json()["waiting"]

    assert (waiting["code"], waiting["message"]) == ("workers_died", "Its worker died or failed; it is tried again.")
    assert waiting["since"] is not None


def test_a_failed_item_is_an_error_in_its_place(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "The vector was not finite.")
    task = submit(client, ["good", "bad", "fine"])
    worker.work()

    data = client.get(task["links"]["result"]).json()["data"]
    npy = client.get(task["links"]["result"], headers={"accept": "application/x-npy"})

    assert client.get(task["links"]["self"]).json()["counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert data[1] == {
        "object": "error",
        "index": 1,
        "error": {"code": "encoding_failed", "message": "The vector was not finite."},
    }
    assert data[2]["embedding"]
    assert np.isnan(np.load(io.BytesIO(npy.content))).all(axis=1).tolist() == [False, True, False]


def test_a_task_without_any_vector_failed(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.errors["bad"] = TextError("input_too_long", "300 tokens; the model takes 128.")
    task = submit(client, ["bad"])
    worker.work()

    state = client.get(task["links"]["self"]).json()
    npy = client.get(task["links"]["result"], headers={"accept": "application/x-npy"})

    assert state["status"] == "failed"
    assert state["error"]["code"] == "all_items_failed"
    assert np.load(io.BytesIO(npy.content)).shape == (1, DIMENSION)


def test_the_result_before_the_end_is_a_409_that_says_try_again(client: httpx.Client) -> None:
    task = submit(client, "x")

    answer = client.get(task["links"]["result"])

    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "task_not_finished"
    assert answer.headers["x-should-retry"] == "true"
    assert int(answer.headers["retry-after"]) >= 1


def test_a_long_poll_returns_at_the_end(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, ["a", "b"])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        poll = pool.submit(client.get, task["links"]["self"], params={"wait": 20})
        wait_until(lambda: app.process.subscription.waiting_requests, message="nobody waits")
        worker.work()

        assert poll.result().json()["status"] == "completed"


def test_a_long_poll_without_an_end_tells_what_has_changed_meanwhile(
    app: ServedApp, client: httpx.Client, worker: LedgerWorker
) -> None:
    task = submit(client, [f"text {i}" for i in range(200)])
    early = client.get(task["links"]["self"], params={"wait": 0.05})
    assert (early.status_code, early.json()["status"]) == (200, "queued")
    assert early.headers["retry-after"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        poll = pool.submit(client.get, task["links"]["self"], params={"wait": 0.5})
        wait_until(lambda: app.process.subscription.waiting_requests, message="nobody waits")
        worker.work(max_pieces=1)

        assert poll.result().json()["status"] == "in_progress"


def test_a_stopping_server_answers_long_polls_with_what_it_knows(app: ServedApp, client: httpx.Client) -> None:
    task = submit(client, "x")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        poll = pool.submit(client.get, task["links"]["self"], params={"wait": 20})
        wait_until(lambda: app.process.subscription.waiting_requests, message="nobody waits")
        app.call_in_loop(app.process.subscription.close)

        assert poll.result().json()["status"] == "queued"


def test_cancelling_keeps_what_is_finished(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, [f"text {i}" for i in range(100)])
    worker.work(max_pieces=1)

    first = client.post(task["links"]["cancel"])
    second = client.post(task["links"]["cancel"], headers={"content-type": "application/json"})
    data = client.get(task["links"]["result"]).json()["data"]

    assert first.status_code == second.status_code == 200
    assert first.json()["status"] == second.json()["status"] == "cancelled"
    done = first.json()["counts"]["completed"]
    assert 0 < done < 100
    assert [item["object"] for item in data] == ["embedding"] * done + ["error"] * (100 - done)
    assert data[-1]["error"]["code"] == "cancelled"


def test_cancelling_after_the_end_is_a_409_that_says_never_again(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, "x")
    worker.work()

    answer = client.post(task["links"]["cancel"])

    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "task_already_ended"
    assert answer.headers["x-should-retry"] == "false"


def test_a_deleted_task_is_forgotten(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, "x")

    answer = client.delete(task["links"]["self"])

    assert answer.json() == {"id": task["id"], "object": "embedding.task", "deleted": True}
    assert client.get(task["links"]["self"]).status_code == 404
    assert client.delete(task["links"]["self"]).status_code == 404
    assert worker.work() == 0


OLD = "/v1/tasks/task_018bcfe5680070008000000000000000"
"""Of a task that was made in November 2023."""


def test_an_id_older_than_the_retention_is_gone_whoever_has_it(client: httpx.Client, worker: LedgerWorker) -> None:
    unknown = client.get(OLD)
    for method, path in [("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")]:
        answer = client.request(method, OLD + path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "task_expired"), (method, path)
    pieces = [NewPiece(1, 1, b'["x"]')]
    admission = Admission(max_backlog_s=1e9)
    theirs = NewTask(OLD[-37:], worker.model, Lane.BULK, "somebody", pieces, Options(), 60_000, admission)
    worker.ledger.run(store(theirs))
    assert (client.get(OLD).status_code, client.get(OLD).json()) == (410, unknown.json())


def test_a_call_whose_model_is_exchanged_half_way_is_to_be_sent_again(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    texts = [f"text {n}" for n in range(100)]  # more than one piece
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        call = caller.submit(client.post, "/v1/embeddings", json={"input": texts, "model": worker.model})
        wait_until(lambda: worker.work(max_pieces=1), message="the first piece of the call")
        worker.ledger.run(stop(worker.model, worker.id))
        other = dataclasses.replace(entry(worker.model), revision="r2")
        assert worker.ledger.run(join(worker.model, a_worker("new"), other, 60_000)).served
        ask = ClaimRequest("new/0", "new/0/1", 10**9, 1000, 15_000, stamp=other.stamp)
        assert not worker.ledger.run(claim(worker.model, ask)).pieces
        answer = call.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert answer.headers["retry-after"] == "1"


def test_a_deadline_ends_a_task_that_nobody_works_on(client: httpx.Client) -> None:
    task = submit(client, "x", deadline_s=0.05)

    answer = client.get(task["links"]["self"], params={"wait": 20})

    assert answer.json()["status"] == "expired"
    assert answer.json()["error"]["code"] == "expired"
    assert client.get(task["links"]["result"]).json()["data"][0]["error"]["code"] == "expired"


def test_a_repetition_of_what_is_done_is_not_done_again(client: httpx.Client, worker: LedgerWorker) -> None:
    headers = {"idempotency-key": "order-1"}
    first = client.post("/v1/tasks", json={"input": ["a"]}, headers=headers)
    worker.work()

    again = client.post("/v1/tasks", json={"input": ["a"]}, headers=headers)

    assert again.status_code == 202
    assert (again.json()["id"], again.json()["status"]) == (first.json()["id"], "completed")
    assert worker.work() == 0


def test_bad_query_parameters(client: httpx.Client) -> None:
    path = submit(client, "x")["links"]["self"]
    for query, param in (
        ("?wait=soon", "wait"),
        ("?wait=-1", "wait"),
        ("/result?encoding_format=hex", "encoding_format"),
    ):
        answer = client.get(path + query)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
