"""What a peer may send before an app sees it, how long it may keep its connection waiting; a crowd that means harm."""

import contextlib
import json
import logging
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import httpx
import psutil
import pytest

from api import head_and_body_limits
from api.__main__ import affordable_connections
from api.log_tally import Tally
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp
from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
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


def only(found: list[tuple[int, bytes]], status: int, code: str) -> None:
    assert [one for one, _ in found] == [status]
    assert json.loads(found[0][1])["error"]["code"] == code


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_a_head_has_limits(app: ServedApp) -> None:
    long, many = b"X: " + b"y" * 70_000, b"X: y\r\n" * 129
    line = b"GET /" + b"y" * 70_000
    whole = [LIVE + long + b"\r\n\r\n", LIVE + many + b"\r\n", line + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    for head in [LIVE + long, LIVE + many, line, *whole]:
        with connected(app) as connection:
            sent(connection, head)
            only(answers(connection), 431, "head_too_large")
    for pieces in (1, 3):  # right behind a request
        for following in ([b"X: ", *[b"y" * (300_000 // pieces)] * pieces], [many, b"\r\n"]):
            with connected(app) as connection:
                sent(connection, LIVE + b"\r\n" + LIVE + following[0], *following[1:])
                assert [status for status, _ in answers(connection)] == [200, 431]


def test_a_chunked_body_has_little_beside_its_data(app: ServedApp) -> None:
    for rest in (b"0\r\nX: " + b"y" * 70_000, b"0\r\n" + b"X: y\r\n" * 12_000, b"5;" + b"x" * 70_000):
        with connected(app) as connection:
            sent(connection, CHUNKED, b"f\r\n" + TEXT + b"\r\n", rest)
            only(answers(connection), 400, "invalid_http")


def test_a_body_in_tiny_chunks_is_read(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    padded = TEXT[:-1] + b" " * 20_000 + b"}"
    with connected(serve()) as connection:
        sent(connection, CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        sent(connection, b"".join(b"1\r\n%c\r\n" % byte for byte in padded), b"0\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [202]


def test_a_trailer_is_no_field_of_the_request(serve: Callable[..., ServedApp]) -> None:
    app = serve(api_keys="alice:" + "ab" * 32)
    with connected(app) as connection:
        sent(connection, CHUNKED, b"0\r\nConnection: close\r\nx-request-id: mine\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert b"mine" not in connection.recv(65_536)


def test_a_request_names_one_host(app: ServedApp) -> None:
    host = b"Host: localhost\r\n"
    heads = {
        b"GET / HTTP/1.1\r\n": 400,
        b"GET / HTTP/1.1\r\n" + host * 2: 400,
        b"GET / HTTP/1.0\r\n": 200,
        b"GET / HTTP/1.0\r\n" + host + b"Host: b\r\n": 400,
    }
    for head, status in heads.items():
        with connected(app) as connection:
            sent(connection, head + b"Connection: close\r\n\r\n")
            assert [found for found, _ in answers(connection)] == [status], head


# ---- several requests on one connection ------------------------------------------------------------------------------


def test_empty_lines_between_requests_are_no_request(serve: Callable[..., ServedApp]) -> None:
    app = serve(limits_s=IMPATIENT)
    with connected(app) as connection:
        sent(connection, LIVE + b"\r\n")
        first = connection.recv(65_536)
        sent(connection, b"\r\n")
        with connected(app) as other:
            assert answers(other) == []  # it said nothing for as long as a head may take
        sent(connection, b"\r\n" + LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(connection, first)] == [200, 200]


def test_requests_may_follow_each_other_without_waiting(app: ServedApp) -> None:
    large = LIVE + b"X: y\r\n" * 100 + b"Y: " + b"y" * 60_000 + b"\r\n\r\n"  # within the limits
    with connected(app) as connection:
        sent(connection, large + (LIVE + b"\r\n") * 50 + LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [200] * 52


def test_a_large_body_in_one_piece_with_its_head_is_no_large_head(app: ServedApp) -> None:
    body = TEXT[:-1] + b" " * 100_000 + b"}"
    head = JSON + b"Content-Length: %d\r\n" % len(body)
    with connected(app) as connection:
        sent(connection, (head + b"\r\n" + body) * 2 + LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [202, 202, 200]


def test_an_upgrade_is_not_made_and_nothing_is_lost(app: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
    head = JSON + b"Content-Length: %d\r\n" % len(TEXT)
    data = head + upgrade + b"\r\n" + TEXT + LIVE + upgrade + b"\r\n" + LIVE + b"Connection: close\r\n\r\n"
    for size in (len(data), len(data) // 7):
        with connected(app) as connection:
            sent(connection, *(data[start : start + size] for start in range(0, len(data), size)))
            assert [status for status, _ in answers(connection)] == [202, 200, 200]
    assert caplog.records == []


def test_what_is_no_request_is_told_so_and_logged_once(app: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    for garbage in (b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTPP/1.1\r\n\r\n", b"GET\r\n\r\n"):
        with connected(app) as connection:
            sent(connection, garbage)
            only(answers(connection), 400, "invalid_http")
    assert len(caplog.records) == 1


# ---- times -----------------------------------------------------------------------------------------------------------


def test_a_request_that_never_comes_is_not_waited_for(serve: Callable[..., ServedApp]) -> None:
    app = serve(limits_s=IMPATIENT)
    begun = {b"": [], LIVE: [408], CHUNKED + b"5\r\n": [408], LIVE + b"\r\n" + LIVE: [200, 408]}
    with ExitStack() as stack:
        waiting = {data: stack.enter_context(connected(app)) for data in begun}
        for data, connection in waiting.items():
            sent(connection, data)
        for data, connection in waiting.items():
            assert [status for status, _ in answers(connection)] == begun[data]


def test_who_waits_for_an_answer_or_between_two_requests_is_left_alone(
    worker: LedgerWorker, serve: Callable[..., ServedApp]
) -> None:
    app = serve(limits_s=IMPATIENT)
    location = app.client.post("/v1/tasks", json={"input": "one"}).headers["location"]
    with connected(app) as idle:
        sent(idle, LIVE + b"\r\n")
        assert app.client.get(location, params={"wait": 1}).status_code == 200  # five times as long as a head may take
        sent(idle, LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(idle)] == [200, 200]


def test_a_body_that_goes_on_after_its_refusal_is_not_read_for_ever(serve: Callable[..., ServedApp]) -> None:
    with connected(serve(limits_s=IMPATIENT)) as connection:
        sent(connection, CHUNKED.replace(b"/v1/tasks", b"/v1/nothing"))
        connection.settimeout(0.05)
        wait_until(lambda: not sent(connection, b"5\r\nabcde\r\n"), message="the body was read on and on")


# ---- number ----------------------------------------------------------------------------------------------------------


def test_connections_too_many_are_told_so_and_others_go_on(
    serve: Callable[..., ServedApp], caplog: pytest.LogCaptureFixture
) -> None:
    app = serve(limits_s=PATIENT, max_connections=16)
    with ExitStack() as stack:
        served = [stack.enter_context(connected(app)) for _ in range(16)]
        for one in served:
            sent(one, LIVE + b"\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        for _ in range(3):
            with connected(app) as more:
                only(answers(more), 503, "overloaded")
        for one in served:
            sent(one, LIVE + b"Connection: close\r\n\r\n")
            assert [status for status, _ in answers(one)] == [200]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "EMBEDQ_MAX_CONNECTIONS" in line


def test_no_more_connections_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: limits)
    for soft, hard, expected in ((64, 64, 48), (64, 1000, 600), (1000, 1000, 600)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=(soft, hard): limits)
        assert affordable_connections(600) == expected


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


def size_of(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_memory_stays_bounded_and_the_service_answers(roles: Roles) -> None:
    api = roles.api(compute="fake", max_body_bytes=BODY_BYTES)
    process, port = psutil.Process(api.pid), int(api.base_url.rpartition(":")[2])
    httpx.get(f"{api.base_url}/openapi.json", timeout=PATIENCE_S)
    before = size_of(process)
    for attack, data in ATTACKS.items():
        most = 0
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(contextlib.closing(attack_of(port, data)))
                most = max(most, size_of(process))
            assert is_live(api), f"during {attack}"
            most = max(most, size_of(process))
        assert most - before < CONNECTIONS * MOST_BYTES, attack
        wait_until(lambda: len(process.net_connections()) < 20, message=f"the end of the connections of {attack}")
        assert is_live(api), f"after {attack}"


def is_live(api: ApiProcess) -> bool:
    return httpx.get(f"{api.base_url}/health/live", timeout=PATIENCE_S).status_code == httpx.codes.OK
