"""nginx as deploy/nginx/nginx.conf has it, in front of a real service: what it lets through, and what it keeps away."""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.integration.nginx.nginx_server import NginxServer, find_program
from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until

ALL_AT_ONCE = 200
"""Requests of one address that nginx takes without a pause."""
UNDER_WAY = 64
IDLE = 1000


@dataclass(frozen=True, slots=True)
class Public:
    """A service as the internet sees it."""

    nginx: NginxServer
    api: ApiProcess
    client: httpx.Client

    def connect(self, address: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection from this address, to be closed by the caller."""
        raw = socket.create_connection(("127.0.0.1", self.nginx.port), PATIENCE_S, source_address=(address, 0))
        return self.nginx.trust.wrap_socket(raw, server_hostname="127.0.0.1")


@pytest.fixture
def program() -> str:
    found = find_program()
    if found is None:
        missing = "no nginx: apt-get install nginx-light"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture
def serve(roles: Roles, program: str) -> Iterator[Callable[..., Public]]:
    with ExitStack() as stack:

        def start(changed: dict[str, str] | None = None, **settings: Any) -> Public:
            api = roles.api(compute="fake", **settings)
            port = int(api.base_url.rpartition(":")[2])
            nginx = NginxServer(roles.folder / "nginx", program, port, changed or {})
            stack.callback(nginx.stop)
            nginx.start()
            client = httpx.Client(base_url=nginx.base_url, verify=nginx.trust, timeout=PATIENCE_S)
            return Public(nginx, api, stack.enter_context(client))

        yield start


def answered(connection: ssl.SSLSocket) -> bytes:
    """The head of the next answer; nothing if the connection ends without one."""
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def status(answer: httpx.Response) -> int:
    return answer.status_code


def test_the_service_works_behind_it(serve: Callable[..., Public], roles: Roles) -> None:
    public = serve()
    created = public.client.post("/v1/tasks", json={"input": "one"})
    assert status(created) == 202
    polled = public.client.get(created.headers["location"], params={"wait": 1})
    assert (status(polled), polled.json()["status"]) == (200, "queued")

    roles.worker(compute="fake")
    ended = public.client.get(created.headers["location"], params={"wait": 50})
    assert ended.json()["status"] == "completed"
    texts = [f"{number} " + "word " * 400 for number in range(1000)]  # 2 MB
    answer = public.client.post("/v1/embeddings", json={"input": texts})
    assert (status(answer), len(answer.json()["data"])) == (200, len(texts))
    assert [status(public.client.get(path)) for path in ("/metrics", "/metrics/", "/metrics//")] == [404] * 3

    large = public.client.post("/v1/embeddings", json={"input": "x" * (16 * 2**20)})
    assert (status(large), large.json()["error"]["code"]) == (413, "body_too_large")
    heads = {size: status(public.client.get("/health/live", headers={"x": "x" * size})) for size in (15_000, 70_000)}
    assert heads == {15_000: 200, 70_000: 400}


def test_an_upload_passes_as_it_comes(serve: Callable[..., Public]) -> None:
    public = serve(max_file_bytes=2**20)
    content = b"x" * 2**19
    form: dict[str, Any] = {"data": {"purpose": "user_data"}, "files": {"file": ("a.txt", content)}}
    for path in ("/v1/files", "/v1/files/", "/files"):
        stored = public.client.post(path, **form)
        with public.connect() as connection:  # of which nothing but the head ever comes
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            connection.sendall(f"{head}Content-Length: {2**28}\r\n\r\n".encode())
            refused = answered(connection)
        assert public.client.get(f"/v1/files/{stored.json()['id']}/content").content == content
        assert refused.startswith(b"HTTP/1.1 413 "), "of the API, which nginx has asked before a body"


def test_it_may_serve_below_a_path(serve: Callable[..., Public]) -> None:
    public = serve({"# if ($uri": "if ($uri", "# rewrite ^/embedq": "rewrite ^/embedq"})

    assert public.client.get("/embedq/health/live").json() == {"status": "live"}
    assert public.client.get("/embedq/metrics").status_code == 404
    for base, theirs in (("/embedq", "/of/the/caller"), ("", "/of/the/caller")):
        made = public.client.post(f"{base}/v1/tasks", json={"input": "a"}, headers={"x-forwarded-prefix": theirs})
        assert made.headers["location"] == made.json()["links"]["self"] == f"{base}/v1/tasks/{made.json()['id']}"


def test_slow_heads_and_bodies_are_cut_off_while_others_are_served(serve: Callable[..., Public]) -> None:
    public = serve({"client_header_timeout 10s": "client_header_timeout 1s", "body_timeout 30s": "body_timeout 1s"})
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        slow = [stack.enter_context(public.connect()) for _ in range(20)]
        for number, connection in enumerate(slow):
            connection.sendall(head + (b"Content-Length: 100\r\n\r\n{" if number % 2 else b""))
        assert status(public.client.get("/health/live")) == 200
        answers = [answered(connection) for connection in slow]
    assert {answer.partition(b"\r\n")[0] for answer in answers} <= {b"", b"HTTP/1.1 408 Request Time-out"}
    assert status(public.client.get("/health/live")) == 200


def test_a_thousand_idle_connections_keep_nobody_out(serve: Callable[..., Public]) -> None:
    public = serve(max_connections=16)
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", public.nginx.port), PATIENCE_S))
        for _ in range(5):
            answer = httpx.get(f"{public.nginx.base_url}/health/live", verify=public.nginx.trust, timeout=PATIENCE_S)
            assert status(answer) == 200


def test_an_address_has_limits_and_the_others_are_served(serve: Callable[..., Public]) -> None:
    public = serve({"rate=50r/s": "rate=1r/m"}, allow_unauthenticated=False)
    transport, stranger = (
        httpx.HTTPTransport(local_address=f"127.0.0.{number}", verify=public.nginx.trust) for number in (2, 3)
    )
    with httpx.Client(base_url=public.nginx.base_url, transport=transport, timeout=PATIENCE_S) as loud:
        found = [loud.get("/health/live") for _ in range(ALL_AT_ONCE + 2)]
        assert [status(answer) for answer in found].count(200) == ALL_AT_ONCE + 1
        refused = found[-1]
        assert (status(refused), refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limited"
    assert status(public.client.get("/health/live")) == 200
    with httpx.Client(base_url=public.nginx.base_url, transport=stranger, timeout=PATIENCE_S) as client:
        assert status(client.get("/v1/tasks")) == 401
    assert "from 127.0.0.3" in public.api.log(), "the caller, and not nginx"


def test_an_address_has_so_many_requests_under_way(serve: Callable[..., Public]) -> None:
    public = serve()
    path = public.client.post("/v1/tasks", json={"input": "one"}).headers["location"]
    request = f"GET {path}?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:
        connections = [stack.enter_context(public.connect("127.0.0.2")) for _ in range(UNDER_WAY + 5)]
        for connection in connections:
            connection.sendall(request)
            connection.setblocking(False)
        early: list[bytes] = []

        def refused() -> bool:
            for connection in connections:
                with suppress(ssl.SSLWantReadError):
                    early.append(connection.recv(65_536))
            return len(early) >= len(connections) - UNDER_WAY

        wait_until(refused, message="the answers to those that are too many")
        assert [answer.split()[1] for answer in early] == [b"429"] * (len(connections) - UNDER_WAY)
        assert status(public.client.get("/health/live")) == 200
