"""Keeps a model's tokenizer and prompts in the storage, where documents are cut without the model."""

import logging
import threading
from collections.abc import Callable

from tasks.encoder.interface import Encoder
from tasks.errors import Unavailable
from tasks.storage.model_files import Prompts, has_model_files, write_model_files
from tasks.storage.storage import Storage

RETRY_S = 10.0
CHECK_EVERY_S = 60.0
"""A storage may be emptied, or replaced by another, while workers run."""

_log = logging.getLogger(__name__)


class TokenizerStore:
    """Writes them where they are missing, in a thread of its own: neither readiness nor work waits for a storage.

    Args:
        storage: gives the storage, or raises `StorageUnavailable`.
        encoder: whose tokenizer it is.
        retry_s: between tries while the storage is away or full.
        check_every_s: between checks whether they are still there.

    Attributes:
        checks: how often they were there, or have been written.
    """

    def __init__(
        self,
        storage: Callable[[], Storage],
        encoder: Encoder,
        *,
        retry_s: float = RETRY_S,
        check_every_s: float = CHECK_EVERY_S,
    ) -> None:
        self._storage = storage
        self._encoder = encoder
        self._retry_s = retry_s
        self._check_every_s = check_every_s
        self.checks = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokenizer-store", daemon=True)

    @property
    def done(self) -> bool:
        """Whether it was started and is over: stopped or given up."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Tries no more. Does not wait: a write under way ends with the process, and leaves nothing half-written."""
        self._stopped.set()

    def _run(self) -> None:
        logged = ""
        while not self._stopped.is_set():
            pause_s = self._check_every_s
            try:
                self._store()
                logged = ""
            except Unavailable as error:
                if error.detail != logged:
                    _log.warning("ingestions wait for the tokenizer to be stored: %s", error.detail)
                logged, pause_s = error.detail, self._retry_s
            except Exception:  # noqa: BLE001 - whatever it is, the worker serves texts all the same
                _log.exception("the tokenizer cannot be stored: documents cannot be cut for this model")
                break
            self._stopped.wait(pause_s)

    def _store(self) -> None:
        storage, revision = self._storage(), self._encoder.info.revision
        if not has_model_files(storage, revision):
            rules = self._encoder.text_rules()
            write_model_files(storage, revision, rules.tokenizer, Prompts(rules.prompts, rules.default_prompt))
        self.checks += 1
