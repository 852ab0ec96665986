"""The child of a Celery parent: it gets ready, and lets its streams work while Celery's own thread waits for them.

The child gets ready in `worker_process_init`, before it can hear a bell. One that cannot serve leaves the reason with
its parent and stops it: Celery swallows exceptions of that signal and would go on without it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import billiard.pool

from tasks.worker.claim_loop import Streams
from tasks.worker.process.hangs import Patience
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage, Stopping
from worker_config.bell import BellThread
from worker_config.celery_app import make_celery
from worker_config.redis_connection import explain
from worker_config.settings import Settings
from worker_config.traces import Traces, open_traces

_log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""For all of a stop but the streams: the turn of the parent, the looks below, the last beat. Out of the time after
which the parent kills this process."""
STOP_CHECK_S = 0.1
RESULT_CHECKS = 5
"""Every 0.1 s this process looks whether its parent has read the result of the last bell. A parent that stops may have
left its loop and reads nothing any more; billiard would look 300 times. Nobody needs the result of a bell."""
PAUSES_S = (0.0, 2.0, 8.0)
"""Before a load, by the number of children that have died while they loaded."""


class Served(Protocol):
    """What a child owns once it is ready."""

    @property
    def streams(self) -> Streams:
        """Its threads that work."""
        ...

    def leave(self, patience_s: float) -> None:
        """A clean stop: waits so long for streams to leave their work."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a role is started with in the child.

    Attributes:
        settings: of the process.
        worker_id: the same for every child of one parent, and for the one that is started in its place.
        shared: with the parent.
        folder: for probes.
        send_bell: sends the bell of a queue; never raises. If the bell of this worker's own queue cannot be sent, the
            worker acts as if it had rung.
        patience: with what stands still.
        traces: of this process; None: there are none.
    """

    settings: Settings
    worker_id: str
    shared: SharedPage
    folder: RunFolder
    send_bell: Callable[[str], None]
    patience: Patience
    traces: Traces | None = None


@dataclass(frozen=True, slots=True)
class Role:
    """One kind of worker.

    Attributes:
        command: of `embedq`; messages to people begin with it.
        title: what it is called in a sentence.
        queue: whose bells it hears.
        start: makes the child ready; returns once it serves. `Stopping` means that it was told to stop meanwhile.
        refusals: of `start`: the worker cannot run, and the text says why and what to do.
    """

    command: str
    title: str
    queue: Callable[[Settings], str]
    start: Callable[[Start], Served]
    refusals: tuple[type[Exception], ...]


class WorkerChild:
    """A process with one role. Made in the parent, filled in the child.

    Args:
        role: its kind.
        settings: of the process.
        worker_id: of the parent and its children.
        folder: the parent has taken it.
        shared: with the parent.
        patience: with what stands still.
        failed_loads: how many children before this one have died while they loaded.
    """

    def __init__(
        self,
        role: Role,
        settings: Settings,
        worker_id: str,
        *,
        folder: RunFolder,
        shared: SharedPage,
        patience: Patience,
        failed_loads: Callable[[], int],
    ) -> None:
        self._role = role
        self._settings = settings
        self._id = worker_id
        self._folder = folder
        self._shared = shared
        self._patience = patience
        self._failed_loads = failed_loads
        self._served: Served | None = None
        self._bells: BellThread | None = None
        self._traces: Traces | None = None

    def load(self, **_: Any) -> None:
        """Signal handler of `worker_process_init`."""
        billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = RESULT_CHECKS
        threading.Thread(target=self._leave_if_stopped_early, daemon=True).start()
        time.sleep(PAUSES_S[min(self._failed_loads(), len(PAUSES_S) - 1)])
        self._folder.clear_ready()
        # Not the parent's app: this one waits a second for a Redis that stands still, as the web tier does.
        self._bells = bells = BellThread(make_celery(self._settings), self._told_of_bell)
        self._traces = open_traces(role=self._role.command, instance=self._id)
        start = Start(
            self._settings, self._id, self._shared, self._folder, bells.send_bell, self._patience, self._traces
        )
        try:
            self._served = self._role.start(start)
        except Stopping:
            os._exit(os.EX_OK)
        except self._role.refusals as error:
            self._shared.refuse_in_child(str(error))
        except BaseException as error:  # noqa: BLE001 - Celery would swallow it and go on without the role
            why = explain(error) or f"{type(error).__name__}: {error}"
            self._shared.refuse_in_child(f"the {self._role.title} cannot start: {why}")
        self._shared.loaded = True

    def hear_bell(self) -> None:
        """Body of the Celery task."""
        if self._served is None:
            # Impossible unless the signal was missed; every bell would be a lie.
            self._shared.refuse_in_child(f"the {self._role.title} was never made ready")
        self._served.streams.wake(rang=True)
        self._served.streams.wait_idle()

    def leave(self, *, exitcode: int, **_: Any) -> None:
        """Signal handler of `worker_process_shutdown`."""
        self._folder.clear_ready()
        if self._served is not None:
            self._served.leave(self._patience.stop_s - LEAVE_S)
        if self._bells is not None:
            self._bells.close()
        if self._traces is not None:
            self._traces.close()
        os._exit(exitcode)  # billiard would do that too, after one second's sleep

    def _told_of_bell(self, queue: str, sent: bool) -> None:
        # The ledger believes in this bell, so nobody else sends one for a while.
        if not sent and self._served is not None and queue == self._role.queue(self._settings):
            self._served.streams.wake(rang=False)

    def _leave_if_stopped_early(self) -> None:
        # A load takes seconds to minutes and nothing interrupts it; there is nothing to give back before its end.
        while self._served is None:
            if self._shared.stopping():
                os._exit(os.EX_OK)
            time.sleep(STOP_CHECK_S)
