"""Keeps a model's tokenizer and prompts in the storage, where documents are cut without the model."""

import logging
import threading
from collections.abc import Callable

from tasks.encoder.interface import Encoder
from tasks.errors import Unavailable
from tasks.storage.model_files import Prompts, has_model_files, write_model_files
from tasks.storage.storage import Storage

CHECK_EVERY_S = 10.0
"""A storage may be away or full, be emptied, or replaced by another, while workers run."""

_log = logging.getLogger(__name__)


def keep_tokenizer_stored(
    storage: Callable[[], Storage], encoder: Encoder, stopped: threading.Event, *, check_every_s: float = CHECK_EVERY_S
) -> None:
    """Writes them where they are missing, until `stopped`: in a thread, as neither readiness nor work waits for it.

    `storage` gives the storage, or raises `StorageUnavailable`. A write under way ends with the process, and leaves
    nothing half-written.
    """
    logged, revision = "", encoder.info.revision
    while not stopped.is_set():
        try:
            if not has_model_files(storage(), revision):
                rules = encoder.text_rules()
                write_model_files(storage(), revision, rules.tokenizer, Prompts(rules.prompts, rules.default_prompt))
            logged = ""
        except Unavailable as error:
            if error.detail != logged:
                _log.warning("ingestions wait for the tokenizer to be stored: %s", error.detail)
            logged = error.detail
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker serves texts all the same
            why = type(error).__name__
            if why != logged:
                _log.exception("the tokenizer cannot be stored: documents cannot be cut for this model")
            logged = why
        stopped.wait(check_every_s)
