"""OpenAI's `x-ratelimit-*` headers, by which some clients steer how much they send at once.

The limit is admission's: the work that a query may find before it in the online lane. What is left of it is the
caller's own: callers take turns, so what others have queued counts only as far as it goes first. It is as of the last
overview, at most about a second old. There is no limit on the number of requests, and a request is at least one token
of work, so as many requests are left as tokens.
"""

import math
from collections.abc import Mapping

from api.answer.description import ResponseHeader
from api.queue.served_models import ServedModels
from tasks.ledger import ModelOverview

Headers = list[tuple[bytes, bytes]]
RATE_LIMITS = tuple(
    ResponseHeader(f"x-ratelimit-{what}-{unit}", f"As OpenAI's, in {unit}.")
    for what in ("limit", "remaining", "reset")
    for unit in ("requests", "tokens")
)


class RateLimits:
    """The headers of each model and caller, made anew only when the registry has heard news."""

    def __init__(self, registry: ServedModels) -> None:
        self._registry = registry
        self._of: Mapping[str, ModelOverview] | None = None
        self._made: dict[tuple[str, str], Headers] = {}

    def headers(self, model: str, owner: str) -> Headers:
        """Six headers, ready for a response to `owner`. Not to be changed."""
        if self._of is not self._registry.overviews:
            self._of, self._made = self._registry.overviews, {}
        found = self._made.get((model, owner))
        if found is None:
            found = self._made[model, owner] = self._headers(model, owner)
        return found

    def _headers(self, model: str, owner: str) -> Headers:
        left, reset_s = self._registry.room(model, owner)
        values = {
            "limit": str(self._registry.limit(model)),
            "remaining": str(left),
            "reset": go_duration(reset_s),
        }
        return [
            (f"x-ratelimit-{name}-{of}".encode(), value.encode())
            for of in ("requests", "tokens")
            for name, value in values.items()
        ]


def go_duration(seconds: float) -> str:
    """Whole seconds, rounded up, as Go writes them and OpenAI's headers do: `0s`, `59s`, `6m0s`, `1h0m0s`."""
    whole = math.ceil(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
