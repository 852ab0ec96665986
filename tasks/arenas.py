"""Memory that malloc keeps to itself."""

import ctypes

from worker_config.settings import names_malloc_arenas

_M_ARENA_MAX = -8  # <malloc.h> of glibc
_ARENAS = 2


def share_arenas() -> None:
    """Lets the threads of this process share two malloc arenas, where the C library has them (glibc).

    Each thread that allocates would get one of its own, and an arena keeps what it has freed: 50 MB of a worker with
    two streams, that bought no speed. Call it before the threads start. Who has set another number keeps it.
    """
    if names_malloc_arenas():  # mallopt would win over the environment
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
