"""The life of a task over HTTP."""

import base64
import concurrent.futures
import io
from typing import Any

import httpx
import numpy as np

from tasks.item import Options, TextError
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.give_back import give_back
from tasks.ledger.submit import submit as store
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tests.integration.api.ledger_worker import DIMENSION, LedgerWorker, entry, vector
from tests.integration.api.served import MODEL, ServedApp, code_of
from tests.processes import wait_until

NPY = {"accept": "application/x-npy"}


def submit(client: httpx.Client, texts: Any, **fields: Any) -> dict[str, Any]:
    """The links of a new task."""
    answer = client.post("/v1/tasks", json={"input": texts, **fields})
    assert answer.status_code == 202, answer.text
    links: dict[str, Any] = answer.json()["links"]
    return links


def as_array(answer: httpx.Response) -> Any:
    assert answer.headers["content-type"] == "application/x-npy"
    return np.load(io.BytesIO(answer.content), allow_pickle=False)


def test_a_submitted_task_is_told_where_to_look(client: httpx.Client, worker: LedgerWorker) -> None:
    body = {"input": ["a", "b"], "lane": "bulk", "deadline_s": 500, "metadata": {"job": "7"}}
    answer = client.post("/v1/tasks", json=body, headers={"idempotency-key": "order-1"})
    task = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/tasks/{task['id']}"
    assert 1 <= int(answer.headers["retry-after"]) <= 120
    expected = {"object": "embedding.task", "status": "queued", "metadata": {"job": "7"}, "model": MODEL}
    assert task == task | expected | {"counts": {"total": 2, "completed": 0, "failed": 0}}

    stored = client.get(answer.headers["location"]).json()
    for name in ("created_at", "deadline"):  # one is this machine's time, the other the Redis server's
        assert abs(task.pop(name) - stored.pop(name)) <= 1
    assert (task.pop("waiting"), stored.pop("waiting")["code"]) == (None, "in_line")
    assert task == stored
    worker.work()
    again = client.post("/v1/tasks", json=body, headers={"idempotency-key": "order-1"})
    assert (again.status_code, again.json()["id"], again.json()["status"]) == (202, task["id"], "completed")
    assert worker.work() == 0, "what is done is not done again"


def test_behind_a_proxy_with_a_prefix_paths_begin_with_it(client: httpx.Client) -> None:
    prefix = {"x-forwarded-prefix": "/tools/embedq/"}
    answer = client.post("/v1/tasks", json={"input": "a"}, headers=prefix)
    here = f"/v1/tasks/{answer.json()['id']}"
    path = f"/tools/embedq{here}"
    assert answer.headers["location"] == path
    links = {"self": path, "result": f"{path}/result", "cancel": f"{path}/cancel"}
    assert answer.json()["links"] == client.get(here, headers=prefix).json()["links"] == links
    assert client.get("/openapi.json", headers=prefix).json()["servers"] == [{"url": "/tools/embedq"}]
    assert "servers" not in client.get("/openapi.json").json()
    for nonsense in ("//elsewhere.example.org", "https://elsewhere.example.org/", "x", "/a b"):
        assert client.get(here, headers={"x-forwarded-prefix": nonsense}).json()["links"]["self"] == here


def test_a_finished_task_has_its_vectors_in_input_order(client: httpx.Client, worker: LedgerWorker) -> None:
    texts = [f"text {i}" * (i % 3 + 1) for i in range(150)]
    worker.truncated.add(texts[3])
    task = submit(client, texts)
    early = client.get(task["result"])
    assert code_of(early) == (409, "task_not_finished")
    assert early.headers["x-should-retry"] == "true"
    assert int(early.headers["retry-after"]) >= 1
    worker.work()

    status = client.get(task["self"])
    assert status.json()["status"] == "completed"
    assert status.json()["usage"] == {"prompt_tokens": 150, "total_tokens": 150}
    assert status.json()["expires_at"] > status.json()["finished_at"]
    assert "retry-after" not in status.headers
    late = client.post(task["cancel"])
    assert code_of(late) == (409, "task_already_ended")
    assert late.headers["x-should-retry"] == "false"

    result = client.get(task["result"]).json()
    assert (result["object"], result["model"]) == ("list", MODEL)
    assert [item["index"] for item in result["data"]] == list(range(150))
    assert [item["index"] for item in result["data"] if item.get("truncated")] == [3]
    packed = client.get(task["result"], params={"encoding_format": "base64"}).json()["data"]
    assert [np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist() for item in packed] == [
        vector(text).tolist() for text in texts
    ]
    vectors = as_array(client.get(task["result"], headers=NPY))
    assert (vectors.dtype, vectors.shape) == (np.dtype("<f4"), (150, DIMENSION))
    for found in (vectors, np.array([item["embedding"] for item in result["data"]], dtype="f4")):
        np.testing.assert_array_equal(found, np.stack([vector(t) for t in texts]))


def test_a_failed_item_is_an_error_in_its_place(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "The vector was not finite.")
    task, failed = submit(client, ["good", "bad", "fine"]), submit(client, ["bad"])
    worker.work()
    assert client.get(task["self"]).json()["counts"] == {"total": 3, "completed": 2, "failed": 1}
    data = client.get(task["result"]).json()["data"]
    error = {"code": "encoding_failed", "message": "The vector was not finite."}
    assert data[1] == {"object": "error", "index": 1, "error": error}
    assert data[2]["embedding"]
    vectors = as_array(client.get(task["result"], headers=NPY))
    assert np.isnan(vectors).all(axis=1).tolist() == [False, True, False]

    state = client.get(failed["self"]).json()
    assert (state["status"], state["error"]["code"]) == ("failed", "all_items_failed")
    assert as_array(client.get(failed["result"], headers=NPY)).shape == (1, DIMENSION)


def test_the_death_of_a_worker_is_told_while_the_texts_are_tried_again(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    task = submit(client, ["a", "b"])
    ask = ClaimRequest("w", "w/1", 10**9, 1000, 15_000, stamp=entry(MODEL).stamp)
    taken = worker.ledger.run(claim(MODEL, ask))
    assert taken.pieces
    worker.ledger.run(give_back(MODEL, taken.token, blame=True))
    waiting = client.get(task["self"]).json()["waiting"]
    assert (waiting["code"], waiting["message"]) == ("workers_died", "Its worker died or failed; it is tried again.")
    assert waiting["since"] is not None


def test_a_long_poll_returns_at_the_end(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, [f"text {i}" for i in range(200)])
    early = client.get(task["self"], params={"wait": 0.05})
    assert (early.status_code, early.json()["status"]) == (200, "queued")
    assert early.headers["retry-after"]
    # Without an end it tells what has changed meanwhile.
    for pieces, wait_s, status in ((1, 0.5, "in_progress"), (1000, 20, "completed")):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            poll = pool.submit(client.get, task["self"], params={"wait": wait_s})
            wait_until(lambda: app.process.subscription.waiting_requests, message="nobody waits")
            worker.work(max_pieces=pieces)
            assert poll.result().json()["status"] == status
    for query in ("?wait=soon", "?wait=-1", "/result?encoding_format=hex"):
        answer, param = client.get(task["self"] + query), query.partition("?")[2].partition("=")[0]
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_is_cancelled_keeps_what_is_finished_and_what_is_late_or_deleted_is_not_done(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    late, gone = submit(client, "x", deadline_s=0.05), submit(client, "x")
    expired = client.get(late["self"], params={"wait": 20}).json()
    assert (expired["status"], expired["error"]["code"]) == ("expired", "expired")
    assert client.get(late["result"]).json()["data"][0]["error"]["code"] == "expired"
    task_id = gone["self"].rpartition("/")[2]
    assert client.delete(gone["self"]).json() == {"id": task_id, "object": "embedding.task", "deleted": True}
    assert client.get(gone["self"]).status_code == client.delete(gone["self"]).status_code == 404
    assert worker.work() == 0

    task = submit(client, [f"text {i}" for i in range(100)])
    worker.work(max_pieces=1)
    first = client.post(task["cancel"])
    second = client.post(task["cancel"], headers={"content-type": "application/json"})
    assert first.status_code == second.status_code == 200
    assert first.json()["status"] == second.json()["status"] == "cancelled"
    done = first.json()["counts"]["completed"]
    assert 0 < done < 100
    data = client.get(task["result"]).json()["data"]
    assert [item["object"] for item in data] == ["embedding"] * done + ["error"] * (100 - done)
    assert data[-1]["error"]["code"] == "cancelled"


OLD = "/v1/tasks/task_018bcfe5680070008000000000000000"
"""Of a task that was made in November 2023."""


def test_an_id_older_than_the_retention_is_gone_whoever_has_it(client: httpx.Client, worker: LedgerWorker) -> None:
    unknown = client.get(OLD)
    for method, path in [("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")]:
        assert code_of(client.request(method, OLD + path)) == (410, "task_expired"), (method, path)
    pieces = [NewPiece(1, 1, b'["x"]')]
    admission = Admission(max_backlog_s=1e9)
    theirs = NewTask(OLD[-37:], worker.model, Lane.BULK, "somebody", pieces, Options(), 60_000, admission)
    worker.ledger.run(store(theirs))
    assert (client.get(OLD).status_code, client.get(OLD).json()) == (410, unknown.json())
