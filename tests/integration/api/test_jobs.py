"""`GET /v1/jobs` and `GET /v1/tasks`: states, kinds, rare ones behind many others, why they wait."""

from typing import Any

import httpx
import redis

from api.services.jobs import place_of
from tasks.item import TextError
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import beat, stop
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import LOOK
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.submit import submit as store
from tasks.ledger.task import State
from tasks.records.batches import new_batch_id
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, code_of
from tests.integration.api.things import create, create_batch, end
from tests.integration.ledger.driver import commands
from tests.ledger_builders import a_worker, new_task
from tests.processes import wait_until

HOSTILE: tuple[dict[str, Any], ...] = (
    {"after": "x"}, {"after": "task_"}, {"after": "../../etc"}, {"after": "file-01a1fa1818cc7626bb9271b2af5733d5"},
    {"after": "(" * 4000}, {"after": "task_01A1FA1818CC7626BB9271B2AF5733D5"}, {"after": "+"}, {"limit": 0},
    {"limit": 101}, {"kind": "tasks"}, {"status": "done"}, {"status": "\u0000"}, {"status": "queued,Completed"},
)  # fmt: skip


def submit(client: httpx.Client, **fields: Any) -> str:
    return str(client.post("/v1/tasks", json={"input": ["one", "two"], **fields}).json()["id"])


def one_of_each(client: httpx.Client) -> list[str]:
    """Their ids, newest first."""
    return [submit(client), create_batch(client)["id"], create(client)["id"]][::-1]


def listed(client: httpx.Client, path: str = "/v1/jobs", **query: Any) -> dict[str, Any]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ids(body: dict[str, Any]) -> list[str]:
    return [row["id"] for row in body["data"]]


def test_all_kinds_are_in_one_list_newest_first(client: httpx.Client, worker: LedgerWorker) -> None:
    assert listed(client) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    with worker.serving():  # a call that waits is not listed
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    older = [job_id for _ in range(2) for job_id in one_of_each(client)]
    gone = [submit(client), new_batch_id(), new_task_id()]
    client.delete(f"/v1/tasks/{gone[0]}")
    expected = sorted(older + [job_id for _ in range(2) for job_id in one_of_each(client)], key=place_of, reverse=True)
    for limit in (1, 2, 5, 12):
        seen, after, more = list[str](), "", True
        while more:
            page = listed(client, limit=limit, after=after)
            seen, after, more = seen + ids(page), page["last_id"], page["has_more"]
        assert seen == expected, limit
    assert listed(client, "/v1/tasks")["data"] == listed(client, kind="task")["data"]
    paths = {"embedding.task": "/v1/tasks", "batch": "/v1/batches", "ingestion": "/v1/ingestions"}
    for row in listed(client)["data"]:  # a row is the object itself
        assert row == client.get(f"{paths[row['object']]}/{row['id']}").json()
        assert {"id", "object", "status", "created_at", "counts", "waiting"} <= row.keys()
        assert {"total", "completed", "failed"} == row["counts"].keys()
    for cursor in gone:
        assert ids(listed(client, after=cursor)) == expected[6:], "a cursor need not exist any more"
        assert ids(listed(client, "/v1/tasks", after=gone[2])) == [one for one in expected[6:] if "task" in one]
    for query in HOSTILE:
        answer = client.get("/v1/jobs", params=query)
        assert (code_of(answer), answer.json()["error"]["param"]) == ((400, "invalid_value"), next(iter(query)))
    refused = client.get("/v1/tasks", params={"status": "done"})
    assert code_of(refused) == (400, "invalid_value")
    assert all(state in refused.json()["detail"] for state in State)


def test_without_a_worker_nobody_knows_when_a_task_ends(
    client: httpx.Client, ledger: Ledger, worker: LedgerWorker
) -> None:
    path = f"/v1/tasks/{submit(client, lane='bulk')}"

    def waiting() -> dict[str, Any]:
        found: dict[str, Any] = client.get(path).json()["waiting"]
        return found

    assert waiting()["code"] == "in_line"
    assert waiting()["message"] == "Waits for its turn in the bulk lane; less than 1 s of work before it."
    ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: waiting()["code"] == "no_worker", message="that it is seen")
    assert waiting()["seconds"] is None


def test_jobs_are_chosen_by_kind_state_name_and_by_what_they_wait_for(
    client: httpx.Client, ledger: Ledger, worker: LedgerWorker, redis_client: redis.Redis
) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "no")
    part = submit(client, input=["good", "bad"], metadata={"name": "Nightly, part 1"})
    whole = submit(client, metadata={"topic": "nightly reviews"})
    worker.work()
    cancelled = submit(client)
    client.post(f"/v1/tasks/{cancelled}/cancel")
    stuck = new_task_id()
    ledger.run(store(new_task(task_id=stuck, queue="other", listed=True)))
    batch_id, ended = create_batch(client)["id"], create(client)["id"]
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

    def cost() -> int:
        return sum(commands(redis_client, lambda: client.get("/v1/jobs", params={"limit": 5})).values())

    # What is rare or waits for people is found behind what goes on, and a page costs the same however many there are.
    before = cost()
    for _ in range(LOOK + 10):
        ledger.run(store(new_task(task_id=new_task_id(), queue=MODEL, listed=True)))
    assert cost() <= before + 60
    newest = create(client, sink={"type": "dataset", "dataset": "nightly-handbook"})["id"]
    assert ids(listed(client, status="cancelled")) == [cancelled]
    assert ids(listed(client, status="waiting")) == [newest, batch_id, stuck]
    assert ids(listed(client, status="waiting", kind="task")) == [stuck]
    assert ids(listed(client, status="waiting", name="handbook")) == [newest]
    chosen = [({"status": "waiting"}, [newest, batch_id, stuck]), ({"name": "nightly"}, [newest, whole, part])]
    for query, found in chosen:
        first = listed(client, limit=1, **query)
        assert (ids(first), first["has_more"]) == (found[:1], True)
        assert ids(listed(client, after=first["last_id"], **query)) == found[1:]


def test_a_batch_hears_from_workers_that_the_storage_is_away(client: httpx.Client, ledger: Ledger) -> None:
    batch_id = create_batch(client)["id"]

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
