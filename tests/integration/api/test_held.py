"""Memory for bodies, answers and lists, and requests at once: within a budget, given back at the end of each."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import islice
from typing import cast

import httpx
import pytest
import redis
from starlette.datastructures import State

from api.app import create_app
from api.load_limits import ListTurns
from api.parts import running
from tasks.records.api_keys import environment_owner
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, ServedApp, code_of
from tests.processes import PATIENCE_S, wait_until
from worker_config.settings import load_settings

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


def test_bodies_too_many_are_refused_and_small_ones_are_not(app: ServedApp, serve: Callable[..., ServedApp]) -> None:
    for path in (b"/v1/tasks", b"/embed", b"/v1/ingestions"):
        with half_sent(app, path, 500 * KILOBYTES), half_sent(app, path, 500 * KILOBYTES):
            full = app.client.post("/v1/tasks", json=LARGE)
            small = app.client.post("/v1/tasks", json={"input": "one"})

        assert code_of(full) == (503, "overloaded")
        assert 1 <= int(full.headers["retry-after"]) <= 5
        assert small.status_code == 202
        wait_until(lambda: app.process.bodies.number == 0, message="the client has left, its body has not")
    assert app.client.post("/v1/tasks", json=LARGE).status_code == 202
    alone = {"input": ["x" * 600_000] * 2}  # one body alone may be larger than the budget
    assert app.client.post("/v1/tasks", json=alone).status_code == 202
    answer = app.client.post("/v1/embeddings", content=b"{" * 300_000, headers={"content-type": "application/json"})
    assert (answer.status_code, app.process.bodies.number) == (400, 0), "what was refused is not counted"

    keyed = serve(api_keys=KEYS)  # one key fills half of it
    keyed.process.bodies.most = 2**20
    with half_sent(keyed, b"/v1/tasks", 450 * KILOBYTES, "key of ann"):
        anns, bobs = (keyed.client.post("/v1/tasks", json=LARGE, headers=who) for who in (ANN, BOB))
    assert (code_of(anns), bobs.status_code) == ((503, "overloaded"), 202)
    wait_until(lambda: keyed.process.bodies.number == 0, message="bodies are still counted")
    assert keyed.client.post("/v1/tasks", json=LARGE, headers=ANN).status_code == 202


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
    assert code_of(other) == (503, "overloaded")
    assert data.partition(b"\r\n\r\n")[2] == app.client.get(f"{path}/result").content


def test_an_owner_who_reads_many_lists_waits_and_others_do_not(serve: Callable[..., ServedApp]) -> None:
    app = serve(api_keys=KEYS)
    turns = cast("ListTurns", app.app.state.list_turns).of(environment_owner("ann"))
    for kind in ("tasks", "jobs", "batches", "ingestions", "files", "datasets"):
        path, taking = f"/v1/{kind}", list[asyncio.Task[bool]]()
        take = lambda taking=taking: taking.extend(asyncio.create_task(turns.acquire()) for _ in range(4))  # noqa: E731
        app.call_in_loop(take)
        wait_until(turns.locked, message="the turns were not taken")
        with ThreadPoolExecutor() as thread:
            anns = thread.submit(app.client.get, path, headers=ANN)
            assert app.client.get(path, headers=BOB).status_code == 200
            assert app.client.get(path, params={"limit": 10}, headers=ANN).status_code == 200, "it is a small one"
            assert not anns.done()
            for _ in range(4):
                app.call_in_loop(turns.release)
            assert anns.result().status_code == 200


# ---- more requests at once than a process can handle -----------------------------------------------------------------

CALLS = 24  # few, because all are refused within the second that a call waits for Redis
ROOM = 6


@asynccontextmanager
async def in_this_loop(redis_url: str) -> AsyncIterator[tuple[httpx.AsyncClient, State]]:
    """An app without a socket, so that all requests are there at once."""
    app = create_app(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL))
    async with (
        running(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client,
    ):
        yield client, app.state


async def test_a_crowd_is_cut_to_what_can_be_handled(redis_url: str, redis_client: redis.Redis) -> None:
    async with in_this_loop(redis_url) as (client, services):
        services.in_flight.most = ROOM
        assert (await client.post("/v1/tasks", json={"input": "the first"})).status_code == 202
        redis_client.client_pause(20_000, all=False)
        calls = [asyncio.create_task(client.post("/v1/tasks", json={"input": f"x{i}"})) for i in range(CALLS)]
        turned_away = [await call for call in islice(asyncio.as_completed(calls), CALLS - ROOM)]
        redis_client.client_unpause()
        answers = [await call for call in calls]

    assert Counter(a.status_code for a in answers) == {202: ROOM, 503: CALLS - ROOM}
    assert {a.json()["error"]["code"] for a in turned_away} == {"overloaded"}
    assert len({a.headers["retry-after"] for a in turned_away}) > 1
    assert len(list(redis_client.scan_iter("eq:task:*"))) == ROOM + 1


def test_who_is_turned_away_is_not_read(serve: Callable[..., ServedApp]) -> None:
    app = serve()
    app.process.in_flight.most = 0
    for path, status in (("/v1/tasks", b"503"), ("/v1/embeddings", b"503"), ("/embed", b"429")):
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", app.port)) as connection:
            connection.sendall(f"{head}content-length: 1000\r\n\r\n".encode())  # and nothing of the body
            assert connection.recv(12) == b"HTTP/1.1 " + status
