"""The `Prefer` header of RFC 7240, and how long a caller is going to wait."""

import math
from dataclasses import dataclass

from starlette.datastructures import Headers

from tasks.errors import InvalidValue

_NETWORK_S = 2.0
"""Left of a client's read timeout for the way there and back."""
_ANNOUNCED = ("x-stainless-read-timeout", "x-stainless-timeout")
"""How OpenAI's clients for Python and for Node announce theirs, in seconds."""


@dataclass(frozen=True, slots=True)
class Preference:
    """The two preferences that are understood. `wait_s` is None when the caller named none."""

    respond_async: bool = False
    wait_s: float | None = None


def preference(headers: Headers) -> Preference:
    """What the `Prefer` headers ask for. Preferences are hints: invalid ones are ignored."""
    lines = headers.getlist("prefer")
    if not lines:
        return Preference()
    respond_async = False
    wait_s: float | None = None
    for token in ",".join(lines).split(","):
        name, _, value = (part.strip().lower() for part in token.partition(";")[0].partition("="))
        if name == "respond-async":
            respond_async = True
        elif name == "wait":
            wait_s = _seconds(value.strip('"'))
    return Preference(respond_async, wait_s)


def applied(wishes: Preference, wait_s: float) -> str:
    """The `Preference-Applied` header of an answer that was given after at most `wait_s` seconds.

    A wish to wait that was granted in part only is left out.
    """
    wait = [f"wait={wait_s:g}"] if wishes.wait_s == wait_s else []
    return ", ".join([*(["respond-async"] if wishes.respond_async else []), *wait])


def patience_s(headers: Headers, wanted_s: float | None, max_wait_s: float) -> float:
    """How long a synchronous call may wait.

    The least of the server's limit, the caller's wish, and the read timeout that OpenAI's clients announce, less what
    an answer needs to arrive: a caller who has hung up learns nothing.
    """
    limits = [max_wait_s]
    if wanted_s is not None:
        limits.append(wanted_s)
    for name in _ANNOUNCED:
        announced_s = _seconds(headers.get(name, ""))
        if announced_s:  # Node's client cuts to whole seconds: its 0 is anything below one
            limits.append(max(announced_s - _NETWORK_S, announced_s / 2))
    return min(limits)


def query_wait_s(text: str | None) -> float | None:
    """The value of `?wait=`.

    Raises:
        InvalidValue: it is not a number of seconds.
    """
    if text is None:
        return None
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
