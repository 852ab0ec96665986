"""`GET /v1/jobs`: tasks, batches and ingestions of one caller in one list."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from api.paging import ListPage
from api.services.jobs import KINDS, place_of, read_jobs
from api.waiting.why_waiting import Record
from tasks.item import TextError
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.heartbeat import beat, stop
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import LOOK
from tasks.ledger.redis_keys import ANONYMOUS, DOCUMENTS
from tasks.ledger.submit import submit as store
from tasks.records.batches import new_batch_id
from tasks.records.jobs import JobStatus
from tests.integration.api.ingestions.requests import create, end
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, ServedApp
from tests.integration.ledger.driver import commands
from tests.ledger_builders import a_worker, new_task
from tests.processes import wait_until


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    return Ledger.connect(redis_url)


@pytest.fixture
def client(worker: LedgerWorker, serve: Callable[..., ServedApp], tmp_path: Path) -> httpx.Client:
    """Of an app with a storage of its own."""
    return serve(storage_url=str(tmp_path / "storage")).client


def submit(client: httpx.Client, headers: dict[str, str] | None = None, **fields: Any) -> str:
    answer = client.post("/v1/tasks", json={"input": ["one", "two"], **fields}, headers=headers)
    return str(answer.json()["id"])


def batch(client: httpx.Client, **fields: Any) -> str:
    body = {"input_file_id": "file-unknown", "endpoint": "/v1/embeddings", "completion_window": "24h", **fields}
    return str(client.post("/v1/batches", json=body).json()["id"])


def ingestion(client: httpx.Client, **fields: Any) -> str:
    return str(create(client, **fields)["id"])


def one_of_each(client: httpx.Client) -> list[str]:
    """Their ids, newest first."""
    return [submit(client), batch(client), ingestion(client)][::-1]


def listed(client: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/v1/jobs", params=query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ids(body: dict[str, Any]) -> list[str]:
    return [row["id"] for row in body["data"]]


def test_an_empty_list(client: httpx.Client) -> None:
    assert listed(client) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_all_kinds_are_in_one_list_newest_first(client: httpx.Client) -> None:
    expected = one_of_each(client) + one_of_each(client)
    assert ids(listed(client)) == sorted(expected, key=place_of, reverse=True)
    assert [row["object"] for row in listed(client)["data"]] == ["ingestion", "batch", "embedding.task"] * 2


def test_a_row_is_the_object_itself(client: httpx.Client, worker: LedgerWorker) -> None:
    done = submit(client, metadata={"name": "<b>night</b>", "other": "x"})
    worker.work()
    waiting = submit(client, lane="bulk")
    batch_id, ingestion_id = batch(client), ingestion(client, sink={"type": "dataset", "dataset": "handbook"})
    paths = {
        done: "/v1/tasks", waiting: "/v1/tasks", batch_id: "/v1/batches", ingestion_id: "/v1/ingestions",
    }  # fmt: skip

    for row in listed(client)["data"]:
        assert row == client.get(f"{paths.pop(row['id'])}/{row['id']}").json()
        assert {"id", "object", "status", "created_at", "counts", "waiting"} <= row.keys()
        assert {"total", "completed", "failed"} == row["counts"].keys()
    assert not paths
    assert client.get(f"/v1/tasks/{waiting}").json()["waiting"]["message"] == (
        "Waits for its turn in the bulk lane; less than 1 s of work before it."
    )


def test_jobs_are_found_by_part_of_a_name_or_an_id_and_by_failures(client: httpx.Client, worker: LedgerWorker) -> None:
    worker.errors["bad"] = TextError("encoding_failed", "no")
    part = submit(client, input=["good", "bad"], metadata={"name": "Nightly, part 1"})
    whole = submit(client, metadata={"topic": "nightly reviews"})
    worker.work()
    loaded = ingestion(client, sink={"type": "dataset", "dataset": "nightly-handbook"})
    for number in range(3):
        submit(client, metadata={"name": f"other {number}"})

    assert ids(listed(client, name="NIGHTLY")) == [loaded, whole, part]
    assert ids(listed(client, name="nightly", kind="task")) == [whole, part]
    assert ids(listed(client, name=whole[-8:])) == [whole]
    assert ids(listed(client, status="with_failures")) == [part]
    assert ids(listed(client, status="failed,with_failures", name="reviews")) == []
    first = listed(client, name="nightly", limit=1)
    assert (ids(first), first["has_more"]) == ([loaded], True)
    assert ids(listed(client, name="nightly", after=first["last_id"])) == [whole, part]


def test_without_a_worker_nobody_knows_when_a_task_ends(
    client: httpx.Client, ledger: Ledger, worker: LedgerWorker
) -> None:
    waiting = submit(client)
    [row] = listed(client)["data"]
    assert (row["id"], row["waiting"]["code"]) == (waiting, "in_line")
    ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: listed(client)["data"][0]["waiting"]["code"] == "no_worker", message="that it is seen")
    assert listed(client)["data"][0]["waiting"]["seconds"] is None


def test_a_batch_hears_from_workers_that_the_storage_is_away(client: httpx.Client, ledger: Ledger) -> None:
    batch_id = batch(client)

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


def test_pages_by_cursor_run_through_all_kinds(client: httpx.Client) -> None:
    expected = [job_id for _ in range(4) for job_id in one_of_each(client)]
    expected.sort(key=place_of, reverse=True)
    for limit in (1, 2, 5, 12):
        seen, after = list[str](), ""
        for _ in range(20):
            page = listed(client, limit=limit, after=after)
            seen += ids(page)
            after = page["last_id"] or ""
            if not page["has_more"]:
                break
        assert seen == expected, limit


def test_kinds_and_states_are_chosen_by_name(client: httpx.Client, ledger: Ledger, worker: LedgerWorker) -> None:
    done = submit(client)
    worker.work()
    queued, batch_id, ended = submit(client), batch(client), ingestion(client)
    end(ledger, ended)

    assert ids(listed(client, kind="task")) == [queued, done]
    assert ids(listed(client, kind="ingestion,batch")) == [ended, batch_id]
    assert ids(listed(client, status="completed")) == [ended, done]
    assert ids(listed(client, status="queued, validating")) == [batch_id, queued]
    assert ids(listed(client, kind="batch", status="queued")) == []


def test_nobody_sees_what_others_have_begun(
    serve: Callable[..., ServedApp], worker: LedgerWorker, tmp_path: Path
) -> None:
    client = serve(api_keys=KEYS, storage_url=str(tmp_path / "storage")).client
    client.headers.update(ANN)
    hers = one_of_each(client)
    assert ids(listed(client)) == hers
    client.headers.update(BOB)
    assert ids(listed(client)) == []
    assert ids(listed(client, after=hers[0])) == [], "a cursor is a moment and nothing more"
    his = submit(client)
    assert ids(listed(client)) == [his]
    assert ids(listed(client, after=hers[0])) == []
    del client.headers["authorization"]
    assert client.get("/v1/jobs").status_code == 401


HOSTILE: tuple[dict[str, Any], ...] = (
    {"after": "x"}, {"after": "task_"}, {"after": "../../etc"}, {"after": "file-01a1fa1818cc7626bb9271b2af5733d5"},
    {"after": "(" * 4000}, {"after": "task_01A1FA1818CC7626BB9271B2AF5733D5"}, {"after": "+"}, {"limit": 0},
    {"limit": 101}, {"kind": "tasks"}, {"status": "done"}, {"status": "\u0000"},
)  # fmt: skip


def test_what_is_no_query_of_a_list_is_refused(client: httpx.Client) -> None:
    for query in HOSTILE:
        answer = client.get("/v1/jobs", params=query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value"), query
        assert answer.json()["error"]["param"] == next(iter(query))


def test_a_cursor_need_not_exist_any_more(client: httpx.Client) -> None:
    older = one_of_each(client)
    gone = new_batch_id()
    one_of_each(client)
    assert ids(listed(client, after=gone)) == older


async def cancelled(redis_url: str, after: str | None = None) -> ListPage[Record]:
    """What one look at each kind finds."""
    ledger = AsyncLedger.connect(redis_url)
    try:
        return await read_jobs(ledger, ANONYMOUS, {kind: ["cancelled"] for kind in KINDS}, after, 20, max_calls=1)
    finally:
        await ledger.close()


def test_where_one_kind_was_not_looked_through_older_ones_of_others_wait(
    client: httpx.Client, ledger: Ledger, redis_url: str
) -> None:
    oldest, batch_id = submit(client), batch(client)
    client.post(f"/v1/tasks/{oldest}/cancel")
    end(ledger, batch_id, JobStatus.CANCELLED)
    newer = [new_task_id() for _ in range(LOOK + 10)]
    for task_id in newer:
        ledger.run(store(new_task(task_id=task_id, queue="other", listed=True)))

    first = asyncio.run(cancelled(redis_url))
    second = asyncio.run(cancelled(redis_url, first.until))

    assert (first.items, first.more) == ([], True)
    assert first.until == place_of(newer[10])
    assert [record.id for record in second.items] == [batch_id, oldest]
    assert not second.more
    assert ids(listed(client, status="cancelled")) == [batch_id, oldest]


def test_a_page_costs_the_same_however_many_jobs_there_are(
    client: httpx.Client, ledger: Ledger, redis_url: str, redis_client: redis.Redis
) -> None:
    async def page() -> None:
        reading = AsyncLedger.connect(redis_url)
        try:
            await read_jobs(reading, ANONYMOUS, KINDS, None, 20)
        finally:
            await reading.close()

    counted = []
    for tasks in (40, 1000):
        for _ in range(tasks):
            ledger.run(store(new_task(task_id=new_task_id(), queue="other", listed=True)))
        counted.append(sum(commands(redis_client, lambda: asyncio.run(page())).values()))
    redis_client.flushall()  # to forget so many tasks one by one takes long
    assert counted[1] - counted[0] <= 60, "the watchdog runs beside it"
