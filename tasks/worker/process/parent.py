"""The Celery parent of a worker: how it starts and stops, how one sees that it is alive, what it says of its child.

Every role has the same one: it consumes bells and keeps one child. It imports nothing heavy.
"""

import contextlib
import logging
import os
import re
import signal
import warnings
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import billiard
import psutil
from billiard.exceptions import WorkerLostError
from celery import signals
from celery.apps import worker as celery_worker
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # the stubs lack it

from tasks.worker.process.child import LOAD_PAUSES_S, Role, WorkerChild
from tasks.worker.process.consumer import BellConsumer
from tasks.worker.process.hangs import DEFAULT_PATIENCE, HangWatch, Patience
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from worker_config.celery_app import BELL_TASK, make_celery
from worker_config.logs import about_tasks, name_worker, write_refusal
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE, OVERDUE_EXIT_CODE
from worker_config.settings import Settings, SettingsError, load_settings, set_library_defaults

_log = logging.getLogger(__name__)

_SEMAPHORES = "/dev/shm"  # noqa: S108 - the C library has them there
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MOST_LOADS = len(LOAD_PAUSES_S)
"""Deaths of a child while it loads, one after the other, before the worker ends: people look at exit codes."""
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
    folder, shared = RunFolder(settings.run_dir), SharedPage.make()
    try:
        worker_id = folder.take()
    except OSError as error:
        return _refused(role, f"EMBEDQ_RUN_DIR={settings.run_dir}: {error.strerror or error}")
    try:
        billiard.Semaphore()  # as Celery makes them, which would not say where they are
    except OSError as error:
        return _refused(role, f"{_SEMAPHORES} cannot be used: {error.strerror or error}. Mount a tmpfs there.")
    name_worker(worker_id)
    child = WorkerChild(role, settings, folder=folder, shared=shared, patience=patience, worker_id=worker_id)
    app = make_celery(settings, queues=(role.queue(settings),))
    app.task(name=BELL_TASK)(child.hear_bell)
    signals.setup_logging.connect(_keep_our_logging)
    signals.worker_process_init.connect(child.load)
    signals.worker_process_shutdown.connect(child.leave)
    deaths = Deaths(shared)
    for logger in (logging.getLogger("multiprocessing"), logging.getLogger("celery.worker.request")):
        logger.addFilter(deaths)
    turned = partial(_turned, folder, shared, HangWatch(lambda: shared.beats or None, patience.child_s))
    parent = _Parent(
        app=app,
        stops=partial(_limit_stop, shared, patience.stop_s),
        consumer_cls=partial(BellConsumer, turned=turned, shared=shared, address=settings.redis_address),
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    parent.start()
    refusal = shared.refusal()
    if refusal is not None:
        return _refused(role, *refusal)
    # A child that left before Celery had counted it in looks like a failed start; whoever asked for a stop got one.
    return 0 if shared.stopping() else int(parent.exitcode or 0)


def _refused(role: Role, why: str, exit_code: int = CONFIGURATION_EXIT_CODE) -> int:
    write_refusal(f"embedq {role.command}", why)
    return exit_code


def _keep_our_logging(**_: Any) -> None:
    """A receiver of `setup_logging` keeps Celery from replacing ours."""


class _Parent(celery_worker.Worker):
    """Celery's worker with two signals: SIGTERM and Ctrl-C both mean a warm stop. `stops` is called first."""

    def __init__(self, *, stops: Any, **options: Any) -> None:
        self._stops = stops
        super().__init__(**options)

    def install_platform_tweaks(self, worker: Any) -> None:
        """Called by Celery once, at start."""
        install = celery_worker.install_worker_term_handler  # type: ignore[attr-defined]  # the stubs lack it
        install(worker, verbose=False)
        warm_stop: Any = signal.getsignal(signal.SIGTERM)

        def stop(number: int, frame: FrameType | None) -> None:
            # Celery's handler takes a lock that is not reentrant: a second signal on top of the first would wait for
            # it for ever. The interpreter's end leaves what is ignored; it would restore the default action, a kill.
            for each in _STOP_SIGNALS:
                signal.signal(each, signal.SIG_IGN)
            self._stops()
            warm_stop(number, frame)

        for number in _STOP_SIGNALS:
            signal.signal(number, stop)


def _limit_stop(shared: SharedPage, stop_s: int) -> None:
    """The child is told to stop. From now on this process and its children have `stop_s` seconds to live."""

    def leave_now(_number: int, _frame: FrameType | None) -> NoReturn:
        _log.error("the stop takes longer than %d s; leaving at once", stop_s)
        _kill_children()
        os._exit(OVERDUE_EXIT_CODE)

    signal.signal(signal.SIGALRM, leave_now)
    signal.alarm(stop_s)
    shared.stop()


def _turned(folder: RunFolder, shared: SharedPage, child_hangs: HangWatch) -> None:
    """With each turn of the parent's loop: touches the alive file, and kills a child whose heartbeat is still.

    The file grows old when the loop hangs, which is what a probe must see. No thread of Python can end a process whose
    interpreter is held. A timer of C in the child would run on while a container is paused, and kill the child when it
    goes on; the parent is paused with it. Celery forks another child.
    """
    folder.touch_alive()
    shared.turns += 1
    if child_hangs():
        _log.critical("the child's heartbeat has not turned for %.0f s; replacing the child", child_hangs.patience_s)
        _kill_children()


def _kill_children() -> None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


class Deaths(logging.Filter):
    """Says in our words how a child has died, and with what in hand, in place of lines of billiard and Celery.

    Their lines are the one place where they tell it. One of a child that loads ends the worker if it comes too often.
    """

    def __init__(self, shared: SharedPage) -> None:
        super().__init__()
        self._shared = shared

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
        if not self._shared.stopping():
            self._shared.died(how)
        if loaded:
            self._shared.failed_loads = 0
        elif not self._shared.stopping():
            self._died_while_loading(how)
            return
        if not task_ids:
            _log.error("worker process died (%s)", how)
            return
        with about_tasks(task_ids):
            more = len(task_ids) - MOST_NAMED
            named = ", ".join(task_ids[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
            _log.error("worker process died (%s) while it worked on %s; its texts are tried again alone", how, named)

    def _died_while_loading(self, how: str) -> None:
        self._shared.failed_loads += 1
        number = _SIGNAL.match(how)
        killed = f"was killed ({how})" if number else f"ended ({how})"
        by_force = number is not None and int(number[1]) == signal.SIGKILL
        advice = "; out of memory? Raise the worker's memory limit, or set a smaller EMBEDQ_MODEL" if by_force else ""
        if self._shared.failed_loads < MOST_LOADS:
            pause_s = LOAD_PAUSES_S[self._shared.failed_loads]
            _log.error("worker process %s while loading, tried again in %.0f s%s", killed, pause_s, advice)
            return
        message = f"The worker process {killed} while loading, {MOST_LOADS} times in a row{advice}."
        # As a shell says it, and as the runbook looks for it: 137 is SIGKILL.
        self._shared.refuse(message, 128 + int(number[1]) if number else OVERDUE_EXIT_CODE)
        os.kill(os.getpid(), signal.SIGTERM)
