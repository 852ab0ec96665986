"""What coverage need not see, it does not trace: all Python of a thread that is traced takes half as long again."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_of_coverage = (None, None)
"""Trace functions of the main thread and of threads that start."""


def remember() -> None:
    """Coverage has begun: these are its trace functions."""
    global _of_coverage  # noqa: PLW0603
    _of_coverage = (sys.gettrace(), threading.gettrace())  # type: ignore[assignment]


def trace(*, main: bool, threads: bool) -> None:
    """Coverage sees what the main thread does from here on, and what threads do that start from here on.

    Whatever was set before: what a test has lost, all tests that follow would miss.
    """
    sys.settrace(_of_coverage[0] if main else None)
    threading.settrace(_of_coverage[1] if threads else None)


@contextmanager
def importing() -> Iterator[None]:
    """For imports of others' libraries: untraced, and without rounds of the garbage collector over what stays."""
    traced, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(None)  # of this thread; the function for new threads belongs to all
    try:
        yield
    finally:
        sys.settrace(traced)
        if collects:
            gc.enable()
