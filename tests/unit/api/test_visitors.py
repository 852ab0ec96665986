"""Who counts as a program on the server's own machine, so that it may make the first key."""

from typing import Any

import pytest

from api.request.api_keys import KeyRing
from api.server.origins import Visitors
from worker_config.settings import load_settings

VISITORS = Visitors(settings := load_settings(allowed_hosts="embed.example.org,*"), KeyRing(settings))


def is_local(client: str | None, *, http_version: str = "1.1", **headers: str) -> bool:
    scope: dict[str, Any] = {
        "http_version": http_version,
        "client": None if client is None else (client, 1),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    return VISITORS.is_local(scope)


@pytest.mark.parametrize(
    ("client", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("172.17.0.1", False),  # how a published port of a container looks
        ("0.0.0.0", False),  # noqa: S104 - nothing is bound
        ("", False),
        (None, False),  # of a unix socket: whoever may open it is not known
    ],
)
def test_the_connection_comes_from_loopback(client: str | None, *, local: bool) -> None:
    assert is_local(client, host="localhost:8000") == local


@pytest.mark.parametrize(
    ("headers", "local"),
    [
        ({}, False),  # older than HTTP/1.1, as some proxies speak
        ({"host": "localhost", "http_version": "1.0"}, False),  # so does nginx unless it is told otherwise
        ({"host": "LOCALHOST.:8000"}, True),
        ({"host": "app.localhost"}, True),
        ({"host": "127.1.2.3:8000"}, True),
        ({"host": "203.0.113.5"}, False),  # a proxy that passes on the address that its caller has used
        ({"host": "api.internal"}, False),
        ({"host": "[::1]:8000"}, True),
        ({"host": "embed.example.org"}, False),  # of EMBEDQ_ALLOWED_HOSTS: a proxy passes it on
        ({"host": "rebound.example.org"}, False),
        ({"host": "localhost.example.org"}, False),
        ({"host": "localhost", "origin": "http://localhost"}, True),
        ({"host": "localhost", "origin": "null"}, False),
        ({"host": "localhost", "origin": "http://localhost", "sec_fetch_site": "same-site"}, False),
        ({"host": "localhost", "sec_fetch_site": "none"}, True),
        ({"host": "localhost", "x_forwarded_port": "443"}, False),
        ({"host": "localhost", "forwarded": ""}, False),
    ],
)
def test_neither_a_proxy_nor_a_web_page_is_between(headers: dict[str, str], *, local: bool) -> None:
    assert is_local("127.0.0.1", **headers) == local
