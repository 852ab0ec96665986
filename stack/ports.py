"""Free ports on loopback."""

import socket


def free_port() -> int:
    """A TCP port on loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
