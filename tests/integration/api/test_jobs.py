"""`GET /v1/jobs` and `GET /v1/tasks`: states, kinds, rare ones behind many others, and what a page costs."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import redis

from api.paging import ListPage
from api.services.jobs import KINDS, id_at, place_of, read_jobs
from api.waiting.why_waiting import Record
from tasks.errors import RedisUnavailable
from tasks.item import TextError
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.heartbeat import beat, stop
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import LOOK
from tasks.ledger.redis_keys import ANONYMOUS, DOCUMENTS
from tasks.ledger.submit import submit as store
from tasks.ledger.task import State
from tasks.records.batches import new_batch_id
from tasks.records.jobs import JobStatus
from tests.integration.api.jobs import create, create_batch, end
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, code_of
from tests.integration.ledger.driver import commands
from tests.ledger_builders import a_worker, new_task
from tests.processes import eventually, wait_until


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


def tasks(client: httpx.Client, **query: Any) -> list[str]:
    return ids(listed(client, "/v1/tasks", **query))


def test_all_kinds_are_in_one_list_newest_first(client: httpx.Client) -> None:
    assert listed(client) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    expected = one_of_each(client) + one_of_each(client)
    assert ids(listed(client)) == sorted(expected, key=place_of, reverse=True)
    assert [row["object"] for row in listed(client)["data"]] == ["ingestion", "batch", "embedding.task"] * 2


def test_a_row_is_the_object_itself(client: httpx.Client, worker: LedgerWorker) -> None:
    done = submit(client, metadata={"name": "<b>night</b>", "other": "x"})
    worker.work()
    waiting = submit(client, lane="bulk")
    ingestion = create(client, sink={"type": "dataset", "dataset": "handbook"})["id"]
    paths = dict.fromkeys((done, waiting), "/v1/tasks")
    paths |= {create_batch(client)["id"]: "/v1/batches", ingestion: "/v1/ingestions"}

    assert listed(client, "/v1/tasks")["data"] == listed(client, kind="task")["data"]
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
    loaded = create(client, sink={"type": "dataset", "dataset": "nightly-handbook"})["id"]
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


def test_what_waits_for_people_is_found_behind_what_goes_on(
    client: httpx.Client, ledger: Ledger, worker: LedgerWorker
) -> None:
    done = submit(client)
    worker.work()
    stuck = new_task_id()
    ledger.run(store(new_task(task_id=stuck, queue="other", listed=True)))
    for _ in range(LOOK + 10):
        ledger.run(store(new_task(task_id=new_task_id(), queue=MODEL, listed=True)))
    newest = create(client, sink={"type": "dataset", "dataset": "handbook"})["id"]

    assert ids(listed(client, status="waiting")) == [newest, stuck]
    first = listed(client, status="waiting", limit=1)
    assert (ids(first), first["has_more"]) == ([newest], True)
    assert ids(listed(client, status="waiting", after=first["last_id"])) == [stuck]
    assert ids(listed(client, status="waiting", kind="task")) == [stuck]
    assert ids(listed(client, status="waiting,completed")) == [newest, stuck, done]
    assert ids(listed(client, status="waiting", name="handbook")) == [newest]


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


def test_pages_by_cursor_run_through_all_kinds(client: httpx.Client) -> None:
    older = [job_id for _ in range(2) for job_id in one_of_each(client)]
    gone = new_batch_id()
    expected = sorted(older + [job_id for _ in range(2) for job_id in one_of_each(client)], key=place_of, reverse=True)
    for limit in (1, 2, 5, 12):
        seen, after, more = list[str](), "", True
        while more:
            page = listed(client, limit=limit, after=after)
            seen, after, more = seen + ids(page), page["last_id"], page["has_more"]
        assert seen == expected, limit
    assert ids(listed(client, after=gone)) == expected[6:], "a cursor need not exist any more"
    assert tasks(client, after=new_task_id()) == [one for one in expected if one.startswith("task_")]


def test_kinds_and_states_are_chosen_by_name(client: httpx.Client, ledger: Ledger, worker: LedgerWorker) -> None:
    done = submit(client)
    worker.work()
    cancelled = submit(client)
    client.post(f"/v1/tasks/{cancelled}/cancel")
    queued, batch_id, ended = submit(client), create_batch(client)["id"], create(client)["id"]
    end(ledger, ended)

    assert ids(listed(client, kind="task")) == tasks(client) == [queued, cancelled, done]
    assert ids(listed(client, kind="ingestion,batch")) == [ended, batch_id]
    assert ids(listed(client, status="completed")) == [ended, done]
    assert ids(listed(client, status="queued, validating")) == [batch_id, queued]
    assert ids(listed(client, kind="batch", status="queued")) == []
    assert tasks(client, status="completed") == [done]
    assert tasks(client, status="queued, cancelled") == [queued, cancelled]
    assert tasks(client, status=["queued", "completed"]) == [queued, done]
    assert tasks(client, status="") == [queued, cancelled, done]
    assert tasks(client, status="failed") == []


HOSTILE: tuple[dict[str, Any], ...] = (
    {"after": "x"}, {"after": "task_"}, {"after": "../../etc"}, {"after": "file-01a1fa1818cc7626bb9271b2af5733d5"},
    {"after": "(" * 4000}, {"after": "task_01A1FA1818CC7626BB9271B2AF5733D5"}, {"after": "+"}, {"limit": 0},
    {"limit": 101}, {"kind": "tasks"}, {"status": "done"}, {"status": "\u0000"}, {"status": "queued,Completed"},
)  # fmt: skip


def test_what_is_no_query_of_a_list_is_refused(client: httpx.Client) -> None:
    for query in HOSTILE:
        answer = client.get("/v1/jobs", params=query)
        assert code_of(answer) == (400, "invalid_value"), query
        assert answer.json()["error"]["param"] == next(iter(query))
    refused = client.get("/v1/tasks", params={"status": "done"})
    assert code_of(refused) == (400, "invalid_value")
    assert all(state in refused.json()["detail"] for state in State)


def test_calls_that_wait_and_deleted_tasks_are_not_listed(client: httpx.Client, worker: LedgerWorker) -> None:
    with worker.serving():
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200
    older, newer = submit(client), submit(client)
    client.delete(f"/v1/tasks/{newer}")
    assert tasks(client) == tasks(client, after=newer) == [older]


# ---- searches --------------------------------------------------------------------------------------------------------


async def answers(ledger: AsyncLedger) -> bool:
    with suppress(RedisUnavailable):
        await ledger.require_usable()
        return True
    return False


def cancelled(redis_url: str, after: str | None = None, *, limit: int = 20, **limits: Any) -> ListPage[Record]:
    """The page of cancelled jobs that so many looks at each kind find."""

    async def page() -> ListPage[Record]:
        ledger = AsyncLedger.connect(redis_url)
        try:
            kinds = {kind: ["cancelled"] for kind in KINDS}
            await eventually(partial(answers, ledger))  # a busy machine may take longer than the web tier waits
            return await read_jobs(ledger, ANONYMOUS, kinds, after, limit, **limits)
        finally:
            await ledger.close()

    return asyncio.run(page())


def test_a_rare_state_is_found_behind_many_others(client: httpx.Client, redis_url: str) -> None:
    oldest = submit(client)
    client.post(f"/v1/tasks/{oldest}/cancel")
    newer = [submit(client) for _ in range(6)][::-1]

    assert tasks(client, status="cancelled", limit=1) == [oldest]
    assert [one.id for one in cancelled(redis_url, limit=1, look=3).items] == [oldest]

    # A search that takes too long says where to go on.
    first = cancelled(redis_url, limit=1, look=3, max_calls=2)
    assert first == ListPage([], place_of(newer[-1]), more=True)
    assert id_at("task", first.until or "") == newer[-1]
    second = cancelled(redis_url, first.until, limit=1, look=3, max_calls=2)
    assert ([one.id for one in second.items], second.more) == ([oldest], False)


def test_where_one_kind_was_not_looked_through_older_ones_of_others_wait(
    client: httpx.Client, ledger: Ledger, redis_url: str
) -> None:
    oldest, batch_id = submit(client), create_batch(client)["id"]
    client.post(f"/v1/tasks/{oldest}/cancel")
    end(ledger, batch_id, JobStatus.CANCELLED)
    newer = [new_task_id() for _ in range(LOOK + 10)]
    for task_id in newer:
        ledger.run(store(new_task(task_id=task_id, queue="other", listed=True)))

    first = cancelled(redis_url, max_calls=1)
    second = cancelled(redis_url, first.until, max_calls=1)

    assert (first.items, first.more) == ([], True)
    assert first.until == place_of(newer[10])
    assert [record.id for record in second.items] == [batch_id, oldest]
    assert not second.more
    assert ids(listed(client, status="cancelled")) == [batch_id, oldest]


def test_a_page_costs_the_same_however_many_jobs_there_are(
    ledger: Ledger, redis_url: str, redis_client: redis.Redis
) -> None:
    async def page() -> None:
        reading = AsyncLedger.connect(redis_url)
        try:
            await read_jobs(reading, ANONYMOUS, KINDS, None, 20)
        finally:
            await reading.close()

    counted = []
    for number in (40, 800):
        for _ in range(number):
            ledger.run(store(new_task(task_id=new_task_id(), queue="other", listed=True)))
        counted.append(sum(commands(redis_client, lambda: asyncio.run(page())).values()))
    redis_client.flushall()  # to forget so many tasks one by one takes long
    assert counted[1] - counted[0] <= 20
