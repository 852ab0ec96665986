"""Several web tier processes behind one port: forked from one parent, which does nothing but start and stop them.

When one of them ends, all end. The supervisor of the parent (Compose, Kubernetes, `embedq up`) restarts it and decides
how often. A second supervisor with rules of its own would hide from the first that something is wrong.
"""

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from worker_config.settings import PREFIX, SettingsError

_BACKLOG = 2048
"""As uvicorn's own."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host`, for several processes. Port 0: one and the same free port.

    Raises:
        OSError: the address is in use.
    """
    bound: list[socket.socket] = []
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(addresses):  # a hosts file may name an address twice
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        opened.bind((address[0], bound[0].getsockname()[1] if bound else port, *address[2:]))
        opened.listen(_BACKLOG)
        bound.append(opened)
    return bound


def require_bindable(host: str, port: int) -> None:
    """Returns when `host` can be bound. A port that another process has is no error: it may become free.

    Raises:
        SettingsError: no interface has the address, the name is unknown, or the port needs more rights.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            where = f"{PREFIX}HOST={host}, {PREFIX}PORT={port}"
            raise SettingsError(f"{where}: cannot be bound: {error.strerror}") from None


_log = logging.getLogger(__name__)
_STOPS = (signal.SIGTERM, signal.SIGINT)


def run_processes(count: int, sockets: Sequence[socket.socket], serve: Callable[[int], int]) -> int:
    """Runs `serve(0)` to `serve(count - 1)`, each in a process of its own, until SIGTERM or SIGINT, or until one ends.

    Call before anything starts a thread. Every process gets SIGTERM at the end, also when the parent is killed. The
    parent closes its `sockets`, so that nobody is connected to a process that stops.

    Returns:
        0 after a signal; the exit code of a process that ended by itself, 1 if that is 0 or a signal killed it.
    """
    alive, held_open = os.pipe()  # its end of file tells the children that the parent is gone
    children = _Children()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # a stop comes when all who must hear of it are known
    for number in _STOPS:
        signal.signal(number, children.stop)
    for index in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(held_open)
            _become_child(serve, index, alive)
        children.pids.add(pid)
    os.close(alive)
    for shared in sockets:
        shared.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    return children.wait()


class _Children:
    """The processes that run."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        self._stopping = False

    def stop(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Asks all to stop; also a signal handler."""
        self._stopping = True
        for pid in list(self.pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def wait(self) -> int:
        """Returns when the last has ended, with the code for the parent to exit with."""
        result = 0
        while self.pids:
            pid, status = os.wait()
            self.pids.discard(pid)
            if self._stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            result = code if code > 0 else 1
            _log.error("web tier process %d ended with %d: the others stop too", pid, code)
            self.stop()
        return result


def _become_child(serve: Callable[[int], int], index: int, alive: int) -> NoReturn:
    for number in _STOPS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)

    def stop_with_parent() -> None:
        os.read(alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    try:
        code = serve(index)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the boundary of the process: above is the parent's stack, not its own
        _log.critical("a web tier process failed: %s", type(error).__name__)
        code = 1
    sys.stderr.flush()
    os._exit(code)  # what the parent registered for its end is not the child's to run
