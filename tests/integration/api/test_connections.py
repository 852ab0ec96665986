"""What a peer may send, for how long, and how much of the memory it may take; a crowd, and one that means harm."""

import asyncio
import contextlib
import json
import logging
import resource
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import cast

import httpx
import psutil
import pytest

from api import head_and_body_limits
from api.__main__ import affordable_connections
from api.load_limits import ListTurns
from api.log_tally import Tally
from tasks.records.api_keys import environment_owner
from tests.integration.api.served import ANN, BOB, KEYS, Serve, ServedApp, code_of
from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

HOST = b"Host: localhost\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\n" + HOST
CLOSE = b"Connection: close\r\n\r\n"
JSON = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
IMPATIENT = {"head": 0.2, "body": 0.2}
PATIENT = {"head": 1000.0, "body": 1000.0}
TEXT = b'{"input":"one"}'


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has logged nothing within the last minute."""
    monkeypatch.setattr(head_and_body_limits, "_ended", Tally(logging.getLogger(), "connections were ended"))


@contextmanager
def connected(app: ServedApp) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE_S) as connection:
        yield connection


def answers(connection: socket.socket, data: bytes = b"") -> list[tuple[int, bytes]]:
    """Status and body of all answers until the server closes the connection; `data` came before. Each has an id."""
    try:
        while piece := connection.recv(65_536):
            data += piece
    except ConnectionResetError:
        pass
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
        assert head.count(b"\r\nx-request-id: ") == 1
        found.append((int(head.split()[1]), data[:length]))
        data = data[length:]
    return found


def sent(connection: socket.socket, *pieces: bytes) -> bool:
    """Sends one piece after the other; whether the server took them all."""
    try:
        for piece in pieces:
            connection.sendall(piece)
    except OSError:
        return False
    return True


LONG, MANY, LINE = b"X: " + b"y" * 70_000, b"X: y\r\n" * 129, b"GET /" + b"y" * 70_000
PADDED = TEXT[:-1] + b" " * 20_000 + b"}"
TINY = b"".join(b"1\r\n%c\r\n" % byte for byte in PADDED)
BODY = TEXT[:-1] + b" " * 100_000 + b"}"
WITH_BODY = JSON + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
UPGRADES = JSON + b"Content-Length: %d\r\n" % len(TEXT) + UPGRADE + b"\r\n" + TEXT + LIVE + UPGRADE + b"\r\n"
UPGRADES += LIVE + CLOSE
SENT: list[tuple[Sequence[bytes], list[int], str]] = [
    # Heads that are too large, also behind a request, and what a chunked body has beside its data.
    ([LIVE + LONG], [431], "head_too_large"),
    ([LIVE + MANY], [431], "head_too_large"),
    ([LINE], [431], "head_too_large"),
    ([LIVE + LONG + b"\r\n\r\n"], [431], "head_too_large"),
    ([LIVE + MANY + b"\r\n"], [431], "head_too_large"),
    ([LINE + b" HTTP/1.1\r\n" + HOST + b"\r\n"], [431], "head_too_large"),
    ([LIVE + b"\r\n" + LIVE + b"X: ", *[b"y" * 100_000] * 3], [200, 431], ""),
    ([LIVE + b"\r\n" + LIVE + MANY, b"\r\n"], [200, 431], ""),
    ([CHUNKED, b"f\r\n" + TEXT + b"\r\n", b"0\r\nX: " + b"y" * 70_000], [400], "invalid_http"),
    ([CHUNKED, b"f\r\n" + TEXT + b"\r\n", b"0\r\n" + b"X: y\r\n" * 12_000], [400], "invalid_http"),
    ([CHUNKED, b"f\r\n" + TEXT + b"\r\n", b"5;" + b"x" * 70_000], [400], "invalid_http"),
    ([CHUNKED[:-2] + CLOSE, TINY, b"0\r\n\r\n"], [202], ""),
    # One host.
    ([b"GET / HTTP/1.1\r\n" + CLOSE], [400], ""),
    ([b"GET / HTTP/1.1\r\n" + HOST * 2 + CLOSE], [400], ""),
    ([b"GET / HTTP/1.0\r\n" + CLOSE], [200], ""),
    ([b"GET / HTTP/1.0\r\n" + HOST + b"Host: b\r\n" + CLOSE], [400], ""),
    # Several requests without waiting, with large heads and bodies within the limits; an upgrade is not made.
    ([LIVE + b"X: y\r\n" * 100 + b"Y: " + b"y" * 60_000 + b"\r\n\r\n" + LIVE + CLOSE], [200, 200], ""),
    ([WITH_BODY * 2 + (LIVE + b"\r\n") * 50 + LIVE + CLOSE], [202, 202] + [200] * 51, ""),
    ([UPGRADES], [202, 200, 200], ""),
    ([UPGRADES[at : at + 60] for at in range(0, len(UPGRADES), 60)], [202, 200, 200], ""),
    # What is no request.
    ([b"\x16\x03\x01 hello\r\n\r\n"], [400], "invalid_http"),
    ([b"GET / HTPP/1.1\r\n\r\n"], [400], "invalid_http"),
    ([b"GET\r\n\r\n"], [400], "invalid_http"),
]
"""What comes over a connection, the status of each answer, and the code of the last."""


def test_a_request_has_limits_and_one_host_and_what_is_none_is_told_so(
    app: ServedApp, caplog: pytest.LogCaptureFixture
) -> None:
    for pieces, statuses, code in SENT:
        with connected(app) as connection:
            sent(connection, *pieces)
            found = answers(connection)
        assert [status for status, _ in found] == statuses, pieces[0][:200]
        assert not code or json.loads(found[-1][1])["error"]["code"] == code, pieces[0][:200]
    assert len(caplog.records) == 1


def test_a_request_that_never_comes_is_not_waited_for(worker: object, serve: Serve) -> None:
    app = serve(limits_s=IMPATIENT)
    begun = {b"": [], LIVE: [408], CHUNKED + b"5\r\n": [408], LIVE + b"\r\n" + LIVE: [200, 408]}
    with ExitStack() as stack:
        waiting = {data: stack.enter_context(connected(app)) for data in begun}
        for data, connection in waiting.items():
            sent(connection, data)
        for data, connection in waiting.items():
            assert [status for status, _ in answers(connection)] == begun[data]
    with connected(app) as connection:  # a body that goes on after its refusal
        sent(connection, CHUNKED.replace(b"/v1/tasks", b"/v1/nothing"))
        connection.settimeout(0.05)
        wait_until(lambda: not sent(connection, b"5\r\nabcde\r\n"), message="the body was read on and on")

    # Who waits for an answer or between two requests is left alone, also with empty lines.
    location = app.client.post("/v1/tasks", json={"input": "one"}).headers["location"]
    with connected(app) as idle:
        sent(idle, LIVE + b"\r\n")
        first = idle.recv(65_536)
        sent(idle, b"\r\n")
        assert app.client.get(location, params={"wait": 1}).status_code == 200  # five times as long as a head may take
        sent(idle, b"\r\n" + LIVE + CLOSE)
        assert [status for status, _ in answers(idle, first)] == [200, 200]


# ---- number ----------------------------------------------------------------------------------------------------------


def test_connections_too_many_are_told_so_and_others_go_on(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    app = serve(limits_s=PATIENT, max_connections=16)
    with ExitStack() as stack:
        served = [stack.enter_context(connected(app)) for _ in range(16)]
        for one in served:
            sent(one, LIVE + b"\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            with connected(app) as more:
                [(status, body)] = answers(more)
                assert (status, json.loads(body)["error"]["code"]) == (503, "overloaded")
        for one in served:
            sent(one, LIVE + CLOSE)
            assert [status for status, _ in answers(one)] == [200]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "EMBEDQ_MAX_CONNECTIONS" in line


def test_no_more_connections_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: limits)
    for soft, hard, expected in ((64, 64, 48), (64, 1000, 600), (1000, 1000, 600)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        assert affordable_connections(600) == expected


# ---- memory for bodies, answers and lists, and requests at once ------------------------------------------------------

LARGE = {"input": ["x" * 150_000]}
KIB = 2**10


def half_sent(app: ServedApp, path: bytes, size_bytes: int, key: bytes = b"") -> socket.socket:
    """A connection over which a body comes that never ends, once the server has so much of it."""
    before = app.process.bodies.number
    connection = socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE_S)
    head = JSON.replace(b"/v1/tasks", path) + b"x-api-key: %b\r\nContent-Length: 1000000\r\n\r\n" % key
    connection.sendall(head + b"{" + b" " * (size_bytes - 1))
    wait_until(lambda: app.process.bodies.number >= before + size_bytes, message="it was not read")
    return connection


def given_back(app: ServedApp) -> None:
    """Returns when no body and no answer is counted."""
    wait_until(lambda: app.process.bodies.number == app.process.answers.number == 0, message="it is still counted")


def test_bodies_too_many_are_refused_and_small_ones_are_not(app: ServedApp, serve: Serve) -> None:
    keyed = serve(api_keys=KEYS)
    app.process.bodies.most = keyed.process.bodies.most = 2**20
    for path in (b"/v1/tasks", b"/embed", b"/v1/ingestions"):
        with half_sent(app, path, 500 * KIB), half_sent(app, path, 500 * KIB):
            full = app.client.post("/v1/tasks", json=LARGE)
            assert app.client.post("/v1/tasks", json={"input": "one"}).status_code == 202
        assert code_of(full) == (503, "overloaded")
        assert 1 <= int(full.headers["retry-after"]) <= 5
        given_back(app)  # the client has left, and its body too
    for taken in (LARGE, {"input": ["x" * 600_000] * 2}):  # one body alone may be larger than the budget
        assert app.client.post("/v1/tasks", json=taken).status_code == 202
    with half_sent(keyed, b"/v1/tasks", 450 * KIB, b"key of ann"):  # one key fills half of it
        anns, bobs = (keyed.client.post("/v1/tasks", json=LARGE, headers=who) for who in (ANN, BOB))
    assert (code_of(anns), bobs.status_code) == ((503, "overloaded"), 202)
    given_back(keyed)

    with connected(app) as connection:  # an upload: the rest is on the disk
        connection.sendall(b"POST /v1/files HTTP/1.1\r\n" + HOST + b"Content-Type: multipart/form-data; boundary=b\r\n")
        connection.sendall(b"Content-Length: 10000000\r\n\r\n--b\r\n")
        connection.sendall(b'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + b"x" * 5 * 2**20)
        wait_until(lambda: app.process.bodies.number == 2**20, message="it is not counted")
    given_back(app)


def test_an_owner_who_reads_many_lists_waits_and_others_do_not(serve: Serve) -> None:
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


def test_who_is_turned_away_is_not_read_and_is_told_when_to_come_back(serve: Serve) -> None:
    app = serve()
    app.process.in_flight.most = 0
    refused = [app.client.post("/v1/tasks", json={"input": "x"}) for _ in range(10)]
    assert {code_of(one) for one in refused} == {(503, "overloaded")}
    assert len({one.headers["retry-after"] for one in refused}) > 1
    for path, status in ((b"/v1/embeddings", b"503"), (b"/embed", b"429")):
        with connected(app) as connection:
            connection.sendall(JSON.replace(b"/v1/tasks", path) + b"Content-Length: 1000\r\n\r\n")  # and no body
            assert connection.recv(12) == b"HTTP/1.1 " + status


# ---- harm ------------------------------------------------------------------------------------------------------------
CONNECTIONS = 100
MOST_BYTES = 400_000
"""Of memory for one of them: what protocol and event loop keep of it, and its part of the bodies that are held."""
BODY_BYTES = 2_000_000
"""The largest body that is taken. A few of them are held, and the others refused."""
POST = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
OPENAPI = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
BEGUN = POST + b"Content-Length: %d\r\n\r\n" % BODY_BYTES
ATTACKS = {
    "silent": b"",
    "slow head": POST + b"X: " + b"y" * 60_000,
    "head without end": POST + b"X: " + b"y" * 1_000_000,
    "fields without end": POST + b"a:\r\n" * 250_000,
    "more fields than there may be": POST + b"a:\r\n" * 15_000 + b"Content-Length: 15\r\n\r\n",
    "many fields and no body": POST + b"a:\r\n" * 120 + b"Content-Length: 15\r\n\r\n",
    "slow body": BEGUN + b"x" * (BODY_BYTES // 2),
    "one chunk at a time": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200,
    "trailers without end": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 200_000,
    "requests without end": (OPENAPI + b"\r\n") * 500,
    "answers that nobody reads": (OPENAPI + b"\r\n") * 3,
}


def attack_of(port: int, data: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.settimeout(0.001)
    with contextlib.suppress(OSError):
        connection.sendall(data)
    connection.settimeout(0)
    return connection


def test_memory_stays_bounded_and_the_service_answers(roles: Roles) -> None:
    api = roles.api(compute="fake", max_body_bytes=BODY_BYTES)
    process, port = psutil.Process(api.pid), int(api.base_url.rpartition(":")[2])
    httpx.get(f"{api.base_url}/openapi.json", timeout=PATIENCE_S)
    before = process.memory_info().rss
    for attack, data in ATTACKS.items():
        most = 0
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(contextlib.closing(attack_of(port, data)))
                most = max(most, process.memory_info().rss)
            assert is_live(api), f"during {attack}"
            most = max(most, process.memory_info().rss)
        assert most - before < CONNECTIONS * MOST_BYTES, attack
        wait_until(lambda: len(process.net_connections()) < 20, message=f"the end of the connections of {attack}")
        assert is_live(api), f"after {attack}"


def is_live(api: ApiProcess) -> bool:
    return httpx.get(f"{api.base_url}/health/live", timeout=PATIENCE_S).status_code == httpx.codes.OK
