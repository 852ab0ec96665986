"""`GET /v1/tasks`: pages of the caller's own tasks."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import httpx
import pytest

from api.paging import ListPage
from api.schemas.answer_parts import Page
from api.schemas.tasks import Task as TaskObject
from api.services.jobs import id_at, place_of, read_jobs
from tasks.ledger.client import AsyncLedger
from tasks.ledger.ids import new_task_id
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.ledger.task import State
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp


def submit(client: httpx.Client, count: int = 1, **headers: str) -> list[str]:
    """Ids of new tasks, newest first."""
    answers = [client.post("/v1/tasks", json={"input": "x"}, headers=headers) for _ in range(count)]
    return [answer.json()["id"] for answer in answers][::-1]


def listed(client: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/v1/tasks", params=query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ids(body: dict[str, Any]) -> list[str]:
    return [task["id"] for task in body["data"]]


def test_an_empty_list(client: httpx.Client) -> None:
    answer = client.get("/v1/tasks/")

    assert answer.json() == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert answer.headers["cache-control"] == "no-store"


def test_tasks_are_listed_as_they_are_read_newest_first(client: httpx.Client, worker: LedgerWorker) -> None:
    client.post("/v1/tasks", json={"input": ["a", "b"], "metadata": {"job": "7"}, "lane": "bulk"})
    worker.work()
    submit(client)

    body = listed(client)

    assert body["data"] == [client.get(f"/v1/tasks/{task_id}").json() for task_id in ids(body)]
    assert [task["status"] for task in body["data"]] == ["queued", "completed"]
    assert (body["first_id"], body["last_id"]) == (ids(body)[0], ids(body)[1])
    assert not body["has_more"]


def test_pages_by_cursor(client: httpx.Client) -> None:
    expected = submit(client, 25)

    first = listed(client)
    second = listed(client, after=first["last_id"])
    third = listed(client, after=second["last_id"], limit=100)

    assert ids(first) == expected[:20]
    assert first["has_more"]
    assert ids(second) == expected[20:]
    assert not second["has_more"]
    assert third == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


def test_states_are_chosen_by_name(client: httpx.Client, worker: LedgerWorker) -> None:
    [done] = submit(client)
    worker.work()
    [cancelled] = submit(client)
    client.post(f"/v1/tasks/{cancelled}/cancel")
    [queued] = submit(client)

    assert ids(listed(client, status="completed")) == [done]
    assert ids(listed(client, status="queued, cancelled")) == [queued, cancelled]
    assert ids(listed(client, status=["queued", "completed"])) == [queued, done]
    assert ids(listed(client, status="", after="", limit="")) == [queued, cancelled, done]
    assert listed(client, status="failed")["data"] == []


async def cancelled(redis_url: str, after: str | None = None, **limits: Any) -> ListPage[Any]:
    """A page of one cancelled task, read three entries at a time; its end is a place."""
    ledger = AsyncLedger.connect(redis_url)
    try:
        return await read_jobs(ledger, ANONYMOUS, {"task": [State.CANCELLED]}, after, 1, look=3, **limits)
    finally:
        await ledger.close()


def test_a_rare_state_is_found_behind_many_others(client: httpx.Client, redis_url: str) -> None:
    [oldest] = submit(client)
    client.post(f"/v1/tasks/{oldest}/cancel")
    submit(client, 10)

    assert [task.id for task in asyncio.run(cancelled(redis_url)).items] == [oldest]
    assert ids(listed(client, status="cancelled", limit=1)) == [oldest]


def test_a_search_that_takes_too_long_says_where_to_go_on(client: httpx.Client, redis_url: str) -> None:
    [oldest] = submit(client)
    client.post(f"/v1/tasks/{oldest}/cancel")
    newer = submit(client, 6)

    first = asyncio.run(cancelled(redis_url, max_calls=2))
    second = asyncio.run(cancelled(redis_url, first.until, max_calls=2))

    assert first == ListPage([], place_of(newer[-1]), more=True)
    assert Page[TaskObject].of([], more=first.more, until=id_at("task", first.until or "")).model_dump() == {
        "object": "list", "data": [], "first_id": None, "last_id": newer[-1], "has_more": True
    }  # fmt: skip
    assert [task.id for task in second.items] == [oldest]
    assert not second.more


def test_synchronous_calls_are_not_listed(client: httpx.Client, worker: LedgerWorker) -> None:
    with worker.serving():
        assert client.post("/v1/embeddings", json={"input": "a"}).status_code == 200

    assert ids(listed(client)) == []


def test_a_deleted_task_is_not_listed(client: httpx.Client) -> None:
    newer, older = submit(client, 2)
    client.delete(f"/v1/tasks/{newer}")

    assert ids(listed(client)) == [older]
    assert ids(listed(client, after=newer)) == [older]


def test_nobody_sees_the_tasks_of_others(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=",".join(f"{name}:{sha256(name.encode()).hexdigest()}" for name in ("alice", "bob"))).client
    alices = submit(client, 2, authorization="Bearer alice")
    bobs = submit(client, 1, authorization="Bearer bob")

    def of(name: str, **query: str) -> list[str]:
        return ids(client.get("/v1/tasks", params=query, headers={"authorization": f"Bearer {name}"}).json())

    assert of("alice") == alices
    assert of("bob") == bobs
    assert of("alice", after=bobs[0]) == alices  # an id is a place in time, whosoever it is
    assert client.get("/v1/tasks").status_code == 401


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"status": "done"}, "status"),
        ({"status": "queued,Completed"}, "status"),
        ({"after": "task_nonsense"}, "after"),
        ({"after": "["}, "after"),
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "1.5"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "0" * 20}, "limit"),
        ({"limit": "000000001999999"}, "limit"),
        ({"limit": "0" * 8 + "1" + "0" * 5000}, "limit"),
    ],
)
def test_queries_that_make_no_sense(client: httpx.Client, query: dict[str, str], param: str) -> None:
    answer = client.get("/v1/tasks", params=query)

    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["error"]["code"] == "invalid_value"
    assert answer.json()["error"]["param"] == param
    if param == "status":
        assert all(state in answer.json()["detail"] for state in State)


def test_an_id_that_nobody_has_is_a_place_in_time(client: httpx.Client) -> None:
    old = submit(client, 2)
    between = new_task_id()
    submit(client)

    assert ids(listed(client, after=between)) == old
