"""Bells that get lost or come twice, and messages in their place that are none."""

import base64
import json
import re
import threading
from typing import Any

import httpx
import pytest

from tasks.ledger.redis_keys import DOCUMENTS
from tests.faults.conftest import QUICK, ring
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until
from worker_config.celery_app import BELL_TASK, bell_queue

pytestmark = pytest.mark.faults

SECRET = "a text of somebody"


def lists(queue: str) -> list[str]:
    """Celery reads a list for each of four priorities."""
    return [f"{bell_queue(queue)}{each}" for each in ("", "\x06\x163", "\x06\x166", "\x06\x169")]


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


_CHANGES: list[dict[str, Any]] = [
    *({"body": each} for each in ("a", 7)),  # the first is no base64
    *({"properties": each} for each in (None, {}, {"delivery_tag": [1]}, SECRET)),
    *({"headers": each} for each in (None, [SECRET], {"task": BELL_TASK, "compression": "application/x-gzip"})),
    *({"headers": {"task": each, "id": SECRET}} for each in ("os.system", "celery.accumulate", ["x"])),
    *({"content-type": each} for each in ("application/evil\n" + SECRET, 3, "application/x-python-serialize")),
    {"content-encoding": "punycode"},
]
NO_BELLS = [
    *(SECRET.encode(), b"", b"null", b"[]", b"1", b"{}", b"\xff\xfe", b"[" * 100_000),
    b'"' + SECRET.encode() * 1_000_000 + b'"',
    *(json.dumps(message(**changed)).encode() for changed in _CHANGES),
]

ODD_HEADERS = {
    "id": ([1, 2], SECRET * 100_000),
    "eta": ("2099-01-01T00:00:00+00:00", SECRET),
    "expires": (SECRET,),
    "timelimit": (["a", "b"], [0.001, 0.001]),
    "stamped_headers": (7,),
    "retries": ("many",),
}
PWN = b'[[], {}, {"callbacks": [{"task": "x", "args": [], "kwargs": {}, "options": {"queue": "pwn"}}]}]'
ODD_BELLS = [
    *(json.dumps(message(body)).encode() for body in (SECRET.encode(), b"[[1, 2], {}, {}]", PWN)),
    json.dumps(message(body="%%%")).encode(),
    *(
        json.dumps(message(headers={"task": BELL_TASK, "id": "an-id", name: value})).encode()
        for name, values in ODD_HEADERS.items()
        for value in values
    ),
]
"""Their name is right. Nothing else of a bell is read, so they ring."""


def test_lost_and_doubled_bells(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    bells, broker = bell_queue(client.model), client.ledger.client
    with api.client() as http:

        def submit(text: str) -> str:
            return str(http.post("/v1/tasks", json={"input": text}).raise_for_status().json()["id"])

        unheard = submit("who hears this")
        wait_until(lambda: broker.llen(bells), message="the bell")
        bell = broker.lindex(bells, 0)
        assert isinstance(bell, bytes)
        broker.delete(bells)
        private_roles.worker(**QUICK)
        client.completed(unheard)
        broker.lpush(bells, *[bell] * 10)
        tasks = [submit(f"text {n}") for n in range(20)]
    for task in tasks:
        client.completed(task)
    wait_until(lambda: not broker.llen(bells), message="all bells heard")
    assert client.counter("committed_items") == 1 + len(tasks)


def test_what_is_no_bell_is_dropped_and_counted_and_work_goes_on(
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
        for each in lists(queue):
            broker.lpush(each, *NO_BELLS)
        broker.lpush(bell_queue(queue), *ODD_BELLS)
    with api.client() as http:
        counts = dict.fromkeys(workers, float(len(NO_BELLS) * 5))
        wait_until(lambda: {queue: _dropped(http, queue) for queue in workers} == counts, message="the counts")
    for queue, worker in workers.items():
        ring(private_redis, queue)
        assert (worker.running, worker.child_pid) == (True, children[queue])
        assert not re.search(f"{SECRET}|Traceback", worker.log())
        assert worker.log().count("no bell") == 1, "one warning a minute"
    assert set(broker.keys("*pwn*")) == set()
    done = threading.Event()

    def poison() -> None:
        while not done.is_set():
            broker.lpush(bell_queue(client.model), *[b"garbage"] * 20)

    thread = threading.Thread(target=poison)
    thread.start()
    try:
        for number in range(20):
            client.completed(client.submit([f"text {number}"]))
    finally:
        done.set()
        thread.join()
    assert workers[client.model].child_pid == children[client.model]


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
    ring(private_redis, client.model)
    assert (worker.running, worker.child_pid) == (True, child)
    assert worker.log().count("no bells from Redis") == 1
    assert worker.stop() == 0


def _dropped(http: httpx.Client, queue: str) -> float:
    found = rf'^embedq_worker_dropped_bells_total{{model="{re.escape(queue)}",worker=".*"}} (\S+)$'
    return sum(map(float, re.findall(found, http.get("/metrics").text, re.MULTILINE)))
