"""Which requests are served at all: those with one Host and, on a server without keys, from no foreign web page.

A page whose name resolves to 127.0.0.1 is of the same origin for the browser (DNS rebinding), but its name is in
`Host`. Other pages may send forms unasked; browsers say so in `Sec-Fetch-Site` and `Origin`, programs send neither.
"""

import logging
from collections.abc import Collection, Sequence
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from api.request.api_keys import KeyRing
from api.server.log_throttle import Tally
from tasks.errors import EmbedqError, HostRefused, InvalidHTTP, OriginRefused, Unauthenticated
from worker_config.settings import Settings

_log = logging.getLogger(__name__)
_MAX_KNOWN = 1000
_LOCAL = (".localhost", ".internal")
"""Ends of names that nobody can have in the public tree: the second is for private networks, as of containers."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})

READABLE = (
    "accept-ranges", "content-disposition", "content-range", "etag", "location", "openai-processing-ms",
    "preference-applied", "retry-after", "www-authenticate", "x-ratelimit-limit-requests", "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens", "x-request-id", "x-should-retry",
)  # fmt: skip
"""All headers of answers that are this service's own: a web page of another origin reads these and no others."""


class Visitors:
    """The rules for hosts and origins of one server."""

    def __init__(self, settings: Settings, keys: KeyRing) -> None:
        self._keys = keys
        named = (bool(settings.allowed_hosts) or settings.is_loopback) and "*" not in settings.allowed_hosts
        self._own_hosts = frozenset({"localhost", *settings.allowed_hosts} - {"*"})
        self._hosts = self._own_hosts if named else None
        self._origins = frozenset(settings.cors_origins) if "*" not in settings.cors_origins else None
        self._good_hosts: set[bytes] = set()
        self._without_key = Tally(_log, "requests without a known API key")

    def check(self, scope: Scope) -> EmbedqError | None:
        """Why the request is refused; None: it is served."""
        host = origin = site = None
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    return InvalidHTTP("The request has several Host fields; it must have one.")
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if host is None and scope["http_version"] == "1.1":
            return InvalidHTTP("The request has no Host field; HTTP/1.1 needs one.")
        if not self._keys.may_be_open:
            return None  # a web page has no key
        if self._hosts is not None and host is not None and host not in self._good_hosts and not self._is_ours(host):
            return HostRefused(
                "This server has no API keys, so it answers only to local names: a web page could give it any other. "
                "Call it as localhost or 127.0.0.1, or name it in EMBEDQ_ALLOWED_HOSTS."
            )
        origins = self._origins
        if origins is not None and scope["method"] not in _READING and _is_foreign(host, origin, site, origins):
            return OriginRefused(
                "A web page of another origin may not do this on a server without API keys. "
                "If it shall, name its origin in EMBEDQ_CORS_ORIGINS."
            )
        return None

    def answered(self, scope: Scope, status: int) -> None:
        """Logs, at most once a minute, that requests came without a known key."""
        if status == Unauthenticated.status:
            client = scope.get("client")
            self._without_key.add(f"from {client[0]}" if client else "from an unknown address")

    def _is_ours(self, host: bytes) -> bool:
        good = _is_named(host, self._own_hosts)
        if good and len(self._good_hosts) < _MAX_KNOWN:
            self._good_hosts.add(host)
        return good


def _name_of(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0].rstrip(".")


def _is_named(host: bytes, names: Collection[str]) -> bool:
    name = _name_of(host)
    # An address in numbers is none that somebody's name server could have given another meaning.
    return name in names or name.endswith(_LOCAL) or _is_address(name)


def _is_foreign(host: bytes | None, origin: bytes | None, site: bytes | None, origins: Collection[str]) -> bool:
    if site in {b"same-origin", b"none"} or (site is None and origin is None):
        return False
    text = (origin or b"").decode("latin-1").lower()
    if text in origins:
        return False
    same = host is not None and text.partition("://")[2] == host.decode("latin-1").lower()
    return site is not None or not same


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def admit(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """`app` for web pages of these origins too (CORS); `app` itself where there are none.

    Cookies are never asked for: keys come in headers that a page must have. Any header may be sent, as OpenAI's client
    in a browser sends a dozen of its own.
    """
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=READABLE,
    )
