"""How long a caller is going to wait."""

import math

from starlette.datastructures import Headers

from tasks.errors import InvalidValue

_NETWORK_S = 2.0
"""Left of a client's read timeout for the way there and back."""
_ANNOUNCED = ("x-stainless-read-timeout", "x-stainless-timeout")
"""How OpenAI's clients for Python and for Node announce theirs, in seconds."""


def patience_s(headers: Headers, max_wait_s: float) -> float:
    """How long a synchronous call may wait.

    The lesser of the server's limit and the read timeout that OpenAI's clients announce, less what an answer needs to
    arrive: a caller who has hung up learns nothing.
    """
    limits = [max_wait_s]
    for name in _ANNOUNCED:
        announced_s = _seconds(headers.get(name, ""))
        if announced_s:  # Node's client cuts to whole seconds: its 0 is anything below one
            limits.append(max(announced_s - _NETWORK_S, announced_s / 2))
    return min(limits)


def query_wait_s(text: str | None) -> float:
    """The value of `?wait=`; 0 without one.

    Raises:
        InvalidValue: it is not a number of seconds.
    """
    if text is None:
        return 0.0
    seconds = _seconds(text)
    if seconds is None:
        raise InvalidValue("wait must be a number of seconds, 0 or more.", param="wait")
    return seconds


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
