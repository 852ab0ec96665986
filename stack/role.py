"""A role: one process of the stack, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Role:
    """What to start, and how to know that it is well.

    Attributes:
        name: shown before each of its log lines.
        command: program and arguments.
        environment: complete; nothing is added.
        stage: lower stages are started first and stopped last; one stage starts when the one below is up.
        grace_s: from SIGTERM to SIGKILL.
        is_up: whether the next stage may start.
        alive_file: touched every second by a process that does not hang; None: nobody looks.
        hung_after_s: an alive file that stands still for this long means that its process hangs.
        keeps_open: file descriptors that the process inherits.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stage: int
    grace_s: float
    is_up: Callable[[], bool] = lambda: True
    alive_file: Path | None = None
    hung_after_s: float = 30.0
    keeps_open: tuple[int, ...] = ()
