"""The Celery parent of a worker: how it starts and stops, how one sees that it is alive, what it says of its child.

Every role has the same one: it consumes bells and keeps one child. It imports nothing heavy.
"""

import contextlib
import itertools
import logging
import os
import re
import signal
import warnings
from types import FrameType
from typing import Any, NoReturn

import billiard
import psutil
from billiard.exceptions import WorkerLostError
from celery import Celery, bootsteps, signals
from celery.apps import worker as celery_worker
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # the stubs lack it

from tasks.worker.process.child import Role, WorkerChild
from tasks.worker.process.consumer import ALIVE_EVERY_S, PatientConsumer
from tasks.worker.process.hangs import DEFAULT_PATIENCE, HangWatch, Patience
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from worker_config.celery_app import BELL_TASK, make_celery
from worker_config.logs import name_worker, write_refusal
from worker_config.settings import (
    CONFIGURATION_EXIT_CODE,
    OVERDUE_EXIT_CODE,
    Settings,
    SettingsError,
    load_settings,
    set_library_defaults,
)
from worker_config.subject import about_tasks

_log = logging.getLogger(__name__)

_SEMAPHORES = "/dev/shm"  # noqa: S108 - the C library has them there
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MOST_LOADS = 3
"""Deaths of a child while it loads, one after the other, before the worker ends: whoever supervises it has pauses of
its own, and people look at exit codes."""
MOST_NAMED = 3
_SIGNAL = re.compile(r"signal (\d+)")


def main(role: Role, patience: Patience = DEFAULT_PATIENCE) -> int:
    """Entry point of a role's module; the exit code."""
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
    folder, shared = RunFolder(settings.run_dir), SharedPage()
    try:
        worker_id = folder.take()
    except OSError as error:
        return _refused(role, f"EMBEDQ_RUN_DIR={settings.run_dir}: {error.strerror or error}")
    try:
        billiard.Semaphore()  # as Celery makes them, which would not say where they are
    except OSError as error:
        return _refused(role, f"{_SEMAPHORES} cannot be used: {error.strerror or error}. Mount a tmpfs there.")
    name_worker(worker_id)
    app = make_celery(settings, queues=(role.queue(settings),))
    deaths = Deaths(shared)
    child = WorkerChild(
        role,
        settings,
        worker_id,
        folder=folder,
        shared=shared,
        patience=patience,
        failed_loads=lambda: deaths.while_loading,
    )
    app.task(name=BELL_TASK)(child.hear_bell)
    _connect(child, shared, patience.stop_s)
    for logger in (logging.getLogger("multiprocessing"), logging.getLogger("celery.worker.request")):
        logger.addFilter(deaths)
    parent = _Parent(app, folder, shared, HangWatch(shared.beats, patience.child_s), settings.redis_address)
    parent.start()
    # The interpreter's end replaces handlers by the default action, which kills. It leaves what is ignored.
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    refusal = shared.refusal()
    if refusal is not None:
        return _refused(role, *refusal)
    # A child that left before Celery had counted it in looks like a failed start; whoever asked for a stop got one.
    return 0 if shared.stopping() else int(parent.exitcode or 0)


def _refused(role: Role, why: str, exit_code: int = CONFIGURATION_EXIT_CODE) -> int:
    write_refusal(f"embedq {role.command}", why)
    return exit_code


class Deaths(logging.Filter):
    """Says in our words how a child has died, and with what in hand, in place of lines of billiard and Celery.

    Their lines are the one place where they tell it. One of a child that loads ends the worker if it comes too often.
    """

    def __init__(self, shared: SharedPage) -> None:
        super().__init__()
        self._shared = shared
        self.while_loading = 0
        """How many children have died since one became ready."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Called with each record of their loggers; whether to log it."""
        kind = record.exc_info[0] if isinstance(record.exc_info, tuple) else None
        if kind is not None and issubclass(kind, WorkerLostError):
            return False
        if str(record.msg).startswith("Process %r pid:%r exited with") and isinstance(record.args, tuple):
            self.say(str(record.args[-1]))
            return False
        return True

    def say(self, how: str) -> None:
        """A child has ended: `signal 9 (SIGKILL)` or `exitcode 70`."""
        task_ids, loaded = self._shared.in_hand(), self._shared.loaded
        self._shared.forget_child()
        if self._shared.refusal() is not None:  # it has left the reason, which is told at the end of this worker
            return
        how = how.replace(" (", ", ").rstrip(")")
        if loaded:
            self.while_loading = 0
        elif not self._shared.stopping():
            self._died_while_loading(how)
            return
        if not task_ids:
            _log.error("worker process died (%s); a new one takes over", how)
            return
        with about_tasks(task_ids):
            more = len(task_ids) - MOST_NAMED
            named = ", ".join(task_ids[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            _log.error("worker process died (%s) while it worked on %s; its texts are tried again alone", how, named)

    def _died_while_loading(self, how: str) -> None:
        self.while_loading += 1
        number = _SIGNAL.match(how)
        killed = f"was killed ({how})" if number else f"ended ({how})"
        advice = "; out of memory? Raise the worker's memory limit, or set a smaller EMBEDQ_MODEL" if number else ""
        if self.while_loading < MOST_LOADS:
            _log.error("worker process %s while loading%s", killed, advice)
            return
        message = f"The worker process {killed} while loading, {MOST_LOADS} times in a row{advice}."
        # As a shell says it, and as the runbook looks for it: 137 is SIGKILL.
        self._shared.refuse(message, 128 + int(number[1]) if number else OVERDUE_EXIT_CODE)
        os.kill(os.getpid(), signal.SIGTERM)


def _connect(child: WorkerChild, shared: SharedPage, stop_s: int) -> None:
    def shutting_down(**_: Any) -> None:
        if not shared.stopping():  # whoever asks again does not get more time
            _limit_stop(stop_s)
        shared.stop()

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
        folder: it touches the alive file from its own loop, and while it waits for the broker.
        shared: with its children.
        child_hangs: a watch over the child's heartbeat.
        address: of the Redis that carries the bells, for people.
    """

    def __init__(
        self, app: Celery, folder: RunFolder, shared: SharedPage, child_hangs: HangWatch, address: str
    ) -> None:
        self.address = address
        self._folder = folder
        self._shared = shared
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
        self._folder.touch_alive()
        self._shared.turn()
        if self._child_hangs():
            _log.critical(
                "the child's heartbeat has not turned for %.0f s; replacing the child", self._child_hangs.patience_s
            )
            _kill_children()

    def dropped(self, bells: int) -> None:
        """So many messages since the start were no bells."""
        self._shared.dropped = bells


class _Alive(bootsteps.StartStopStep):
    """From the loop's timer: the file grows old when the loop hangs, which is what a probe must see."""

    requires = ("celery.worker.components:Timer",)

    def start(self, parent: Any) -> None:
        """Called by Celery when the timer runs."""
        parent.turned()
        parent.timer.call_repeatedly(ALIVE_EVERY_S, parent.turned)
