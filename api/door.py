"""The door: a process that gets more requests than it can handle turns the rest away early, unread and at little cost.

Without it thousands of requests share the event loop, each of them waits in it for longer than callers and the time
limits of Redis allow, and all end as errors: work is done and nobody gets an answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tasks.errors import Overloaded
from tasks.ledger.executor import spread

MAX_UNDER_WAY = 256
"""Submissions on their way to Redis and back: four round trips of what travels together (tasks.ledger.gather)."""
BUSY_UNDER_WAY = 32
"""With fewer, a late event loop had one slow thing to do, and to turn callers away would not help it."""
MAX_LAG_S = 0.25
_RETRY_AFTER_S = 5
"""At most."""


class Door:
    """Counts the submissions of one process.

    Args:
        lag_s: by how much the event loop was late of late, in seconds.
        most: submissions under way at a time.
    """

    def __init__(self, lag_s: Callable[[], float], most: int = MAX_UNDER_WAY) -> None:
        self._lag_s = lag_s
        self.most = most
        self.under_way = 0

    def check(self) -> None:
        """For a request that is about to be read.

        Raises:
            Overloaded: it would only be turned away later.
        """
        if self.under_way >= self.most or (self.under_way >= BUSY_UNDER_WAY and self._lag_s() > MAX_LAG_S):
            raise overloaded()

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Around one submission. Raises `Overloaded` as `check` does."""
        self.check()
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1


def overloaded() -> Overloaded:
    """The error, with a time of its own."""
    wait_s = spread(_RETRY_AFTER_S)
    return Overloaded(
        f"More requests came than this server can take in; try again in {wait_s} s. Nothing was stored.",
        retry_after_s=wait_s,
    )
