"""Limits of a key: requests per second (`lua/request_rate.lua`), and the errors for all of them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.errors import TooMany
from tasks.ledger.scripts import Operation


@dataclass(frozen=True, slots=True)
class KeyRoom:
    """What an owner may still bring under a limit of its key.

    Attributes:
        limit: requests at once, or estimated tokens.
        left: of them now.
        reset_s: seconds until all of it is left, if nothing comes.
    """

    limit: int
    left: int
    reset_s: float


def take_request(owner: str, per_s: float) -> Operation[tuple[float, KeyRoom]]:
    """Counts one request of an owner that may make so many in a second. Again: as one more.

    0, or how many seconds the owner must wait before its next request; and how many are left.
    """

    def read(reply: list[int]) -> tuple[float, KeyRoom]:
        wait_ms, left, reset_ms = reply
        return wait_ms / 1000, KeyRoom(max(1, int(per_s)), left, reset_ms / 1000)

    return Operation(read, "request_rate", "", (owner, per_s))


_USED = {
    "tokens_per_minute": ", and this request needs {:,}",
    "queued_tokens": ", and {:,} are queued",
    "open_jobs": ", and {:,} have not ended",
}


def key_refusal(told: Sequence[bytes]) -> TooMany:
    """The error for a limit's name, its number, what counts against it, seconds until there is room or -1: never."""
    limit, most, have, wait_s = told[0].decode(), int(told[1]), int(told[2]), float(told[3])
    if wait_s < 0:
        never = TooMany(
            "key_limit",
            f"This request alone exceeds a limit of your key: {limit} is {most:,}. Send it in parts. "
            "Nothing was stored.",
        )
        never.should_retry = False
        return never
    after_s = retry_after(wait_s)
    used = _USED[limit].format(have)
    return TooMany(
        "rate_limited" if limit == "tokens_per_minute" else "key_limit",
        f"The limit of your key is reached: {limit} is {most:,}{used}. Try again in {after_s} s. Nothing was stored.",
        retry_after_s=after_s,
    )


def retry_after(wait_s: float, most_s: float = math.inf) -> int:
    """Seconds of `Retry-After`, up to a quarter longer than it takes: who are refused together do not come together.

    A time that is known is told however long it is: a client that waits for less would come for nothing.
    """
    whole_s = max(1, math.ceil(min(wait_s, most_s * 4 / 5)))
    return whole_s + random.randint(0, whole_s // 4)  # noqa: S311 - no secret
