"""The link that tests and fault trials put in front of a server."""

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.link import Link
from tests.processes import PATIENCE_S


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(100):
            self.request.sendall(data)


@pytest.fixture
def link() -> Iterator[Link]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        with Link(server.server_address[1]) as found:
            yield found
        server.shutdown()


def connected(link: Link) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", link.port), timeout=PATIENCE_S)
    assert echoed(client, b"hello") == b"hello"
    return client


def echoed(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(100)


def test_a_cut_closes_what_stands_and_nothing_later(link: Link) -> None:
    with connected(link) as before:
        link.cut()
        assert before.recv(1) == b""
        connected(link).close()


def test_a_silent_connection_is_neither_answered_nor_closed(link: Link) -> None:
    with connected(link) as before:
        link.silence()
        connected(link).close()
        before.settimeout(0.05)
        with pytest.raises(TimeoutError):
            echoed(before, b"anybody there?")
