"""Memory for large bodies, answers and lists: within a budget, given back at the end of each; small ones go on."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
import redis

from api.request_limits import Held, ListTurns
from tasks.ledger.redis_keys import ANONYMOUS
from tasks.records.api_keys import environment_owner
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, ServedApp
from tests.processes import PATIENCE_S, wait_until

LARGE = {"input": ["x" * 150_000]}
KILOBYTES = 2**10
HEAD = (
    b"POST %b HTTP/1.1\r\nHost: localhost\r\nx-api-key: %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
)


@pytest.fixture
def app(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> Iterator[ServedApp]:
    app = serve()
    app.process.bodies.most = app.process.answers.most = 2**20
    yield app
    wait_until(lambda: app.process.bodies.number == 0, message="bodies are still counted")
    wait_until(lambda: app.process.answers.number == 0, message="answers are still counted")


def half_sent(app: ServedApp, path: bytes, size_bytes: int, key: str = "") -> socket.socket:
    """A connection over which a body comes that never ends, once the server has so much of it."""
    before = app.process.bodies.number
    connection = socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE_S)
    connection.sendall(HEAD % (path, key.encode()) + b"{" + b" " * (size_bytes - 1))
    wait_until(lambda: app.process.bodies.number >= before + size_bytes, message="it was not read")
    return connection


def test_what_uploads_have_in_memory_counts_too(app: ServedApp) -> None:
    head = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    with socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head + b"Content-Length: 10000000\r\n\r\n" + part + b"x" * 500 * KILOBYTES)
        wait_until(lambda: app.process.bodies.number >= 500 * KILOBYTES, message="it is not counted")
        connection.sendall(b"x" * 4 * 2**20)
        wait_until(lambda: app.process.bodies.number == 2**20, message="the rest is on the disk")
    wait_until(lambda: app.process.bodies.number == 0, message="it is still counted")


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/embeddings", "/embed", "/v1/batches", "/v1/ingestions"])
def test_bodies_too_many_are_refused_and_small_ones_are_not(app: ServedApp, path: str) -> None:
    with half_sent(app, path.encode(), 500 * KILOBYTES), half_sent(app, path.encode(), 500 * KILOBYTES):
        full = app.client.post("/v1/tasks", json=LARGE)
        small = app.client.post("/v1/tasks", json={"input": "one"})

    assert (full.status_code, full.json()["error"]["code"]) == (503, "overloaded")
    assert 1 <= int(full.headers["retry-after"]) <= 5
    assert small.status_code == 202
    wait_until(lambda: app.process.bodies.number == 0, message="the client has left, its body has not")
    assert app.client.post("/v1/tasks", json=LARGE).status_code == 202


def test_one_key_fills_half_of_the_budget(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    keys = ",".join(f"{name}:{sha256(name.encode()).hexdigest()}" for name in ("ann", "bob"))
    app = serve(api_keys=keys)
    app.process.bodies.most = 2**20
    with half_sent(app, b"/v1/tasks", 450 * KILOBYTES, "ann"):
        ann, bob = (app.client.post("/v1/tasks", json=LARGE, headers={"x-api-key": name}) for name in ("ann", "bob"))

    assert (ann.status_code, ann.json()["error"]["code"]) == (503, "overloaded")
    assert bob.status_code == 202
    wait_until(lambda: app.process.bodies.number == 0, message="bodies are still counted")
    assert app.client.post("/v1/tasks", json=LARGE, headers={"x-api-key": "ann"}).status_code == 202


def test_one_body_alone_may_be_larger_than_the_budget(app: ServedApp) -> None:
    assert app.client.post("/v1/tasks", json={"input": ["x" * 600_000] * 2}).status_code == 202


def test_what_was_refused_is_not_counted(app: ServedApp) -> None:
    for body in (b"{" * 300_000, b'{"input": 7, "user": "' + b"x" * 300_000 + b'"}'):
        answer = app.client.post("/v1/embeddings", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
    assert app.process.bodies.number == 0


def test_an_answer_is_counted_until_it_is_read(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    app = serve(max_inputs=65_536)
    app.process.answers.most = 2**22
    with worker.serving():
        path = app.client.post("/v1/tasks", json={"input": ["one"] * 65_536}).headers["location"]
        assert app.client.get(f"{path}?wait=20").json()["status"] == "completed"
    answers = app.process.answers
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", app.port))
        slow.sendall(f"GET {path}/result HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        wait_until(lambda: answers.number > 0, message="it is not counted")
        other = app.client.get(f"{path}/result")
        file = app.client.get(f"{path}/result", headers={"accept": "application/x-npy"})
        # As text, a vector of one megabyte has three.
        wait_until(lambda: answers.number == 3 * 2**20, message="it is counted otherwise")
        data = b"".join(iter(lambda: slow.recv(65_536), b""))
    wait_until(lambda: answers.number == 0, message="it is still counted")

    assert file.status_code == 200, "a file of one megabyte is held once"
    assert (other.status_code, other.json()["error"]["code"]) == (503, "overloaded")
    assert data.partition(b"\r\n\r\n")[2] == app.client.get(f"{path}/result").content


@pytest.mark.parametrize("kind", ["tasks", "jobs", "batches", "ingestions", "files", "datasets"])
def test_an_owner_who_reads_many_lists_waits_and_others_do_not(
    serve: Callable[..., ServedApp], kind: str, tmp_path: Path
) -> None:
    app, path = serve(api_keys=KEYS, datasets=str(tmp_path)), f"/v1/{kind}"
    turns = cast("ListTurns", app.app.state.list_turns).of(environment_owner("ann"))
    taking: list[asyncio.Task[bool]] = []
    app.call_in_loop(lambda: taking.extend(asyncio.get_running_loop().create_task(turns.acquire()) for _ in range(4)))
    wait_until(turns.locked, message="the turns were not taken")
    with ThreadPoolExecutor() as thread:
        anns = thread.submit(app.client.get, path, headers=ANN)
        assert app.client.get(path, headers=BOB).status_code == 200
        assert app.client.get(path, params={"limit": 10}, headers=ANN).status_code == 200, "it is a small one"
        assert not anns.done()
        app.call_in_loop(turns.release)
        assert anns.result().status_code == 200


def test_a_result_is_refused_before_it_is_read(app: ServedApp, worker: LedgerWorker, redis_client: redis.Redis) -> None:
    task = app.client.post("/v1/tasks", json={"input": ["one"] * 2000}).json()
    with worker.serving():
        assert app.client.get(f"/v1/tasks/{task['id']}?wait=20").json()["status"] == "completed"
    redis_client.set(f"eq:result:{task['id']}", "not a hash", ex=60)  # whoever reads it gets a 500

    with closing(Held(app.process.answers, ANONYMOUS)) as other:
        other.grow_to(2**20)  # all there is
        refused = app.client.get(f"/v1/tasks/{task['id']}/result")

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
