"""A crowd of connections that mean harm, without nginx: memory stays bounded, and the service answers afterwards."""

import contextlib
import socket
from contextlib import ExitStack

import httpx
import psutil

from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

CONNECTIONS = 150
MOST_BYTES = 400_000
"""Of memory for one of them: what protocol and event loop keep of it, and its part of the bodies that are held."""
BODY_BYTES = 2_000_000
"""The largest body that is taken. A few of them are held, and the others refused."""
_HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_GET = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
_BODY = _HEAD + b"Content-Length: %d\r\n\r\n" % BODY_BYTES
ATTACKS = {
    "silent": b"",
    "slow head": _HEAD + b"X: " + b"y" * 60_000,
    "head without end": _HEAD + b"X: " + b"y" * 1_000_000,
    "fields without end": _HEAD + b"a:\r\n" * 250_000,
    "more fields than there may be": _HEAD + b"a:\r\n" * 15_000 + b"Content-Length: 15\r\n\r\n",
    "many fields and no body": _HEAD + b"a:\r\n" * 120 + b"Content-Length: 15\r\n\r\n",
    "slow body": _BODY + b"x" * (BODY_BYTES // 2),
    "one chunk at a time": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200,
    "trailers without end": _HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:b\r\n" * 200_000,
    "requests without end": (_GET + b"\r\n") * 500,
    "answers that nobody reads": (_GET + b"\r\n") * 3,
}


def _attack(port: int, data: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.settimeout(0.001)
    with contextlib.suppress(OSError):
        connection.sendall(data)
    connection.settimeout(0)
    return connection


def _size(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_memory_stays_bounded_and_the_service_answers(roles: Roles) -> None:
    api = roles.api(compute="fake", max_body_bytes=BODY_BYTES)
    process, port = psutil.Process(api.pid), int(api.base_url.rpartition(":")[2])
    httpx.get(f"{api.base_url}/openapi.json", timeout=PATIENCE_S)
    before = _size(process)
    for attack, data in ATTACKS.items():
        most = 0
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(contextlib.closing(_attack(port, data)))
                most = max(most, _size(process))
            assert _answers(api), f"during {attack}"
            most = max(most, _size(process))
        assert most - before < CONNECTIONS * MOST_BYTES, attack
        wait_until(lambda: len(process.net_connections()) < 20, message=f"the end of the connections of {attack}")
        assert _answers(api), f"after {attack}"


def _answers(api: ApiProcess) -> bool:
    return httpx.get(f"{api.base_url}/health/live", timeout=PATIENCE_S).status_code == httpx.codes.OK
