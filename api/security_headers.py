"""Headers of every answer that forbid a browser to do more with it than its reader asked for.

HSTS is missing on purpose: it binds a whole host name, and the server does not know whether TLS ends in front of it.
"""

from collections.abc import Iterable

Header = tuple[bytes, bytes]

_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # an address of this service holds ids
    (b"cross-origin-resource-policy", b"same-origin"),  # CORS is another rule: what it allows stays allowed
    (b"cross-origin-opener-policy", b"same-origin"),
)
_UNLESS_SAID: tuple[Header, ...] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),  # of answers that are no pages
    (b"cache-control", b"no-store"),  # nearly all answers hold what one caller may read
)


def security_headers(own: Iterable[Header]) -> list[Header]:
    """What an answer with these headers, whose names are in lower case, gets beside them."""
    said = {name for name, _ in own}
    return [*_ALWAYS, *(header for header in _UNLESS_SAID if header[0] not in said)]
