"""Which requests are served at all: those with one Host and, on a server without keys, from no foreign web page.

A page whose name resolves to 127.0.0.1 is of the same origin for the browser (DNS rebinding), but its name is in
`Host`. Other pages may send forms unasked; browsers say so in `Sec-Fetch-Site` and `Origin`, programs send neither.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import Scope

from tasks.errors import Forbidden, Invalid
from worker_config.settings import Settings

_HOST = re.compile(r"(?:\[(?P<ip>[0-9a-f:.]{1,45})\]|(?P<name>[a-z0-9._-]{1,253}))(?::(?P<port>[0-9]{0,5}))?")
"""With an underscore, which is in names of containers."""
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_HOST.pattern}")
_MAX_PORT = 65_535
_LONGEST = 512
"""Longer than all that fit: what is remembered of hosts is small."""
_OWN_NAMES = frozenset({"localhost", "host.docker.internal"})
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserRules:
    """The rules for hosts and origins of one server.

    Args:
        settings: with the names and the origins that are allowed.
        is_open: whether everybody may call without a key, as far as is known.
    """

    def __init__(self, settings: Settings, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open
        local = (bool(settings.allowed_hosts) or settings.is_loopback) and "*" not in settings.allowed_hosts
        self._hosts = _OWN_NAMES | frozenset(settings.allowed_hosts) if local else None
        self._origins = frozenset(settings.cors_origins) if "*" not in settings.cors_origins else None

    def check(self, scope: Scope) -> None:
        """Looks at the head of a request.

        Raises:
            Invalid: `Host` or `Origin` is none.
            Forbidden: the server has no keys, and is called by a name that is not its own.
            Forbidden: the server has no keys, and a page of another origin wants to change something.
        """
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"").decode("latin-1").lower()
        if len(hosts) > 1:
            raise Invalid("invalid_http", "The request has several Host fields; it must have one.")
        if not hosts and scope["http_version"] == "1.1":
            raise Invalid("invalid_http", "The request has no Host field; HTTP/1.1 needs one.")
        host = hosts[0].decode("latin-1").lower() if hosts else None
        named = _match(_HOST, host[:_LONGEST]) if host else None
        if host and named is None:
            raise Invalid("invalid_http", "Host must be a name or an address, and maybe a port.")
        if origin not in {"", "null"} and not _match(_ORIGIN, origin[:_LONGEST]):
            raise Invalid("invalid_http", "Origin must be a scheme, a host and maybe a port, or null.")
        if not self._is_open():
            return  # a web page has no key
        if self._hosts is not None and host is not None and not (named and self._is_ours(named)):
            raise Forbidden(
                "host_not_allowed",
                "This server has no API keys, so it answers only to local names: a web page could give it any other. "
                "Call it as localhost or 127.0.0.1, or name it in EMBEDQ_ALLOWED_HOSTS.",
            )
        if scope["method"] not in _READING and self._is_foreign(scope, host, origin):
            raise Forbidden(
                "origin_not_allowed",
                "A web page of another origin may not do this on a server without API keys. "
                "If it shall, name its origin in EMBEDQ_CORS_ORIGINS.",
            )

    def _is_ours(self, host: re.Match[str]) -> bool:
        name = (host["ip"] or host["name"]).rstrip(".")
        # An address in numbers is none that somebody's name server could have given another meaning.
        return name in (self._hosts or ()) or name.endswith(".localhost") or _is_address(name)

    def _is_foreign(self, scope: Scope, host: str | None, origin: str) -> bool:
        headers = Headers(scope=scope)
        site = headers.get("sec-fetch-site")
        if self._origins is None or site in {"same-origin", "none"} or (site is None and not origin):
            return False
        if origin in self._origins:
            return False
        scheme = headers.get("x-forwarded-proto", scope["scheme"])  # a page over http is not that over https
        return site is not None or origin != f"{scheme}://{host}"


@lru_cache(maxsize=256)
def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = pattern.fullmatch(text)
    return found if found and int(found["port"] or 0) <= _MAX_PORT else None


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
