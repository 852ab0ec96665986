import http.server
import socket
import threading
from collections.abc import Iterator

import pytest

from stack.errors import StackError
from stack.ports import body_of, free_port, require_free


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/well" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
        pass


def test_a_free_port_is_none_that_the_kernel_gives_to_connections() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port := free_port()))
        assert port < 32_768


@pytest.fixture
def server_port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_only_200_is_ok(server_port: int) -> None:
    assert body_of("127.0.0.1", server_port, "/well") == b""
    assert body_of("127.0.0.1", server_port, "/ill") is None


def test_nobody_there_is_not_ok() -> None:
    assert body_of("127.0.0.1", free_port(), "/well") is None


def test_a_port_that_somebody_has_is_refused(server_port: int) -> None:
    with pytest.raises(StackError, match=f"Port {server_port} is taken"):
        require_free("127.0.0.1", server_port)
    require_free("127.0.0.1", free_port())
