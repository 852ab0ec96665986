"""Whether this machine has the address to serve on, found out before anything is started."""

import errno
import socket

from worker_config.settings import PREFIX, SettingsError


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
