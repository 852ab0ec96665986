"""The process of a sandbox, as the machine sees it."""

import psutil

from tasks.ingestion.parsing import sandbox_child


def pid_of(module: str = sandbox_child.__name__) -> int | None:
    """Of the one that this process has started last; `module`: what it runs. None: there is none now."""
    found = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    ours = sorted((each.create_time(), each.pid) for each in found if module in each.cmdline())
    return ours[-1][1] if ours else None
