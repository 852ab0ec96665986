"""Logging: one line per event on stderr, and no tracebacks of failures that were foreseen."""

import logging
import sys

_LIBRARIES = ("celery", "kombu", "billiard", "redis")
_CHATTY = ("celery.app.trace", "celery.worker.strategy", "httpx", "sentence_transformers", "transformers")
_MAX_CHARS = 300


class _OneLine(logging.Filter):
    """Keeps libraries' tracebacks out: a killed child or a broker that is away is an event, not a defect.

    The exception's type is kept; its text may hold a URL with a password.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_LIBRARIES) or record.name == "py.warnings":
            kind = record.exc_info[0] if record.exc_info else None
            message = " ".join(record.getMessage().split())[:_MAX_CHARS]
            record.msg = f"{message} ({kind.__name__})" if kind else message
            record.args, record.exc_info, record.exc_text = (), None, None
        return True


def configure_logging(level: str) -> None:
    """Sends this process's log to stderr. `level`: debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It repeats every second that the broker is away; the worker's parent says so once (tasks/process/parent.py).
    logging.getLogger("celery.worker.consumer.consumer").setLevel(logging.ERROR)
    if level != "debug":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
