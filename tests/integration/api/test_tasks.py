"""The life of a task over HTTP; lists of tasks and of all jobs: which are chosen, and why they wait."""

import asyncio
import base64
import concurrent.futures
import io
from typing import Any

import httpx
import numpy as np
import redis

from api.services.jobs import KINDS, place_of, read_jobs
from tasks.item import Options, TextError
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import beat, stop
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import LOOK
from tasks.ledger.redis_keys import ANONYMOUS, DOCUMENTS
from tasks.ledger.submit import submit as store
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask, State
from tasks.records.batches import new_batch_id
from tests.integration.api.file_uploads import ids, pages, problem
from tests.integration.api.ledger_worker import DIMENSION, LedgerWorker, entry, vector
from tests.integration.api.served import MODEL, ServedApp
from tests.integration.api.things import BATCHES, EMPTY, INGESTION, TASK, end
from tests.integration.ledger.driver import commands
from tests.ledger_builders import a_worker, new_task
from tests.processes import wait_until

NPY = {"accept": "application/x-npy"}


def submit(client: httpx.Client, texts: Any, **fields: Any) -> dict[str, Any]:
    """The links of a new task."""
    links: dict[str, Any] = TASK.create(client, input=texts, **fields)["links"]
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
    problem(early, 409, "task_not_finished")
    assert early.headers["x-should-retry"] == "true"
    assert int(early.headers["retry-after"]) >= 1
    worker.work()

    status = client.get(task["self"])
    assert status.json()["status"] == "completed"
    assert status.json()["usage"] == {"prompt_tokens": 150, "total_tokens": 150}
    assert status.json()["expires_at"] > status.json()["finished_at"]
    assert "retry-after" not in status.headers
    late = client.post(task["cancel"])
    problem(late, 409, "task_already_ended")
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


def test_a_task_that_waits_says_why(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, ["a", "b"], lane="bulk")

    def waiting() -> dict[str, Any]:
        found: dict[str, Any] = client.get(task["self"]).json()["waiting"]
        return found

    assert waiting()["code"] == "in_line"
    assert waiting()["message"] == "Waits for its turn in the bulk lane; less than 1 s of work before it."
    ask = ClaimRequest("w", "w/1", 10**9, 1000, 15_000, stamp=entry(MODEL).stamp)
    worker.ledger.run(give_back(MODEL, worker.ledger.run(claim(MODEL, ask)).token, blame=True))
    assert (waiting()["code"], waiting()["since"] is None) == ("workers_died", False)
    assert waiting()["message"] == "Its worker died or failed; it is tried again."
    worker.ledger.run(stop(MODEL, worker.id))  # nobody knows when it ends
    wait_until(lambda: waiting()["code"] == "no_worker", message="that it is seen")
    assert waiting()["seconds"] is None


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
        problem(answer, 400, "invalid_value", param)


def test_what_is_cancelled_keeps_what_is_finished_and_what_is_late_or_deleted_is_not_done(
    client: httpx.Client, worker: LedgerWorker
) -> None:
    late, gone = submit(client, "x", deadline_s=0.05), submit(client, "x")
    expired = client.get(late["self"], params={"wait": 20}).json()
    assert (expired["status"], expired["error"]["code"]) == ("expired", "expired")
    assert client.get(late["result"]).json()["data"][0]["error"]["code"] == "expired"
    assert client.delete(gone["self"]).json()["deleted"]
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
        problem(client.request(method, OLD + path), 410, "task_expired", case=(method, path))
    pieces = [NewPiece(1, 1, b'["x"]')]
    admission = Admission(max_backlog_s=1e9)
    theirs = NewTask(OLD[-37:], worker.model, Lane.BULK, "somebody", pieces, Options(), 60_000, admission)
    worker.ledger.run(store(theirs))
    assert (client.get(OLD).status_code, client.get(OLD).json()) == (410, unknown.json())


# ---- lists of tasks and jobs, and why they wait ----------------------------------------------------------------------

HOSTILE: tuple[dict[str, Any], ...] = (
    {"after": "x"}, {"after": "task_"}, {"after": "../../etc"}, {"after": "file-01a1fa1818cc7626bb9271b2af5733d5"},
    {"after": "(" * 4000}, {"after": "task_01A1FA1818CC7626BB9271B2AF5733D5"}, {"after": "+"}, {"limit": 0},
    {"limit": 101}, {"kind": "tasks"}, {"status": "done"}, {"status": "\u0000"}, {"status": "queued,Completed"},
)  # fmt: skip


def made(client: httpx.Client, texts: Any = "one", **fields: Any) -> str:
    return str(TASK.create(client, input=texts, **fields)["id"])


def one_of_each(client: httpx.Client) -> list[str]:
    """Their ids, newest first."""
    return [made(client), BATCHES.make(client), INGESTION.make(client)][::-1]


def listed(client: httpx.Client, path: str = "/v1/jobs", **query: Any) -> httpx.Response:
    return client.get(path, params=query).raise_for_status()


def test_all_kinds_are_in_one_list_newest_first(client: httpx.Client, worker: LedgerWorker) -> None:
    assert listed(client).json() == EMPTY
    with worker.serving():  # a call that waits is not listed
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    older = [job_id for _ in range(2) for job_id in one_of_each(client)]
    gone = [made(client), new_batch_id(), new_task_id()]
    client.delete(f"/v1/tasks/{gone[0]}")
    expected = sorted(older + [job_id for _ in range(2) for job_id in one_of_each(client)], key=place_of, reverse=True)
    for limit in (1, 2, 5, 12):
        seen = [row["id"] for page in pages(client, "/v1/jobs", limit=limit) for row in page]
        assert seen == expected, limit
    assert listed(client, "/v1/tasks").json()["data"] == listed(client, kind="task").json()["data"]
    paths = {"embedding.task": "/v1/tasks", "batch": "/v1/batches", "ingestion": "/v1/ingestions"}
    for row in listed(client).json()["data"]:  # a row is the object itself
        assert row == client.get(f"{paths[row['object']]}/{row['id']}").json()
        assert {"id", "object", "status", "created_at", "counts", "waiting"} <= row.keys()
        assert {"total", "completed", "failed"} == row["counts"].keys()
    for cursor in gone:
        assert ids(listed(client, after=cursor)) == expected[6:], "a cursor need not exist any more"
        assert ids(listed(client, "/v1/tasks", after=gone[2])) == [one for one in expected[6:] if "task" in one]
    for query in HOSTILE:
        answer = client.get("/v1/jobs", params=query)
        problem(answer, 400, "invalid_value", next(iter(query)))
    told = problem(client.get("/v1/tasks", params={"status": "done"}), 400, "invalid_value", "status")
    assert all(state in told for state in State)


def test_jobs_are_chosen_by_kind_state_name_and_by_what_they_wait_for(
    client: httpx.Client, ledger: Ledger, worker: LedgerWorker
) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "no")
    part = made(client, ["good", "bad"], metadata={"name": "Nightly, part 1"})
    whole = made(client, metadata={"topic": "nightly reviews"})
    worker.work()
    cancelled = made(client)
    client.post(f"/v1/tasks/{cancelled}/cancel")
    stuck = new_task_id()
    ledger.run(store(new_task(task_id=stuck, queue="other", listed=True)))
    batch_id, ended = BATCHES.make(client), INGESTION.make(client)
    end(ledger, ended)
    chosen: list[tuple[dict[str, str], list[str]]] = [
        ({"kind": "task"}, [stuck, cancelled, whole, part]),
        ({"kind": "ingestion,batch"}, [ended, batch_id]),
        ({"status": "completed"}, [ended, whole, part]),
        ({"status": "queued, validating"}, [batch_id, stuck]),
        ({"kind": "batch", "status": "queued"}, []),
        ({"kind": "task", "status": ""}, [stuck, cancelled, whole, part]),
        ({"name": "NIGHTLY"}, [whole, part]),
        ({"name": whole[-8:]}, [whole]),
        ({"status": "with_failures"}, [part]),
        ({"status": "failed,with_failures", "name": "reviews"}, []),
    ]
    for query, expected in chosen:
        assert ids(listed(client, **query)) == expected, query
    assert ids(listed(client, "/v1/tasks", status=["queued", "completed"])) == [stuck, whole, part]

    # What is rare or waits for people is found behind what goes on.
    for _ in range(LOOK + 10):
        ledger.run(store(new_task(task_id=new_task_id(), queue=MODEL, listed=True)))
    newest = INGESTION.create(client, sink={"type": "dataset", "dataset": "nightly-handbook"})["id"]
    assert ids(listed(client, status="cancelled")) == [cancelled]
    assert ids(listed(client, status="waiting")) == [newest, batch_id, stuck]
    assert ids(listed(client, status="waiting", kind="task")) == [stuck]
    assert ids(listed(client, status="waiting", name="handbook")) == [newest]
    chosen = [({"status": "waiting"}, [newest, batch_id, stuck]), ({"name": "nightly"}, [newest, whole, part])]
    for query, found in chosen:
        first = listed(client, limit=1, **query)
        assert (ids(first), first.json()["has_more"]) == (found[:1], True)
        assert ids(listed(client, after=first.json()["last_id"], **query)) == found[1:]


def test_a_page_costs_the_same_however_many_jobs_there_are(
    ledger: Ledger, redis_url: str, redis_client: redis.Redis
) -> None:
    async def page() -> None:
        reading = AsyncLedger.connect(redis_url)
        await read_jobs(reading, ANONYMOUS, KINDS, None, 20)
        await reading.close()

    counted = []
    for number in (40, 400):
        for _ in range(number):
            ledger.run(store(new_task(task_id=new_task_id(), queue="other", listed=True)))
        counted.append(sum(commands(redis_client, lambda: asyncio.run(page())).values()))
    redis_client.flushall()  # to forget so many tasks one by one takes long
    assert counted[1] - counted[0] <= 20


def test_a_batch_hears_from_workers_that_the_storage_is_away(client: httpx.Client, ledger: Ledger) -> None:
    batch_id = BATCHES.make(client)

    def waiting(*errors: str) -> dict[str, Any]:
        for number, error in enumerate(errors):
            entry = a_worker(f"d{number}", storage_error=error, storage_error_since=1_795_198_568.5 + number)
            ledger.run(beat(DOCUMENTS, entry, None, 60_000))
        found: dict[str, Any] = client.get(f"/v1/batches/{batch_id}").json()["waiting"]
        return found

    wait_until(lambda: waiting("storage_unavailable", "disk_full")["code"] == "storage_unavailable")
    assert waiting()["message"] == "The server's storage does not answer since 2026-11-20 18:16 UTC."
    assert waiting()["since"] == 1_795_198_568
    wait_until(lambda: waiting("", "disk_full")["code"] == "working", message="one of them gets on with its work")
    for name in ("d0", "d1"):
        ledger.run(stop(DOCUMENTS, name))
    wait_until(lambda: waiting()["code"] == "no_documents_worker", message="that both are missed")
    assert waiting()["message"].startswith("No documents worker runs since ")
