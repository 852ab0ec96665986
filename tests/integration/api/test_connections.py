"""What a peer may send before an app sees it, and how long it may keep its connection waiting."""

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from api import http_deadlines
from api.log_tally import Tally
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp
from tests.processes import PATIENCE_S, wait_until
from tests.source_tree import CHECKOUT

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
JSON = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"
IMPATIENT = {"head": 0.2, "body": 0.2}
PATIENT = {"head": 1000.0, "body": 1000.0}
TEXT = b'{"input":"one"}'


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has logged nothing within the last minute."""
    monkeypatch.setattr(http_deadlines, "_ended", Tally(logging.getLogger(), "connections were ended"))


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


@pytest.mark.parametrize(
    "head",
    [
        LIVE + b"X: " + b"y" * 70_000,
        LIVE + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        LIVE + b"X: y\r\n" * 129,
        LIVE + b"X: y\r\n" * 129 + b"\r\n",
        b"GET /" + b"y" * 70_000,
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["field", "whole field", "fields", "whole fields", "line", "whole line"],
)
def test_a_head_has_limits(app: ServedApp, head: bytes) -> None:
    with connected(app) as connection:
        sent(connection, head)
        only(answers(connection), 431, "head_too_large")


def test_an_endless_field_is_not_taken(app: ServedApp) -> None:
    with connected(app) as connection:
        piece = b"y" * 2**20
        taken = sum(sent(connection, piece) for _ in range(64))
    assert sent(connection, LIVE) is False
    assert taken < 32, "this many MiB were taken"


def test_what_is_within_the_limits_is_served(app: ServedApp) -> None:
    with connected(app) as connection:
        sent(connection, LIVE + b"X: y\r\n" * 100 + b"Y: " + b"y" * 60_000 + b"\r\nConnection: close\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [200]


@pytest.mark.parametrize(
    "rest",
    [b"0\r\nX: " + b"y" * 70_000, b"0\r\n" + b"X: y\r\n" * 12_000, b"5;" + b"x" * 70_000],
    ids=["trailer", "trailers", "extension"],
)
def test_a_chunked_body_has_little_beside_its_data(app: ServedApp, rest: bytes) -> None:
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


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        (b"GET / HTTP/1.0\r\n", 200),
        (b"GET / HTTP/1.0\r\nHost: localhost\r\nHost: b\r\n", 400),
    ],
    ids=["none", "two", "none in 1.0", "two in 1.0"],
)
def test_a_request_names_one_host(app: ServedApp, head: bytes, status: int) -> None:
    with connected(app) as connection:
        sent(connection, head + b"Connection: close\r\n\r\n")
        assert [found for found, _ in answers(connection)] == [status]


# ---- several requests on one connection ------------------------------------------------------------------------------


def test_a_following_head_has_limits_too(app: ServedApp) -> None:
    with connected(app) as connection:
        sent(connection, LIVE + b"\r\n" + LIVE + b"X: y\r\n" * 129 + b"\r\n")
        assert [status for status, _ in answers(connection)] == [200, 431]


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_head_right_behind_a_request_has_a_size_too(app: ServedApp, pieces: int) -> None:
    with connected(app) as connection:
        sent(connection, LIVE + b"\r\n" + LIVE + b"X: ", *[b"y" * (300_000 // pieces)] * pieces)
        assert [status for status, _ in answers(connection)] == [200, 431]


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
    with connected(app) as connection:
        sent(connection, (LIVE + b"\r\n") * 50 + LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [200] * 51


def test_a_large_body_in_one_piece_with_its_head_is_no_large_head(app: ServedApp) -> None:
    body = TEXT[:-1] + b" " * 100_000 + b"}"
    head = JSON + b"Content-Length: %d\r\n" % len(body)
    with connected(app) as connection:
        sent(connection, (head + b"\r\n" + body) * 2 + LIVE + b"Connection: close\r\n\r\n")
        assert [status for status, _ in answers(connection)] == [202, 202, 200]


@pytest.mark.parametrize("pieces", [1, 7])
def test_an_upgrade_is_not_made_and_nothing_is_lost(
    app: ServedApp, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
    head = JSON + b"Content-Length: %d\r\n" % len(TEXT)
    data = head + upgrade + b"\r\n" + TEXT + LIVE + upgrade + b"\r\n" + LIVE + b"Connection: close\r\n\r\n"
    size = len(data) // pieces
    with connected(app) as connection:
        for start in range(0, len(data), size):
            sent(connection, data[start : start + size])
        found = answers(connection)

    assert [status for status, _ in found] == [202, 200, 200]
    assert caplog.records == []


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTPP/1.1\r\n\r\n", b"GET\r\n\r\n"])
def test_what_is_no_request_is_told_so_and_logged_once(
    app: ServedApp, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with connected(app) as connection:
            sent(connection, garbage)
            only(answers(connection), 400, "invalid_http")
    assert len(caplog.records) == 1


# ---- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        (b"", []),
        (LIVE, [408]),
        (CHUNKED + b"5\r\n", [408]),
        (LIVE + b"\r\n" + LIVE, [200, 408]),
    ],
    ids=["nothing", "head", "body", "second head"],
)
def test_a_request_that_never_comes_is_not_waited_for(
    serve: Callable[..., ServedApp], begun: bytes, expected: list[int]
) -> None:
    with connected(serve(limits_s=IMPATIENT)) as connection:
        sent(connection, begun)
        assert [status for status, _ in answers(connection)] == expected


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


def test_who_reads_slowly_gets_all(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    app = serve(limits_s=PATIENT)
    with connected(app) as connection:
        sent(connection, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
        sent(connection, LIVE + b"Connection: close\r\n\r\n")
        assert len(answers(connection)) == 51


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


def test_connections_that_never_say_anything_end_and_make_room(serve: Callable[..., ServedApp]) -> None:
    app = serve(limits_s=IMPATIENT, max_connections=16)
    with ExitStack() as stack:
        silent = [stack.enter_context(connected(app)) for _ in range(16)]
        assert [answers(one) for one in silent] == [[]] * 16
        with connected(app) as one:
            sent(one, LIVE + b"Connection: close\r\n\r\n")
            assert [status for status, _ in answers(one)] == [200]


@pytest.mark.parametrize(("soft", "hard", "expected"), [(64, 64, 48), (64, 1000, 600), (1000, 1000, 600)])
def test_no_more_connections_than_files_may_be_open(soft: int, hard: int, expected: int) -> None:
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "from api.__main__ import affordable_connections; print(affordable_connections(600))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT)

    assert int(done.stdout) == expected
