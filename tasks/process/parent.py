"""The Celery parent of a worker: how it starts, stops, and how one sees that it is alive.

Every role has the same one: it consumes bells and keeps one child. It imports nothing heavy.
"""

import contextlib
import gc
import itertools
import logging
import os
import signal
import warnings
from types import FrameType
from typing import Any, NoReturn

import billiard
import psutil
from celery import Celery, bootsteps, signals
from celery.apps import worker as celery_worker
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # the stubs lack it

from tasks.process.child import WorkerChild
from tasks.process.consumer import ALIVE_EVERY_S, PatientConsumer
from tasks.process.liveness import DEFAULT_PATIENCE, HangWatch, Patience
from tasks.process.role import Role
from tasks.process.run_files import RunFiles
from tasks.process.stop import StopFlag
from worker_config.celery_app import DRAIN_TASK, make_celery
from worker_config.logs import write_refusal
from worker_config.settings import (
    CONFIGURATION_EXIT_CODE,
    OVERDUE_EXIT_CODE,
    Settings,
    SettingsError,
    load_settings,
    set_library_defaults,
)

_log = logging.getLogger(__name__)

_SEMAPHORES = "/dev/shm"  # noqa: S108 - the C library has them there
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(role: Role, patience: Patience = DEFAULT_PATIENCE) -> int:
    """Entry point of a role's module; the exit code."""
    # What was imported lives as long as the process. No round of the collector looks at it again: neither the last one
    # of the interpreter, a sixth of a second of a stop, nor one in the child, which would then copy the pages.
    gc.freeze()
    try:
        settings = load_settings(role.command)
    except SettingsError as error:
        return _refused(role, str(error))
    logging.captureWarnings(capture=True)
    # Celery warns root about pickle; this app accepts JSON without data only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    set_library_defaults(settings.threads)
    return run(role, settings, patience)


def run(role: Role, settings: Settings, patience: Patience) -> int:
    """Runs a worker until it is told to stop; its exit code."""
    files = RunFiles(settings.run_dir)
    try:
        files.take()
    except OSError as error:
        return _refused(role, f"EMBEDQ_RUN_DIR={settings.run_dir}: {error.strerror or error}")
    try:
        billiard.Semaphore()  # as Celery makes them, which would not say where they are
    except OSError as error:
        return _refused(role, f"{_SEMAPHORES} cannot be used: {error.strerror or error}. Mount a tmpfs there.")
    stop = StopFlag()
    app = make_celery(settings, queues=(role.queue(settings),))
    child = WorkerChild(role, settings, stop, patience)
    app.task(name=DRAIN_TASK)(child.drain)
    _connect(child, stop, patience.stop_s)
    hangs = HangWatch(files.beat_at, settings.heartbeat_s + patience.child_s)
    parent = _Parent(app, files, hangs, settings.redis_address)
    parent.start()
    # The interpreter's end replaces handlers by the default action, which kills. It leaves what is ignored.
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    failure = files.failure()
    if failure is not None:
        return _refused(role, failure)
    # A child that left before Celery had counted it in looks like a failed start; whoever asked for a stop got one.
    return 0 if stop else int(parent.exitcode or 0)


def _refused(role: Role, why: str) -> int:
    write_refusal(f"embedq {role.command}", why)
    return CONFIGURATION_EXIT_CODE


def _connect(child: WorkerChild, stop: StopFlag, stop_s: int) -> None:
    def shutting_down(**_: Any) -> None:
        if not stop:  # whoever asks again does not get more time
            _limit_stop(stop_s)
        stop.set()

    def keep_our_logging(**_: Any) -> None:
        """A receiver of `setup_logging` keeps Celery from replacing ours."""

    # Not weakly: nobody else holds these two.
    signals.setup_logging.connect(keep_our_logging, weak=False)
    signals.worker_process_init.connect(child.load)
    signals.worker_process_shutdown.connect(child.leave)
    signals.worker_shutting_down.connect(shutting_down, weak=False)


def _limit_stop(stop_s: int) -> None:
    """From now on this process and its children have `stop_s` seconds to live."""

    def leave_now(_number: int, _frame: FrameType | None) -> NoReturn:
        _log.error("the stop takes longer than %d s; leaving at once", stop_s)
        _kill_children()
        os._exit(OVERDUE_EXIT_CODE)

    signal.signal(signal.SIGALRM, leave_now)
    signal.alarm(stop_s)


def _kill_children() -> None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


class _Parent(celery_worker.Worker):
    """Celery's worker with two signals: SIGTERM and Ctrl-C both mean a warm stop.

    Args:
        app: whose bells it consumes.
        files: it touches the alive file from its own loop, and while it waits for the broker.
        child_hangs: a watch over the child's heartbeat.
        address: of the Redis that carries them, for people.
    """

    def __init__(self, app: Celery, files: RunFiles, child_hangs: HangWatch, address: str) -> None:
        self.address = address
        self._files = files
        self._child_hangs = child_hangs
        app.steps["worker"].add(_Alive)
        super().__init__(
            app=app,
            consumer_cls=PatientConsumer,
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )

    def install_platform_tweaks(self, worker: Any) -> None:
        """Called by Celery once, at start."""
        install = celery_worker.install_worker_term_handler  # type: ignore[attr-defined]  # the stubs lack it
        install(worker, verbose=False)
        warm_stop: Any = signal.getsignal(signal.SIGTERM)
        calls = itertools.count()

        def stop_once(number: int, frame: FrameType | None) -> None:
            # Celery dispatches under a lock that is not reentrant. A second signal on top of the first would wait for
            # it for ever, before the stop has got its limit. `next` is atomic under a signal.
            if next(calls) == 0:
                warm_stop(number, frame)

        for number in _STOP_SIGNALS:
            signal.signal(number, stop_once)

    def turned(self) -> None:
        """To be called with each turn of the loop: touches the alive file, and kills a child whose heartbeat is still.

        No thread of Python can end a process whose interpreter is held. A timer of C in the child would run on while a
        container is paused, and kill the child when it goes on; the parent is paused with it. Celery forks another
        child.
        """
        self._files.touch_alive()
        if self._child_hangs():
            _log.critical(
                "the child's heartbeat has not turned for %.0f s; replacing the child", self._child_hangs.patience_s
            )
            self._files.clear_beat()
            _kill_children()

    def dropped(self, bells: int) -> None:
        """So many messages since the start were no bells."""
        self._files.set_dropped_bells(bells)


class _Alive(bootsteps.StartStopStep):
    """From the loop's timer: the file grows old when the loop hangs, which is what a probe must see."""

    requires = ("celery.worker.components:Timer",)

    def start(self, parent: Any) -> None:
        """Called by Celery when the timer runs."""
        parent.turned()
        parent.timer.call_repeatedly(ALIVE_EVERY_S, parent.turned)
