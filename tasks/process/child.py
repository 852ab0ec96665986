"""The child of a Celery parent: one thread gets it ready and runs all its slices. Celery's own thread waits for that.

The child gets ready in `worker_process_init`, before it can run a slice. One that cannot serve leaves the reason in a
file and stops its parent, which exits with code 78: Celery swallows exceptions of that signal and would go on without
it.
"""

import contextlib
import ctypes
import gc
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import billiard.pool
from redis.exceptions import RedisError

from tasks.errors import EmbedqError
from tasks.ledger import Ledger, operations
from tasks.process.liveness import Patience
from tasks.process.role import Role, Served, Start
from tasks.process.run_files import RunFiles
from tasks.process.stop import StopFlag, Stopping
from worker_config.bell import BellThread
from worker_config.celery_app import make_celery
from worker_config.logs import name_worker
from worker_config.redis_connection import explain
from worker_config.settings import Settings, names_malloc_arenas
from worker_config.traces import Traces, open_traces

_log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""For all of a stop but the last slice: the turn of the parent, the looks below, `leave`. Out of the time after which
the parent kills this process."""
STOP_CHECK_S = 0.1
RESULT_CHECKS = 5
"""Every 0.1 s this process looks whether its parent has read the result of the last bell. A parent that stops may have
left its loop and reads nothing any more; billiard would look 300 times. Nobody needs the result of a bell."""

_OBJECTS_BETWEEN_ROUNDS = 10_000

_M_ARENA_MAX = -8  # <malloc.h> of glibc
_ARENAS = 2


class WorkerChild:
    """A process with one role. Made in the parent, which has taken the folder of the run files; filled in the child."""

    def __init__(self, role: Role, settings: Settings, stop: StopFlag, patience: Patience) -> None:
        self._role = role
        self._settings = settings
        self._stop = stop
        self._patience = patience
        self._id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._predecessor = RunFiles(settings.run_dir).succeed(self._id)
        name_worker(self._id)
        self._served: Served | None = None
        self._slices: Slices | None = None
        self._bells: BellThread | None = None
        self._traces: Traces | None = None

    def load(self, **_: Any) -> None:
        """Signal handler of `worker_process_init`."""
        share_arenas()
        billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = RESULT_CHECKS
        threading.Thread(target=self._leave_if_stopped_early, daemon=True).start()
        # Not the parent's app: this one waits a second for a Redis that stands still, as the web tier does.
        self._bells = BellThread(make_celery(self._settings), self._told_of_bell)
        self._slices = Slices(self._get_ready, self._run_slice)
        self._slices.start()
        self._slices.wait_ready()

    def drain(self) -> None:
        """Body of the Celery task: a bell rang."""
        if self._slices is None:
            # Impossible unless the signal was missed; every slice would be a lie.
            RunFiles(self._settings.run_dir).refuse(f"the {self._role.title} was never made ready")
        self._slices.run_one()

    def leave(self, *, exitcode: int, **_: Any) -> None:
        """Signal handler of `worker_process_shutdown`."""
        if self._slices is not None:
            self._slices.finish(self._patience.stop_s - LEAVE_S)
        if self._served is not None:
            self._served.leave()
        if self._bells is not None:
            self._bells.close()
        if self._traces is not None:
            self._traces.close()
        os._exit(exitcode)  # billiard would do that too, after one second's sleep

    def _get_ready(self) -> None:
        settings = self._settings
        try:
            self._traces = open_traces(role=self._role.command, instance=self._id)
            start = Start(
                settings,
                self._id,
                self._stop.__bool__,
                self._send_bell,
                self._wake,
                self._patience,
                self._traces,
                self._predecessor,
            )
            self._served = self._role.start(start)
            collect_garbage_seldom()
        except Stopping:
            os._exit(os.EX_OK)
        except self._role.refusals as error:
            RunFiles(self._settings.run_dir).refuse(str(error))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread; Celery would go on without it
            why = explain(error) or f"{type(error).__name__}: {error}"
            RunFiles(self._settings.run_dir).refuse(f"the {self._role.title} cannot start: {why}")

    def _run_slice(self) -> None:
        assert self._served is not None, "a process that is not ready has left"  # noqa: S101 - for the type checker
        try:
            self._served.run_slice()
        except self._role.breaks as error:
            _log.critical("this process cannot go on (%s); a new one takes over", error)
            os._exit(os.EX_SOFTWARE)
        except MemoryError:
            # The claims come back when their leases end.
            _log.error("a slice ran out of memory outside of its work")
        except Exception:  # noqa: BLE001 - the boundary of a thread, without which the process would look healthy
            _log.exception("a slice failed")

    def _wake(self) -> None:
        if self._slices is not None:
            self._slices.request()

    def _send_bell(self, queue: str) -> None:
        if self._bells is not None:
            self._bells.send_bell(queue)

    def _told_of_bell(self, queue: str, sent: bool) -> None:
        if sent:
            return
        if queue == self._role.queue(self._settings):
            # The ledger believes in this bell, so nobody else sends one for a while.
            self._wake()
        ledger = Ledger.connect(self._settings.redis_url)
        with contextlib.suppress(EmbedqError, RedisError):
            ledger.run(operations.call_idle(queue))
        ledger.close()

    def _leave_if_stopped_early(self) -> None:
        # A load takes seconds to minutes and nothing interrupts it; there is nothing to give back before its end.
        while self._served is None:
            if self._stop:
                os._exit(os.EX_OK)
            time.sleep(STOP_CHECK_S)


class Slices(threading.Thread):
    """Runs slices, one at a time, until `finish`.

    A slice begins when a bell rings, and also without one: the wake-up of an idle worker must not depend on a message
    that a full Redis refuses.

    Args:
        get_ready: called once, before the first slice.
        run_slice: one slice; must not raise.
    """

    def __init__(self, get_ready: Callable[[], None], run_slice: Callable[[], None]) -> None:
        super().__init__(name="slices", daemon=True)
        self._get_ready = get_ready
        self._run_slice = run_slice
        self._turn = threading.Condition()
        self._requested = False
        self._ended = 0
        self._ready = threading.Event()
        self._finished = False

    def run(self) -> None:
        """The body of the thread."""
        self._get_ready()
        self._ready.set()
        while self._next():
            self._run_slice()
            with self._turn:
                self._ended += 1
                self._turn.notify_all()

    def wait_ready(self) -> None:
        """Returns when the process is ready."""
        self._ready.wait()

    def request(self) -> None:
        """Requests one more slice, after the one that may be running; returns at once."""
        with self._turn:
            self._requested = True
            self._turn.notify_all()

    def run_one(self) -> None:
        """Requests one more slice. Returns when the slice that runs, or else the next one, has ended."""
        with self._turn:
            at = self._ended
        self.request()
        with self._turn:
            self._turn.wait_for(lambda: self._ended > at or self._finished)

    def finish(self, patience_s: float) -> None:
        """No slice begins any more. Waits for the one that runs: a stop ends it within a forward pass."""
        with self._turn:
            self._finished = True
            self._turn.notify_all()
        self.join(patience_s)

    def _next(self) -> bool:
        with self._turn:
            self._turn.wait_for(lambda: self._requested or self._finished)
            self._requested = False
            return not self._finished


def share_arenas() -> None:
    """Lets the threads of this process share two malloc arenas, where the C library has them (glibc).

    Each thread that allocates would get one of its own, and an arena keeps what it has freed: 50 MB of a worker with
    two streams, that bought no speed. Call it before the threads start. An operator's own number stays.
    """
    if names_malloc_arenas():  # mallopt would win over the environment
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)


def collect_garbage_seldom() -> None:
    """Spares a process that is ready most of the garbage collector's work.

    What exists now lives as long as the process, so it is taken out of the rounds. Of what comes later, a page of a
    thousand documents makes tens of thousands of objects, hardly any of them in a circle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_ROUNDS)
