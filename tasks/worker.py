"""The model worker: `python -m tasks.worker`. Celery's side of it; the work is in `model_worker.py`.

The parent consumes bells and imports no torch. Its one child loads the model in `worker_process_init`, before it can
run a slice. A child that cannot serve leaves the reason in a file and stops its parent, which exits with code 78:
Celery swallows exceptions of that signal and would go on without a model.
"""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from typing import Any

from celery import Celery, signals
from celery.platforms import SecurityWarning  # type: ignore[attr-defined]  # the stubs lack it

from tasks.arenas import share_arenas
from tasks.bell import bell_sender
from tasks.errors import EmbedqError
from tasks.model.errors import EncoderBroken, ModelLoadError
from tasks.model_worker import ModelWorker
from tasks.parent import limit_stop, make_parent
from tasks.run_files import RunFiles
from tasks.stop import StopFlag
from worker_config.celery_app import DRAIN_TASK, make_celery
from worker_config.logs import configure_logging
from worker_config.settings import (
    CONFIGURATION_EXIT_CODE,
    Settings,
    SettingsError,
    load_settings,
    set_library_defaults,
)

_log = logging.getLogger(__name__)

BROKEN_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h."""

STOP_CHECK_S = 0.1


class _Child:
    """The model of this process, once there is one. Made in the parent, filled in the child."""

    def __init__(self, settings: Settings, app: Celery, stop: StopFlag) -> None:
        self._settings = settings
        self._app = app
        self._stop = stop
        self._id = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._worker: ModelWorker | None = None

    def load(self, **_: Any) -> None:
        """Signal handler of `worker_process_init`."""
        share_arenas()
        send_bell = bell_sender(self._app, self._settings.served_model_name)
        threading.Thread(target=self._leave_if_stopped_early, daemon=True).start()
        try:
            self._worker = ModelWorker.start(self._settings, self._id, stop=self._stop.__bool__, send_bell=send_bell)
        except (ModelLoadError, EmbedqError) as error:
            self._refuse(str(error))
        except BaseException as error:  # noqa: BLE001 - anything that got out would be swallowed by Celery
            self._refuse(f"the model worker cannot start: {type(error).__name__}: {error}")

    def drain(self) -> None:
        """Body of the Celery task."""
        if self._worker is None:
            # Impossible unless the signal was missed; without a model every slice would be a lie.
            self._refuse("the model worker has no model")
            return
        try:
            self._worker.run_slice()
        except EncoderBroken as error:
            _log.critical("the device is lost for this process (%s); a new one takes over", error)
            os._exit(BROKEN_EXIT_CODE)
        except MemoryError:
            # In Celery's hands it would end the whole worker. What was claimed comes back when its lease ends.
            _log.error("a slice ran out of memory outside the model")

    def leave(self, *, exitcode: int, **_: Any) -> None:
        """Signal handler of `worker_process_shutdown`."""
        if self._worker is not None:
            self._worker.leave()
        os._exit(exitcode)  # billiard would do that too, after one second's sleep

    def _leave_if_stopped_early(self) -> None:
        # A load takes seconds to minutes and nothing interrupts it; there is nothing to give back before its end.
        while self._worker is None:
            if self._stop:
                os._exit(os.EX_OK)
            time.sleep(STOP_CHECK_S)

    def _refuse(self, message: str) -> None:
        RunFiles(self._settings.run_dir).set_failure(message)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(CONFIGURATION_EXIT_CODE)


def run(settings: Settings) -> int:
    """Runs a worker until it is told to stop; its exit code."""
    files = RunFiles(settings.run_dir)
    try:
        files.take()
    except OSError as error:
        sys.stderr.write(f"embedq worker: EMBEDQ_RUN_DIR={settings.run_dir}: {error.strerror or error}\n")
        return CONFIGURATION_EXIT_CODE
    stop = StopFlag()
    app = make_celery(settings, models=(settings.served_model_name,))
    child = _Child(settings, app, stop)
    app.task(name=DRAIN_TASK)(child.drain)

    def shutting_down(**_: Any) -> None:
        if not stop:  # whoever asks again does not get more time
            limit_stop()
        stop.set()

    def keep_our_logging(**_: Any) -> None:
        """A receiver of `setup_logging` keeps Celery from replacing ours."""

    signals.setup_logging.connect(keep_our_logging)
    signals.worker_process_init.connect(child.load)
    signals.worker_process_shutdown.connect(child.leave)
    signals.worker_shutting_down.connect(shutting_down)
    parent = make_parent(app, files)
    parent.start()
    failure = files.failure()
    if failure is not None:
        sys.stderr.write(f"embedq worker: {failure}\n")
        return CONFIGURATION_EXIT_CODE
    # A child that left before Celery had counted it in looks like a failed start; whoever asked for a stop got one.
    return 0 if stop else int(parent.exitcode or 0)


def main() -> int:
    """Entry point."""
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"embedq worker: {error}\n")
        return CONFIGURATION_EXIT_CODE
    configure_logging(settings.log_level)
    logging.captureWarnings(capture=True)
    # Celery warns root about pickle; this app accepts JSON without data only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    set_library_defaults(settings.threads)
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
