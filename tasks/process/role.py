"""Celery's side of a worker role, the same for all of them: a parent that consumes bells, and its one child.

The parent imports nothing heavy. The child gets ready in `worker_process_init`, before it can run a slice, and in the
thread that runs all its slices. One that cannot serve leaves the reason in a file and stops its parent, which exits
with code 78: Celery swallows exceptions of that signal and would go on without it.
"""

import ctypes
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from celery import Celery, signals
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # the stubs lack it

from tasks.process.child import Slices
from tasks.process.parent import limit_stop, make_parent
from tasks.process.run_files import RunFiles
from tasks.process.stop import StopFlag
from worker_config.celery_app import DRAIN_TASK, make_celery, send_bell
from worker_config.logs import configure_logging
from worker_config.settings import (
    CONFIGURATION_EXIT_CODE,
    Settings,
    SettingsError,
    load_settings,
    names_malloc_arenas,
    set_library_defaults,
)

# Memory that malloc keeps to itself.

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


_log = logging.getLogger(__name__)

BROKEN_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h."""

STOP_CHECK_S = 0.1


class Served(Protocol):
    """What a child owns once it is ready."""

    def run_slice(self) -> None:
        """One slice of work."""

    def leave(self) -> None:
        """A clean stop."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a child is started with.

    Attributes:
        worker_id: the same for every child of one parent.
        stop: whether to stop.
        ring: sends the bell of a queue; never raises. One of its own queue that cannot be sent, the worker takes for
            heard.
        wake: begins a slice without a bell, after the one that may be running.
    """

    settings: Settings
    worker_id: str
    stop: Callable[[], bool]
    ring: Callable[[str], None]
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of worker.

    Attributes:
        command: of `embedq`; what it says to people begins with it.
        title: what it is called in a sentence.
        queue: whose bells it hears.
        start: makes the child ready; returns once it serves.
        refusals: of `start`: the worker cannot run, and the text says why and what to do.
        breaks: of a slice: this process must be replaced.
    """

    command: str
    title: str
    queue: Callable[[Settings], str]
    start: Callable[[Start], Served]
    refusals: tuple[type[Exception], ...]
    breaks: tuple[type[Exception], ...]


class _Child:
    """What this process serves, once it does. Made in the parent, filled in the child."""

    def __init__(self, role: Role, settings: Settings, app: Celery, stop: StopFlag) -> None:
        self._role = role
        self._settings = settings
        self._app = app
        self._stop = stop
        self._id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._served: Served | None = None
        self._slices: Slices | None = None

    def load(self, **_: Any) -> None:
        """Signal handler of `worker_process_init`."""
        share_arenas()
        threading.Thread(target=self._leave_if_stopped_early, daemon=True).start()
        self._slices = Slices(self._get_ready, self._run_slice)
        self._slices.start()
        self._slices.wait_ready()

    def drain(self) -> None:
        """Body of the Celery task."""
        if self._slices is None:
            # Impossible unless the signal was missed; every slice would be a lie.
            self._refuse(f"the {self._role.title} was never made ready")
            return
        self._slices.hear()

    def leave(self, *, exitcode: int, **_: Any) -> None:
        """Signal handler of `worker_process_shutdown`."""
        if self._slices is not None:
            self._slices.finish()
        if self._served is not None:
            self._served.leave()
        os._exit(exitcode)  # billiard would do that too, after one second's sleep

    def _get_ready(self) -> None:
        start = Start(self._settings, self._id, self._stop.__bool__, self._ring, self._wake)
        try:
            self._served = self._role.start(start)
        except self._role.refusals as error:
            self._refuse(str(error))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread; Celery would go on without it
            self._refuse(f"the {self._role.title} cannot start: {type(error).__name__}: {error}")

    def _run_slice(self) -> None:
        assert self._served is not None, "a process that is not ready has left"  # noqa: S101 - for the type checker
        try:
            self._served.run_slice()
        except self._role.breaks as error:
            _log.critical("this process cannot go on (%s); a new one takes over", error)
            os._exit(BROKEN_EXIT_CODE)
        except MemoryError:
            # What was claimed comes back when its lease ends.
            _log.error("a slice ran out of memory outside of its work")
        except Exception:  # noqa: BLE001 - the boundary of a thread, without which the process would look healthy
            _log.exception("a slice failed")

    def _wake(self) -> None:
        if self._slices is not None:
            self._slices.want()

    def _ring(self, queue: str) -> None:
        try:
            send_bell(self._app, queue)
        except Exception as error:  # noqa: BLE001 - kombu lets through what its transport raises, a full Redis's refusal too
            _log.warning("bell not sent (%s)", type(error).__name__)
            if queue == self._role.queue(self._settings):
                # The ledger believes in this bell, so nobody else sends one for a while.
                self._wake()

    def _leave_if_stopped_early(self) -> None:
        # A load takes seconds to minutes and nothing interrupts it; there is nothing to give back before its end.
        while self._served is None:
            if self._stop:
                os._exit(os.EX_OK)
            time.sleep(STOP_CHECK_S)

    def _refuse(self, message: str) -> None:
        RunFiles(self._settings.run_dir).set_failure(message)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(CONFIGURATION_EXIT_CODE)


def run(role: Role, settings: Settings) -> int:
    """Runs a worker until it is told to stop; its exit code."""
    files = RunFiles(settings.run_dir)
    try:
        files.take()
    except OSError as error:
        sys.stderr.write(f"embedq {role.command}: EMBEDQ_RUN_DIR={settings.run_dir}: {error.strerror or error}\n")
        return CONFIGURATION_EXIT_CODE
    stop = StopFlag()
    app = make_celery(settings, models=(role.queue(settings),))
    child = _Child(role, settings, app, stop)
    app.task(name=DRAIN_TASK)(child.drain)
    _connect(child, stop)
    parent = make_parent(app, files, heartbeat_s=settings.heartbeat_s)
    parent.start()
    failure = files.failure()
    if failure is not None:
        sys.stderr.write(f"embedq {role.command}: {failure}\n")
        return CONFIGURATION_EXIT_CODE
    # A child that left before Celery had counted it in looks like a failed start; whoever asked for a stop got one.
    return 0 if stop else int(parent.exitcode or 0)


def _connect(child: _Child, stop: StopFlag) -> None:
    def shutting_down(**_: Any) -> None:
        if not stop:  # whoever asks again does not get more time
            limit_stop()
        stop.set()

    def keep_our_logging(**_: Any) -> None:
        """A receiver of `setup_logging` keeps Celery from replacing ours."""

    # Not weakly: nobody else holds these two.
    signals.setup_logging.connect(keep_our_logging, weak=False)
    signals.worker_process_init.connect(child.load)
    signals.worker_process_shutdown.connect(child.leave)
    signals.worker_shutting_down.connect(shutting_down, weak=False)


def main(role: Role) -> int:
    """Entry point of a role's module."""
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"embedq {role.command}: {error}\n")
        return CONFIGURATION_EXIT_CODE
    configure_logging(settings.log_level)
    logging.captureWarnings(capture=True)
    # Celery warns root about pickle; this app accepts JSON without data only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    set_library_defaults(settings.threads)
    return run(role, settings)
