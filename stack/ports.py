"""Ports on loopback: free ones, and whether a server answers there."""

import contextlib
import http.client
import random
import socket

from stack.errors import StackError

_TIMEOUT_S = 1.0
_NOT_EPHEMERAL = range(20_000, 32_768)
"""Linux gives ports from 32768 on to connections that ask for none."""
_TRIED = 100
_RANDOM = random.SystemRandom()
"""Not the common generator: tests seed that one alike in every process, and all would try the same ports."""


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago.

    None that the kernel gives to connections: one of them could take it before the server does, or while that restarts.
    """
    for port in _RANDOM.sample(_NOT_EPHEMERAL, _TRIED):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise StackError(f"No free port was found between {_NOT_EPHEMERAL[0]} and {_NOT_EPHEMERAL[-1]}.")


def require_free(host: str, port: int) -> None:
    """Raises `StackError` if somebody listens there: its answers would be taken for those of this stack."""
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError:
        return
    raise StackError(f"Port {port} is taken. Stop what listens there, or choose another one: --port, EMBEDQ_PORT.")


def body_of(host: str, port: int, path: str) -> bytes | None:
    """What GET of a path is answered with, if with 200."""
    # Not httpx: its import costs more than this module, and it may follow the environment to a proxy.
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
