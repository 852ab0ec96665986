"""A client of the native API and of files, for what the load generators do not do."""

import httpx

from bench.servers.server import Server

LONGEST_POLL_S = 50


def open_client(server: Server) -> httpx.Client:
    """At the server's `/v1`, patient enough for the longest poll."""
    return httpx.Client(base_url=server.base_url, timeout=LONGEST_POLL_S + 30, trust_env=False)
