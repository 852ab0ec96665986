"""What a kind of worker says of itself, and what its child process is given and gives. No Celery, nothing heavy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tasks.process.liveness import DEFAULT_PATIENCE, Patience
from tasks.process.run_files import RunFiles
from worker_config.settings import Settings
from worker_config.traces import Traces


class Served(Protocol):
    """What a child owns once it is ready."""

    def run_slice(self) -> None:
        """One slice of work."""

    def leave(self) -> None:
        """A clean stop."""


@dataclass(frozen=True)
class Start:
    """What a child is started with.

    Attributes:
        worker_id: the same for every child of one parent.
        stop: whether to stop.
        send_bell: sends the bell of a queue; never raises. If the bell of this worker's own queue cannot be sent, the
            worker acts as if it had rung.
        wake: begins a slice without a bell, after the one that may be running.
        patience: with what stands still.
        traces: of this process; None: there are none.
        predecessor: id of the worker that was killed, or ended, before this one was started in its place; "": of none.
    """

    settings: Settings
    worker_id: str
    stop: Callable[[], bool]
    send_bell: Callable[[str], None]
    wake: Callable[[], None]
    patience: Patience = DEFAULT_PATIENCE
    traces: Traces | None = None
    predecessor: str = ""

    @cached_property
    def files(self) -> RunFiles:
        """The worker's files for probes and for its parent."""
        return RunFiles(self.settings.run_dir)


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of worker.

    Attributes:
        command: of `embedq`; messages to people begin with it.
        title: what it is called in a sentence.
        queue: whose bells it hears.
        start: makes the child ready; returns once it serves. `Stopping` means that it was told to stop meanwhile.
        refusals: of `start`: the worker cannot run, and the text says why and what to do.
        breaks: of a slice: this process must be replaced.
    """

    command: str
    title: str
    queue: Callable[[Settings], str]
    start: Callable[[Start], Served]
    refusals: tuple[type[Exception], ...]
    breaks: tuple[type[Exception], ...]
