"""Bells that get lost or come twice, and messages in their place that are none."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tasks.ledger.redis_keys import DOCUMENTS
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until
from worker_config.celery_app import BELL_TASK, bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import send_bell

pytestmark = pytest.mark.faults

SECRET = "a text of somebody"
LISTS = ("", "\x06\x163", "\x06\x166", "\x06\x169")
"""Celery reads a list for each of four priorities."""


def message(says: bytes = b"[[], {}, {}]", /, **changed: Any) -> dict[str, Any]:
    """As Celery sends a bell."""
    return {
        "body": base64.b64encode(says).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": BELL_TASK, "id": "an-id", "argsrepr": "()", "kwargsrepr": "{}"},
        "properties": {"delivery_info": {"exchange": "", "routing_key": "x"}, "delivery_tag": "a-tag", "priority": 0}
        | {"body_encoding": "base64"},
    } | changed


NO_BELLS = [
    SECRET.encode(),
    b"",
    b"null",
    b"[]",
    b"1",
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'"' + SECRET.encode() * 1_000_000 + b'"',
    *(
        json.dumps(found).encode()
        for found in (
            message(body="a"),  # no base64
            message(body=7),
            message(properties=None),
            message(properties={}),
            message(properties={"delivery_tag": [1]}),
            message(properties=SECRET),
            message(headers=None),
            message(headers=[SECRET]),
            message(headers={"task": "os.system", "id": SECRET}),
            message(headers={"task": "celery.accumulate", "id": "x"}),
            message(headers={"task": ["x"]}),
            message(headers={"task": BELL_TASK, "compression": "application/x-gzip"}),
            message() | {"content-type": "application/evil\n" + SECRET},
            message() | {"content-type": "application/x-python-serialize", "content-encoding": "binary"},
            message() | {"content-encoding": "punycode"},
            message() | {"content-type": 3},
        )
    ),
]

ODD_BELLS = [
    json.dumps(found).encode()
    for found in (
        message(SECRET.encode()),
        message(body="%%%"),
        message(b"[[1, 2], {}, {}]"),
        message(b'[[], {}, {"callbacks": [{"task": "x", "args": [], "kwargs": {}, "options": {"queue": "pwn"}}]}]'),
        *(
            message(headers={"task": BELL_TASK, "id": "an-id"} | odd)
            for odd in (
                {"id": [1, 2]},
                {"id": SECRET * 100_000},
                {"eta": "2099-01-01T00:00:00+00:00"},
                {"eta": SECRET},
                {"expires": SECRET},
                {"timelimit": ["a", "b"]},
                {"timelimit": [0.001, 0.001]},
                {"stamped_headers": 7},
                {"retries": "many"},
            )
        ),
    )
]
"""Their name is right. Nothing else of a bell is read, so they ring."""


def test_a_lost_bell_is_noticed(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    queue = bell_queue(client.model)
    with api.client() as http:
        task = http.post("/v1/tasks", json={"input": "who hears this"}).raise_for_status().json()["id"]
    redis = client.ledger.client
    wait_until(lambda: redis.llen(queue), message="the bell")
    redis.delete(queue)
    private_roles.worker(**QUICK)
    client.completed(task)


def test_a_doubled_bell_is_harmless(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    queue = bell_queue(client.model)
    with api.client() as http:
        tasks = [http.post("/v1/tasks", json={"input": f"text {n}"}).raise_for_status().json()["id"] for n in range(20)]
    redis = client.ledger.client
    wait_until(lambda: redis.llen(queue), message="the bell")
    bell = redis.lindex(queue, 0)
    assert isinstance(bell, bytes)
    redis.lpush(queue, *[bell] * 10)
    private_roles.worker(**QUICK)
    for task in tasks:
        client.completed(task)
    wait_until(lambda: not redis.llen(queue), message="all bells heard")
    assert client.counter("committed_items") == len(tasks)


def test_a_message_that_is_no_bell_is_dropped_and_counted(
    private_roles: Roles, client: LedgerClient, private_redis: RedisServer
) -> None:
    broker = client.ledger.client
    # It lies there at the start, which once killed each worker that was started.
    broker.lpush(bell_queue(client.model), *NO_BELLS)
    broker.lpush(bell_queue(DOCUMENTS), *NO_BELLS)
    api = private_roles.api()
    workers = {client.model: private_roles.worker(**QUICK), DOCUMENTS: private_roles.documents(**QUICK)}
    children = {queue: worker.child_pid for queue, worker in workers.items()}
    for queue in workers:
        for each in LISTS:
            broker.lpush(bell_queue(queue) + each, *NO_BELLS)
        broker.lpush(bell_queue(queue), *ODD_BELLS)
    for queue, worker in workers.items():
        _wait_for_an_ear(private_redis, queue)
        assert (worker.running, worker.child_pid) == (True, children[queue])
        assert SECRET not in worker.log()
        assert "Traceback" not in worker.log()
        assert worker.log().count("no bell") == 1, "one warning a minute"
    with api.client() as http:
        counts = dict.fromkeys(workers, float(len(NO_BELLS) * (1 + len(LISTS))))
        wait_until(lambda: {queue: _dropped(http, queue) for queue in workers} == counts, message="the counts")
        assert http.post("/v1/embeddings", json={"input": "and on"}).status_code == httpx.codes.OK
    assert set(broker.keys("*pwn*")) == set()


def test_work_goes_on_while_somebody_poisons_the_bells(private_roles: Roles, client: LedgerClient) -> None:
    worker = private_roles.worker(**QUICK)
    child = worker.child_pid
    with _poisoned(client):
        for number in range(20):
            client.completed(client.submit([f"text {number}"]))
    assert (worker.running, worker.child_pid) == (True, child)


def test_a_consumer_that_ends_again_and_again_costs_bells_alone(
    private_roles: Roles, client: LedgerClient, private_redis: RedisServer
) -> None:
    worker = private_roles.worker(**QUICK)
    loaded = worker.child_pid
    bells = bell_queue(client.model)
    client.ledger.client.set(bells, "not a list")
    wait_until(lambda: "no bells from Redis" in worker.log(), message="the outage in the log")
    client.completed(client.submit(["meanwhile"]))
    assert (worker.running, worker.child_pid) == (True, loaded)
    assert "Traceback" not in worker.log()
    killed = worker.kill_child()
    client.completed(client.submit(["by a new child"]))
    child = worker.child_pid
    assert child != killed
    client.ledger.client.delete(bells)
    _wait_for_an_ear(private_redis, client.model)
    assert (worker.running, worker.child_pid) == (True, child)
    assert worker.log().count("no bells from Redis") == 1
    assert worker.stop() == 0


@contextmanager
def _poisoned(client: LedgerClient) -> Iterator[None]:
    """Meanwhile the list of bells is never without broken messages."""
    bells, done = bell_queue(client.model), threading.Event()

    def poison() -> None:
        while not done.is_set():
            client.ledger.client.lpush(bells, *[b"garbage"] * 20)

    thread = threading.Thread(target=poison)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _wait_for_an_ear(server: RedisServer, queue: str) -> None:
    """Returns when a bell is heard, after all that was in the list."""
    bells = bell_queue(queue)
    with server.client() as connection:
        wait_until(lambda: not any(connection.llen(bells + each) for each in LISTS), message="empty lists")
        celery = make_celery(load_settings(redis_url=server.url))
        send_bell(celery, queue)
        celery.close()
        wait_until(lambda: not connection.llen(bells), message="a bell is heard")


def _dropped(http: httpx.Client, queue: str) -> float:
    found = rf'^embedq_worker_dropped_bells_total{{model="{re.escape(queue)}",worker=".*"}} (\S+)$'
    return sum(map(float, re.findall(found, http.get("/metrics").text, re.MULTILINE)))
