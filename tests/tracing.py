"""What coverage need not see, it does not trace: all Python of a thread that is traced takes half as long again."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def untraced(*, threads: bool) -> Iterator[None]:
    """Coverage does not see what this thread does meanwhile. `threads`: nor the threads that it starts."""
    trace, trace_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    if threads:
        threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)
        threading.settrace(trace_of_threads)


@contextmanager
def importing() -> Iterator[None]:
    """For imports of others' libraries: untraced, and without rounds of the garbage collector over what stays."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with untraced(threads=True):
            yield
    finally:
        if collects:
            gc.enable()
