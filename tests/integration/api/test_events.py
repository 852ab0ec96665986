"""`GET /v1/tasks/{task_id}/events`: server-sent events, read as they come."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
import redis

from api.waiting.hub import WaitingTimes
from stack.testing import PATIENCE_S, Roles, wait_until
from tasks.ledger.ids import new_task_id
from tests.integration.api.event_stream import Stream
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp

TEXTS = [f"text {number}" for number in range(150)]
"""Three units."""


@contextmanager
def follow(client: httpx.Client, task: dict[str, Any], **headers: str) -> Iterator[Stream]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with client.stream("GET", f"/v1/tasks/{task['id']}/events", headers=named) as response:
        assert response.status_code == 200, response.read()
        yield Stream(response)


def submit(client: httpx.Client, texts: Any = "x", **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = client.post("/v1/tasks", json={"input": texts, **fields}).json()
    return body


def nobody_waits(app: ServedApp) -> None:
    wait_until(lambda: not app.services.hub.waiting_requests, message="somebody still waits")


def test_the_present_state_then_each_change_up_to_the_end(
    app: ServedApp, client: httpx.Client, worker: LedgerWorker
) -> None:
    task = submit(client, TEXTS)
    with follow(client, task) as stream:
        assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.response.headers["cache-control"] == "no-store"
        first_id, first = stream.event()
        seen = [(first_id, first)]
        while not seen[-1][1]["finished_at"]:
            worker.work(max_units=1)
            while seen[-1][1]["counts"]["completed"] < client.get(task["links"]["self"]).json()["counts"]["completed"]:
                seen.append(stream.event())
        rest = list(stream.events())

    assert rest == []
    assert first == task
    assert first_id == '"1"'
    versions = [int(event_id.strip('"')) for event_id, _ in seen]
    assert versions == sorted(set(versions))
    last = client.get(task["links"]["self"])
    assert seen[-1][0] == last.headers["etag"]
    assert seen[-1][1]["status"] == "completed"
    assert {**seen[-1][1], "expires_at": None} == {**last.json(), "expires_at": None}
    assert [data["counts"]["completed"] for _, data in seen if data["counts"]["completed"]] == [64, 128, 150]
    nobody_waits(app)


def test_an_ended_task_has_one_event(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client)
    worker.work()

    with follow(client, task) as stream:
        assert [data["status"] for _, data in stream.events()] == ["completed"]


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_other_ends_are_told(client: httpx.Client, end: str) -> None:
    task = submit(client, **({"deadline_s": 0.2} if end == "expire" else {}))
    with follow(client, task) as stream:
        stream.event()
        if end == "cancel":
            client.post(task["links"]["cancel"])

        assert stream.event()[1]["status"] == {"cancel": "cancelled", "expire": "expired"}[end]
        assert list(stream.events()) == []


def test_a_deleted_task_ends_its_streams(app: ServedApp, client: httpx.Client) -> None:
    task = submit(client)
    with follow(client, task) as stream:
        stream.event()
        client.delete(task["links"]["self"])

        assert list(stream.events()) == []
    nobody_waits(app)


def test_a_state_that_the_client_has_is_left_out(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client)
    with follow(client, task, last_event_id='"1"') as stream:
        worker.work()

        assert stream.event()[0] != '"1"'


def test_another_state_than_the_client_has_is_told(client: httpx.Client) -> None:
    task = submit(client)
    with follow(client, task, last_event_id="something else") as stream:
        assert stream.event()[0] == '"1"'


def test_who_has_the_last_state_is_told_not_to_come_back(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client)
    worker.work()
    tag = client.get(task["links"]["self"]).headers["etag"]

    answer = client.get(f"/v1/tasks/{task['id']}/events", headers={"last-event-id": tag})

    assert answer.status_code == 204
    assert answer.content == b""


@pytest.mark.parametrize("times", [WaitingTimes(keep_alive_s=0.01)])
def test_while_nothing_happens_there_are_comments(client: httpx.Client) -> None:
    with follow(client, submit(client)) as stream:
        stream.event()

        assert stream.comment() == stream.comment() == ": still here"


def test_a_client_that_leaves_frees_everything(app: ServedApp, client: httpx.Client) -> None:
    with follow(client, submit(client)) as stream:
        stream.event()
        assert app.services.hub.waiting_requests == 1

    nobody_waits(app)


def test_a_follower_does_not_keep_a_task_alive(client: httpx.Client) -> None:
    task = submit(client, deadline_s=0.3)
    with follow(client, task) as stream:
        assert stream.event()[1]["deadline"] == task["deadline"]
        assert [data["status"] for _, data in stream.events()] == ["expired"]


def test_many_may_follow(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client)
    with follow(client, task) as one, follow(client, task) as two:
        assert one.event() == two.event()
        worker.work()

        assert list(one.events())[-1] == list(two.events())[-1]
    nobody_waits(app)


def evaluations(redis_client: redis.Redis) -> int:
    """Scripts that Redis has run."""
    return int(redis_client.info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.parametrize("times", [WaitingTimes(events_interval_s=60)])  # one reading at the start, one at the end
def test_fifty_followers_cost_one_reading_for_each_change(
    client: httpx.Client, worker: LedgerWorker, redis_client: redis.Redis
) -> None:
    task = submit(client, [f"text {number}" for number in range(64 * 20)])
    with ExitStack() as stack:
        many = stack.enter_context(httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, limits=httpx.Limits()))
        streams = [stack.enter_context(follow(many, task)) for _ in range(50)]
        for stream in streams:
            stream.event()
        before, commits = evaluations(redis_client), 0
        while worker.work(max_units=1):
            commits += 1
        last = [list(stream.events())[-1] for stream in streams]
        spent = evaluations(redis_client) - before

    assert commits >= 20
    assert {event_id for event_id, _ in last} == {client.get(task["links"]["self"]).headers["etag"]}
    # The worker claims and commits, the watchdog looks; followers who read for themselves need 50 calls at least.
    assert spent < 2 * (commits + 1) + 50


@pytest.mark.parametrize("times", [WaitingTimes(events_interval_s=60)])  # so that only the end is told at once
def test_a_follower_is_told_five_states_a_second_and_the_last(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client, TEXTS)
    with follow(client, task) as stream:
        stream.event()
        while worker.work(max_units=1):
            pass

        assert [data["status"] for _, data in stream.events()] == ["completed"]


def test_a_stream_counts_with_the_time_to_its_head(client: httpx.Client, worker: LedgerWorker) -> None:
    task = submit(client)
    with follow(client, task) as stream:
        stream.event()
        started_s = time.monotonic()
        wait_until(lambda: time.monotonic() - started_s > 0.3)
        worker.work()
        list(stream.events())
    series = 'embedq_http_request_seconds_sum{route="/v1/tasks/{task_id}/events"} '

    def latency() -> list[str]:
        return [line for line in client.get("/metrics").text.splitlines() if line.startswith(series)]

    wait_until(lambda: bool(latency()), message="the stream was not counted")
    assert float(latency()[0].removeprefix(series)) < 0.3


def test_tasks_that_are_not_held_or_not_ones_own(serve: Callable[..., ServedApp], client: httpx.Client) -> None:
    for task_id, status in [(new_task_id(), 404), ("task_nonsense", 404)]:
        answer = client.get(f"/v1/tasks/{task_id}/events")

        assert answer.status_code == status
        assert answer.json()["error"]["code"] == "task_not_found"


def test_a_stop_of_the_server_ends_streams_at_once(roles: Roles) -> None:
    api = roles.api()
    with (
        api.client() as client,
        follow(client, submit(client)) as stream,
        client.stream("GET", "/v1/service/events") as polled,
    ):
        service = Stream(polled)
        stream.event()
        service.named("service")
        api.send(15)

        assert list(stream.events()) == []
        assert len(service.names()) <= 2  # no time passes
    assert api.wait() == 0


def test_with_a_real_worker(roles: Roles) -> None:
    api, _ = roles.api(), roles.worker(fake_tokens_per_s=20_000)
    api.wait_ready()
    with api.client() as client:
        task = submit(client, [f"{number} " + "word " * 50 for number in range(400)], lane="bulk")
        with follow(client, task) as stream:
            seen = list(stream.events())

    assert seen[-1][1]["status"] == "completed"
    done = [data["counts"]["completed"] for _, data in seen]
    assert done == sorted(done)
    assert done[-1] == 400
