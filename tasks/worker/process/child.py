"""The child of a Celery parent: it gets ready, and a bell wakes its streams.

The child gets ready in `worker_process_init`, before it can hear a bell. One that cannot serve leaves the reason with
its parent and stops it: Celery swallows exceptions of that signal and would go on without it.
"""

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import billiard.pool

from tasks.ledger.client import reason
from tasks.worker.process.hangs import Patience
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage, Stopping
from worker_config.celery_app import make_celery
from worker_config.settings import Settings
from worker_config.telemetry import close_traces, open_traces
from worker_config.wake_up import BellThread

_log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""For all of a stop but the streams: the turn of the parent, the looks below, the last beat. Out of the time after
which the parent kills this process."""
LOAD_PAUSES_S = (0.0, 2.0, 10.0)
"""Before a load, after so many in a row that ended in a death."""
STOP_CHECK_S = 0.1
RESULT_CHECKS = 5
"""Every 0.1 s this process looks whether its parent has read the result of the last bell. A parent that stops may have
left its loop and reads nothing any more; billiard would look 300 times. Nobody needs the result of a bell."""


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of worker.

    Attributes:
        command: of `embedq`; messages to people begin with it.
        queue: whose bells it hears.
        start: makes the child ready; returns once it serves, with what leaves it: a clean stop, which waits so many
            seconds for work under way. `Stopping` means that it was told to stop meanwhile.
        refusals: of `start`: the worker cannot run, and the text says why and what to do.
    """

    command: str
    queue: Callable[[Settings], str]
    start: Callable[["WorkerChild"], Callable[[float], None]]
    refusals: tuple[type[Exception], ...]


class WorkerChild:
    """A process with one role. Made in the parent, and made ready in the child.

    Attributes:
        worker_id: the same for every child of one parent, and for the one that is started in its place.
        folder: for probes; the parent has taken it.
        shared: with the parent.
        on_bell: called when a bell is heard; returns at once.
    """

    def __init__(
        self,
        role: Role,
        settings: Settings,
        *,
        folder: RunFolder,
        shared: SharedPage,
        patience: Patience,
        worker_id: str,
    ) -> None:
        self.settings, self.worker_id, self.folder = settings, worker_id, folder
        self.shared, self.patience = shared, patience
        self._close_traces: Callable[[], None] = lambda: None
        self.on_bell: Callable[[], None] = lambda: None
        self._role = role
        self._bells: BellThread | None = None
        self._leave: Callable[[float], None] | None = None

    def load(self, **_: Any) -> None:
        """Signal handler of `worker_process_init`."""
        billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = RESULT_CHECKS
        threading.Thread(target=self._leave_if_stopped_early, daemon=True).start()
        self.folder.clear_ready()
        time.sleep(LOAD_PAUSES_S[min(self.shared.failed_loads, len(LOAD_PAUSES_S) - 1)])
        # Not the parent's app: this one waits a second for a Redis that stands still, as the web tier does.
        self._bells = BellThread(make_celery(self.settings), lambda _queue, _sent: None)
        self._close_traces = partial(close_traces, open_traces(role=self._role.command, instance=self.worker_id))
        try:
            self._leave = self._role.start(self)
        except Stopping:
            os._exit(os.EX_OK)
        except self._role.refusals as error:
            self.shared.refuse_in_child(str(error))
        except BaseException as error:  # noqa: BLE001 - Celery would swallow it and go on without the role
            _log.critical("it cannot start: %s", reason(error))
            os._exit(os.EX_SOFTWARE)  # a death while loading, which is tried again
        # A full round of the garbage collector over all that a model imports stops every thread for 350 ms. What exists
        # now lives as long as the process, so it is taken out of the rounds.
        gc.collect()
        gc.freeze()
        self.shared.loaded = 1

    def send_bell(self, queue: str) -> None:
        """Sends the bell of a queue; never raises. If it cannot be sent, a heartbeat finds what it was to ring for."""
        if self._bells is not None:
            self._bells.send_bell(queue)

    def hear_bell(self) -> None:
        """Body of the Celery task."""
        self.on_bell()

    def leave(self, *, exitcode: int, **_: Any) -> None:
        """Signal handler of `worker_process_shutdown`."""
        self.folder.clear_ready()
        if self._leave is not None:
            self._leave(self.patience.stop_s - LEAVE_S)
        if self._bells is not None:
            self._bells.close()
        self._close_traces()
        os._exit(exitcode)  # billiard would do that too, after one second's sleep

    def _leave_if_stopped_early(self) -> None:
        # A load takes seconds to minutes and nothing interrupts it; there is nothing to give back before its end.
        while self._leave is None:
            if self.shared.stopping():
                os._exit(os.EX_OK)
            time.sleep(STOP_CHECK_S)
