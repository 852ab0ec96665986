"""The retry policy: whether a call is repeated, and after how long. Pure; `transport` waits."""

from collections.abc import Mapping
from dataclasses import dataclass

_BUSY = frozenset({429, 503})
_FROM_PROXIES = frozenset({408, 502, 504})
_DEFECT = 500
_DONE_PERHAPS = frozenset({"redis_unavailable", "not_replicated", "overloaded"})
"""Codes of a server that may have lost sight of what it was doing."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A call of this client may be repeated: the server joins or recognises a repetition. `Call.once` is the exception.

    Attributes:
        first_delay_s, max_delay_s: back-off, doubling, where the server does not name a time.
        first_contact_s: how long a server that has never answered is tried.
        unreachable_s: how long one that has answered before is tried, for example while it restarts.
    """

    first_delay_s: float = 0.25
    max_delay_s: float = 8.0
    first_contact_s: float = 2.0
    unreachable_s: float = 30.0

    def after_answer(self, status: int, headers: Mapping[str, str], attempt: int) -> float | None:
        """Seconds to wait after an error answer, or None when a repetition makes no sense.

        `attempt` counts from 0. `x-should-retry` overrides the status, as in OpenAI's clients; without it 409 is
        final.
        """
        should_retry = headers.get("x-should-retry")
        if should_retry == "false" or (should_retry != "true" and status not in _BUSY | _FROM_PROXIES):
            return None
        retry_after_s = _seconds(headers.get("retry-after"))
        return self.back_off_s(attempt) if retry_after_s is None else retry_after_s

    def after_silence(self, silent_s: float, *, answered_before: bool, attempt: int) -> float | None:
        """Seconds to wait after a failed connection, or None when the server was silent long enough."""
        patience_s = self.unreachable_s if answered_before else self.first_contact_s
        delay_s = self.back_off_s(attempt)
        return delay_s if silent_s + delay_s <= patience_s else None

    def back_off_s(self, attempt: int) -> float:
        """Doubling delay in seconds."""
        # The exponent is bounded, or a long outage ends in an OverflowError.
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(attempt, 32))


def done_perhaps(status: int, code: str) -> bool:
    """Whether a call with this error answer may have been done all the same."""
    return status in _FROM_PROXIES or status == _DEFECT or code in _DONE_PERHAPS


def says_gone(code: str) -> bool:
    """Whether an error answer says that what a deletion named is not there. The 404 of a proxy does not say so."""
    return code == "task_expired" or (code.endswith("_not_found") and code != "route_not_found")


def _seconds(value: str | None) -> float | None:
    # The other form of Retry-After, a date, is not what this server sends; back-off serves for it.
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
