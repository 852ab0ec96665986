"""nginx as deploy/nginx/nginx.conf has it, in front of a real service: what it lets through, and what it keeps away."""

import contextlib
import getpass
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import missing
from tests.integration.guarded.certificates import Authority
from tests.processes import PATIENCE_S, ApiProcess, Process, Roles, free_port, wait_until
from tests.source_tree import CHECKOUT

ALL_AT_ONCE, UNDER_WAY = 200, 64
"""Requests of one address that nginx takes without a pause, and at a time."""


class NginxServer(Process):
    """One nginx in front of one API. `changed`: texts of the configuration and what takes their place."""

    def __init__(self, folder: Path, api_port: str, changed: dict[str, str]) -> None:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")  # where Debian has it
        if program is None:
            missing("no nginx: apt-get install nginx-light")
        self.port = free_port()
        folder.mkdir()
        authority = Authority(folder, "nginx")
        authority.server()
        self.trust = ssl.create_default_context(cafile=str(authority.file))
        certificate = str(folder / "nginx-server.pem")
        text = (CHECKOUT / "deploy/nginx/nginx.conf").read_text(encoding="utf-8")
        names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = [f"{name}_temp_path {folder / name};" for name in names]
        for old, new in {
            "user www-data;": f"user {getpass.getuser()};",
            "/run/nginx.pid": str(folder / "nginx.pid"),
            "/var/log/nginx/error.log": "stderr",
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            "127.0.0.1:8000": f"127.0.0.1:{api_port}",
            "/etc/ssl/embed.pem": certificate,
            "/etc/ssl/embed.key": certificate,
            "access_log off;": f"access_log off; {' '.join(temporary)}",
            **changed,
        }.items():
            assert old in text, f"{old} is not in the configuration"
            text = text.replace(old, new)
        file = folder / "nginx.conf"
        file.write_text(text, encoding="utf-8")
        command = [program, "-p", str(folder), "-e", "stderr", "-c", str(file), "-g", "daemon off;"]
        super().__init__("nginx", command, folder)

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        """Of the service behind it, from this address; to be closed by the caller."""
        transport = httpx.HTTPTransport(local_address=address, verify=self.trust)
        return httpx.Client(base_url=f"https://127.0.0.1:{self.port}", transport=transport, timeout=PATIENCE_S)

    def connect(self, address: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection from this address, to be closed by the caller."""
        raw = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S, source_address=(address, 0))
        return self.trust.wrap_socket(raw, server_hostname="127.0.0.1")

    def _answers(self) -> bool:
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False


@pytest.fixture
def serve(roles: Roles) -> Iterator[Callable[..., tuple[NginxServer, ApiProcess, httpx.Client]]]:
    """Starts an API and nginx in front of it, and makes a client."""
    with ExitStack() as stack:

        def start(
            changed: dict[str, str] | None = None, **settings: Any
        ) -> tuple[NginxServer, ApiProcess, httpx.Client]:
            api = roles.api(**settings)
            nginx = NginxServer(roles.folder / "nginx", api.base_url.rpartition(":")[2], changed or {})
            stack.callback(nginx.stop)
            return nginx.start(), api, stack.enter_context(nginx.client())

        yield start


def answered(connection: ssl.SSLSocket) -> bytes:
    """The head of the next answer; nothing if the connection ends without one."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(65_536)
    return b""


def status(answer: httpx.Response) -> int:
    return answer.status_code


def test_the_service_works_behind_it(serve: Callable[..., Any], roles: Roles) -> None:
    nginx, _, client = serve(max_file_bytes=2**20)
    path = client.post("/v1/tasks", json={"input": "one"}).headers["location"]
    polled = client.get(path, params={"wait": 1})
    assert (status(polled), polled.json()["status"]) == (200, "queued")
    request = f"GET {path}?wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:  # an address has so many requests under way
        connections = [stack.enter_context(nginx.connect("127.0.0.2")) for _ in range(UNDER_WAY + 5)]
        for connection in connections:
            connection.sendall(request)
            connection.setblocking(False)
        early: list[bytes] = []

        def refused() -> bool:
            for connection in connections:
                with contextlib.suppress(ssl.SSLWantReadError):
                    early.append(connection.recv(65_536))
            return len(early) >= len(connections) - UNDER_WAY

        wait_until(refused, message="the answers to those that are too many")
        assert [answer.split()[1] for answer in early] == [b"429"] * (len(connections) - UNDER_WAY)
        assert status(client.get("/health/live")) == 200

    roles.worker()
    assert client.get(path, params={"wait": 50}).json()["status"] == "completed"
    texts = [f"{number} " + "word " * 400 for number in range(1000)]  # 2 MB
    answer = client.post("/v1/embeddings", json={"input": texts})
    assert (status(answer), len(answer.json()["data"])) == (200, len(texts))
    assert [status(client.get(path)) for path in ("/metrics", "/metrics/", "/metrics//")] == [404] * 3
    large = client.post("/v1/embeddings", json={"input": "x" * (16 * 2**20)})
    assert (status(large), large.json()["error"]["code"]) == (413, "body_too_large")
    heads = {size: status(client.get("/health/live", headers={"x": "x" * size})) for size in (15_000, 70_000)}
    assert heads == {15_000: 200, 70_000: 400}

    content = b"x" * 2**19
    form: dict[str, Any] = {"data": {"purpose": "user_data"}, "files": {"file": ("a.txt", content)}}
    for path in ("/v1/files", "/v1/files/", "/files"):
        stored = client.post(path, **form).raise_for_status().json()["id"]
        assert client.get(f"/v1/files/{stored}/content").content == content
        with nginx.connect() as connection:  # of which nothing but the head ever comes
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            connection.sendall(f"{head}Content-Length: {2**28}\r\n\r\n".encode())
            assert answered(connection).startswith(b"HTTP/1.1 413 "), "of the API, which nginx has asked before a body"


def test_it_may_serve_below_a_path_and_cuts_off_slow_heads_and_bodies(serve: Callable[..., Any]) -> None:
    below = {"# if ($uri": "if ($uri", "# rewrite ^/embedq": "rewrite ^/embedq"}
    quick = {"client_header_timeout 10s": "client_header_timeout 1s", "body_timeout 30s": "body_timeout 1s"}
    nginx, _, client = serve(below | quick)
    assert client.get("/embedq/health/live").json() == {"status": "live"}
    assert status(client.get("/embedq/metrics")) == 404
    for base in ("/embedq", ""):
        made = client.post(f"{base}/v1/tasks", json={"input": "a"}, headers={"x-forwarded-prefix": "/of/the/caller"})
        assert made.headers["location"] == made.json()["links"]["self"] == f"{base}/v1/tasks/{made.json()['id']}"

    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        slow = [stack.enter_context(nginx.connect()) for _ in range(20)]
        for number, connection in enumerate(slow):
            connection.sendall(head + (b"Content-Length: 100\r\n\r\n{" if number % 2 else b""))
        assert status(client.get("/health/live")) == 200
        answers = [answered(connection) for connection in slow]
    assert {answer.partition(b"\r\n")[0] for answer in answers} <= {b"", b"HTTP/1.1 408 Request Time-out"}
    assert status(client.get("/health/live")) == 200


def test_an_address_has_limits_and_others_are_served_beside_a_thousand_idle_connections(
    serve: Callable[..., Any],
) -> None:
    nginx, api, _ = serve({"rate=50r/s": "rate=1r/m"}, allow_unauthenticated=False, max_connections=16)
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(socket.create_connection(("127.0.0.1", nginx.port), PATIENCE_S))
        loud, other, stranger = (stack.enter_context(nginx.client(f"127.0.0.{n}")) for n in (2, 3, 4))
        found = [loud.get("/health/live") for _ in range(ALL_AT_ONCE + 2)]
        assert [status(answer) for answer in found].count(200) == ALL_AT_ONCE + 1
        assert (status(found[-1]), found[-1].headers["retry-after"]) == (429, "1")
        assert found[-1].json()["error"]["code"] == "rate_limited"
        assert status(other.get("/health/live")) == 200
        assert status(stranger.get("/v1/tasks")) == 401
    assert "from 127.0.0.4" in api.log(), "the caller, and not nginx"
