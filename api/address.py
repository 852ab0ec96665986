"""Whether this machine has the address to serve on, found out before anything is started."""

import errno
import socket

from worker_config.settings import PREFIX, SettingsError

_BACKLOG = 2048
"""As uvicorn's own."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of `host`, for several processes. Port 0: one and the same free port.

    Raises:
        OSError: the address is in use.
    """
    bound: list[socket.socket] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(found):  # a hosts file may name an address twice
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        opened.bind((address[0], bound[0].getsockname()[1] if bound else port, *address[2:]))
        opened.listen(_BACKLOG)
        bound.append(opened)
    return bound


def require_bindable(host: str, port: int) -> None:
    """Returns when `host` can be bound. A port that somebody else has is not found fault with: it may become free.

    Raises:
        SettingsError: no interface has the address, the name is unknown, or the port needs more rights.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            where = f"{PREFIX}HOST={host}, {PREFIX}PORT={port}"
            raise SettingsError(f"{where}: cannot be bound: {error.strerror}") from None
