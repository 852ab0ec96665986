"""Headers of every answer that forbid a browser to do more with it than its reader asked for.

HSTS is missing on purpose: it binds a whole host name, and the server does not know whether TLS ends in front of it.
"""

from collections.abc import Sequence

Header = tuple[bytes, bytes]

_POLICY = b"content-security-policy"
_CACHE = b"cache-control"
_ALWAYS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),  # an address of this service holds ids
    (b"cross-origin-resource-policy", b"same-origin"),  # CORS is another rule: what it allows stays allowed
)
_NO_PAGE: Header = (_POLICY, b"default-src 'none'; frame-ancestors 'none'")
"""Of answers that are no pages. Two policies would both apply, so an answer with its own keeps that alone."""
_NO_STORE: Header = (_CACHE, b"no-store")
"""Of answers that do not say otherwise: nearly all of them hold what one caller may read."""

# By whether the answer has a policy and says what a cache may do: a request builds none of these.
_ADDED = {
    (policy, cache): (*_ALWAYS, *(() if policy else (_NO_PAGE,)), *(() if cache else (_NO_STORE,)))
    for policy in (False, True)
    for cache in (False, True)
}


def security_headers(own: Sequence[Header] = ()) -> tuple[Header, ...]:
    """What an answer with these headers, whose names are in lower case, gets beside them."""
    policy = cache = False
    for name, _ in own:
        if name == _CACHE:
            cache = True
        elif name == _POLICY:
            policy = True
    return _ADDED[policy, cache]
