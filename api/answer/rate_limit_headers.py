"""OpenAI's `x-ratelimit-*` headers, by which some clients steer how much they send at once.

The limit is the one that leaves least. Admission's is the work that a query may find before it in the online lane. What
is left of it is the caller's own: callers take turns, so what others have queued counts only as far as it goes first.
It is as of the last overview, at most about a second old. Limits of the caller's key are as this request has left them.
A request is at least one token of work, so no more requests are left than tokens.
"""

import math
from collections.abc import Mapping

from api.answer.description import ResponseHeader
from api.queue.served_models import ServedModels
from tasks.ledger import KeyRoom, ModelOverview
from tasks.ledger.operations import Taken

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

    def headers(self, model: str, owner: str, room: KeyRoom | None = None, taken: Taken | None = None) -> Headers:
        """Six headers, ready for a response to `owner`. Not to be changed.

        Args:
            model: served name.
            owner: who is answered.
            room: what its key may still bring; None: it has no such limit.
            taken: what its key has left of its requests; likewise.
        """
        if room is not None or taken is not None:
            return self._of_key(self._admission(model, owner), room, taken)
        if self._of is not self._registry.overviews:
            self._of, self._made = self._registry.overviews, {}
        found = self._made.get((model, owner))
        if found is None:
            found = self._made[model, owner] = self._headers(model, owner)
        return found

    def _headers(self, model: str, owner: str) -> Headers:
        admission = self._admission(model, owner)
        return [*_lines("requests", admission), *_lines("tokens", admission)]

    def _admission(self, model: str, owner: str) -> "_Limit":
        left, reset_s = self._registry.room(model, owner)
        return left, self._registry.limit(model), reset_s

    @staticmethod
    def _of_key(admission: "_Limit", room: KeyRoom | None, taken: Taken | None) -> Headers:
        tokens = admission if room is None else min(admission, (room.left, room.limit, room.reset_s))
        requests = tokens if taken is None else min(tokens, (taken.left, taken.limit, taken.reset_s))
        return [*_lines("requests", requests), *_lines("tokens", tokens)]


_Limit = tuple[int, int, float]
"""What is left, the limit, and the seconds until all of it is left."""


def _lines(of: str, limit: _Limit) -> Headers:
    left, most, reset_s = limit
    values = {"limit": str(most), "remaining": str(left), "reset": go_duration(reset_s)}
    return [(f"x-ratelimit-{name}-{of}".encode(), value.encode()) for name, value in values.items()]


def go_duration(seconds: float) -> str:
    """Whole seconds, rounded up, as Go writes them and OpenAI's headers do: `0s`, `59s`, `6m0s`, `1h0m0s`."""
    whole = math.ceil(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
