"""The Celery parent of a model worker: how it stops, how it waits for the broker, and how one sees that it is alive."""

import contextlib
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import psutil
from celery import Celery, bootsteps
from celery.apps import worker as celery_worker
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown

from tasks.process.run_files import RunFiles
from worker_config.settings import OVERDUE_EXIT_CODE

_log = logging.getLogger(__name__)

ALIVE_EVERY_S = 0.2
"""The loop looks for a stop only when it turns, so this is also how long a stop may go unnoticed."""

STOP_WITHIN_S = 15
"""Below everybody's patience with SIGTERM (Compose: 30 s). A stop takes about a second; only a Redis that hangs takes
longer, many timeouts in a row, and what is claimed then comes back by its lease anyway."""

FROZEN_S = 120.0
"""Without a turn of the child's heartbeat, beyond the time between two, something holds its interpreter for ever. Far
above the longest turn, that of a Redis that hangs."""

SAY_AGAIN_S = 60.0

RECONNECT_EVERY_S = 1.0
"""Celery's own waits grow to 30 s: after an outage of a minute nobody would work for half a minute more."""


def limit_stop() -> None:
    """From now on this process and its children have `STOP_WITHIN_S` seconds to live."""
    signal.signal(signal.SIGALRM, _leave_now)
    signal.alarm(STOP_WITHIN_S)


def _leave_now(_number: int, _frame: FrameType | None) -> NoReturn:
    _log.error("the stop takes longer than %d s; leaving at once", STOP_WITHIN_S)
    _kill_children()
    os._exit(OVERDUE_EXIT_CODE)


def _kill_children() -> None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


class _Parent(celery_worker.Worker):
    """Celery's worker with two signals: SIGTERM and Ctrl-C both mean a warm stop."""

    def install_platform_tweaks(self, worker: Any) -> None:
        """Called by Celery once, at start."""
        install = celery_worker.install_worker_term_handler  # type: ignore[attr-defined]  # the stubs lack it
        install(worker, verbose=False)
        install(worker, sig="SIGINT", verbose=False)


def _watching_turn(files: RunFiles, patience_s: float) -> Callable[[], None]:
    """What each turn of the parent does: says that it turned, and kills a child whose heartbeat has stood still.

    No thread of Python can end a process whose interpreter is held, and a timer of C would run on while both are
    paused. Celery forks another child.
    """
    frozen = files.beat_watch(patience_s)

    def turned() -> None:
        files.touch_alive()
        if frozen():
            _log.critical("the child's heartbeat has not turned for %.0f s; replacing the child", patience_s)
            files.clear_beat()
            _kill_children()

    return turned


def make_parent(app: Celery, files: RunFiles, *, heartbeat_s: float) -> celery_worker.Worker:
    """A worker of `app` that touches the alive file from its own loop, and while it waits for the broker.

    It looks at the child's heartbeat, due every so many seconds, as often.
    """
    turned = _watching_turn(files, heartbeat_s + FROZEN_S)

    class Alive(bootsteps.StartStopStep):
        """From the loop's timer: the file grows old when the loop hangs, which is what a probe must see."""

        requires = ("celery.worker.components:Timer",)

        def start(self, parent: Any) -> None:
            """Called by Celery when the timer runs."""
            turned()
            parent.timer.call_repeatedly(ALIVE_EVERY_S, turned)

    class PatientConsumer(Consumer):
        """Waiting for the broker is not hanging; one that refuses (a replica, a full Redis) is waited for as well."""

        _refused_s = -math.inf

        def on_connection_error_after_connected(self, exc: Exception) -> None:
            """Called by Celery before it connects anew."""
            if time.monotonic() - self._refused_s > SAY_AGAIN_S:
                _log.warning("the broker fails (%s); connecting anew every second", type(exc).__name__)
                self._refused_s = time.monotonic()
            super().on_connection_error_after_connected(exc)
            turned()
            time.sleep(RECONNECT_EVERY_S)  # connecting may work, and the first command fail again

        def ensure_connected(self, conn: Any) -> Any:
            """The connection, once there is one; a stop ends the wait."""

            def waited() -> None:
                turned()
                maybe_shutdown()

            return conn.ensure_connection(
                None,
                None,
                interval_start=RECONNECT_EVERY_S,
                interval_step=0,
                interval_max=RECONNECT_EVERY_S,
                callback=waited,
            )

    app.steps["worker"].add(Alive)
    return _Parent(
        app=app,
        consumer_cls=PatientConsumer,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
