"""Web pages of other origins: which may call, and what of an answer they may read (CORS)."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

EXPOSED = (
    "x-request-id", "retry-after", "location", "etag", "preference-applied", "x-should-retry", "openai-processing-ms",
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    "content-range", "content-disposition",
)  # fmt: skip
"""A page reads no header of another origin's answer that is not named to its browser."""


def admit(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """`app` for pages of these origins too; `app` itself where there are none.

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
        expose_headers=EXPOSED,
    )
