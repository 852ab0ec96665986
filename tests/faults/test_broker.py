"""Bells over a broker of their own: it is away, comes, breaks, goes silent and dies, and no work waits for it."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import amqp
import httpx
import pytest

from stack.link import Link
from stack.testing import Roles, WorkerProcess, free_port, wait_until
from tasks.ledger import Lane
from tasks.process.run_files import RunFiles
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.rabbitmq_server import RabbitMQServer, find_program
from worker_config.celery_app import DRAIN_TASK, bell_queue

pytestmark = pytest.mark.faults

NO_HEARTBEAT = QUICK | {"heartbeat_s": 59, "lease_s": 60, "fake_tokens_per_s": 20_000}
"""Within this test: an idle worker begins a slice because somebody has woken it, and for no other reason."""

_KIND = {"content_type": "application/json", "content_encoding": "utf-8"}
NO_BELLS = [
    amqp.Message("garbage"),
    amqp.Message("[[], {}, {}]", application_headers={"task": "os.system", "id": "x"}, **_KIND),
    amqp.Message("x", application_headers={"task": DRAIN_TASK, "compression": "application/x-gzip"}, **_KIND),
    amqp.Message("x", application_headers={"task": DRAIN_TASK}, content_type="application/x-python-serialize"),
]


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[RabbitMQServer]:
    """One that is not started yet."""
    program = find_program()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("no RabbitMQ")
        pytest.skip("no RabbitMQ: apt-get install rabbitmq-server")
    server = RabbitMQServer(tmp_path / "rabbitmq", program)
    yield server
    server.remove()


def test_work_goes_on_whatever_becomes_of_the_broker(
    rabbitmq: RabbitMQServer, private_roles: Roles, client: LedgerClient
) -> None:
    bells = bell_queue(client.model)
    with Link(free_port()) as link:
        url = rabbitmq.url(link.port)
        api, worker = private_roles.api(broker_url=url), private_roles.worker(broker_url=url, **NO_HEARTBEAT)
        child = worker.child_pid
        with api.client() as http:
            _embed(http, worker, "the broker is away")

            rabbitmq.start()
            link.target = rabbitmq.port
            _wait_for_consumer(rabbitmq, bells)
            before = _bells_sent(http)
            wait_until(lambda: _embed(http, worker, "a bell") and _bells_sent(http) > before, message="a bell")

            for message in NO_BELLS:
                rabbitmq.publish(bells, message)
                wait_until(lambda: rabbitmq.state(bells)[0] == 0, message="a message that was taken")
            wait_until(lambda: RunFiles(worker.run_dir).dropped_bells() == len(NO_BELLS), message="they are counted")
            assert worker.log().count("no bell") == 1, "one warning a minute"
            _embed(http, worker, "after messages that are no bells")

            link.silence()
            _embed(http, worker, "connections are half-open")
            wait_until(lambda: worker.log().count(" fails (") >= 1, message="the parent notices")
            _wait_for_consumer(rabbitmq, bells)

            link.cut()
            _embed(http, worker, "connections broke")
            _wait_for_consumer(rabbitmq, bells)

            _outlives_a_refusal(private_roles, url)

            os.kill(worker.pid, signal.SIGSTOP)
            os.kill(child, signal.SIGSTOP)
            tasks = [http.post("/v1/tasks", json={"input": f"text {n}"}).json()["id"] for n in range(20)]
            wait_until(lambda: client.counter("rings") and rabbitmq.state(bells)[0], message="a bell that waits")
            rings = client.counter("rings")
            wait_until(lambda: client.counter("rings") >= rings + 2, message="more bells")
            assert rabbitmq.state(bells)[0] == 1, "bells pile up"
            os.kill(child, signal.SIGCONT)
            os.kill(worker.pid, signal.SIGCONT)

            tasks.append(client.submit([f"{n} " + "word " * 50 for n in range(200)], lane=Lane.BULK))
            rabbitmq.kill()
            for task in tasks:
                client.completed(task)
            _embed(http, worker, "the broker is dead")
        assert (worker.running, worker.child_pid) == (True, child)
        assert "Traceback" not in worker.log() + api.log()
        assert "CRITICAL" not in worker.log()


def _embed(http: httpx.Client, worker: WorkerProcess, text: str) -> bool:
    answer = http.post("/v1/embeddings", json={"input": text})
    assert answer.status_code == httpx.codes.OK, (text, answer.text, worker.log())
    return True


def _outlives_a_refusal(roles: Roles, url: str) -> None:
    """A broker that answers and lets nobody in is waited for as well, and its log stays short."""
    worker = roles.worker(broker_url=url.replace("guest:guest", "guest:wrong"), **NO_HEARTBEAT)
    alive = worker.run_dir / "alive"
    wait_until(lambda: " fails (AccessRefused)" in worker.log(), message="the refusal in the log")
    before = alive.stat().st_mtime_ns
    wait_until(lambda: alive.stat().st_mtime_ns > before, message="a parent that does not hang")
    assert "Cannot connect" not in worker.log()
    assert "CRITICAL" not in worker.log()
    worker.stop()


def _bells_sent(http: httpx.Client) -> float:
    found = re.findall(r"^embedq_bells_total\{.*\} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return sum(map(float, found))


def _wait_for_consumer(broker: RabbitMQServer, bells: str) -> None:
    wait_until(lambda: broker.state(bells)[1] == 1, message="the worker's parent at the broker")
