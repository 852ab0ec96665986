"""The word "stop" from the Celery parent to its child. Celery itself does not tell a child about a shutdown."""

import mmap


class Stopping(Exception):
    """A stop was asked for in the middle of some work. Not an error: a clean stop leaves that work with it."""


class StopFlag:
    """One byte of memory shared with children that are forked after it was made."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def set(self) -> None:
        """Asks for a stop. Async-signal safe: it writes one byte."""
        self._memory[0] = 1

    def __bool__(self) -> bool:
        """Whether a stop was asked for, in this process or its parent."""
        return self._memory[0] == 1
