"""Logging: one line per event on stderr, as text or as a JSON object, and no tracebacks of failures that were foreseen.

Both hold no text of a caller, no key, and of an exception its type and places only: the message of an exception may
hold what somebody submitted. A JSON line says what it is about, too: the process, the request and the tasks.
"""

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TypeAlias

import orjson

from worker_config.subject import current_subject

LogFormat: TypeAlias = Literal["text", "json"]

_LIBRARIES = ("celery", "kombu", "billiard", "multiprocessing", "redis", "opentelemetry")
_POOL = "multiprocessing"
"""billiard's logger. It does not propagate, and without a handler of its own its lines have no form."""
_CHATTY = (_POOL, "celery.app.trace", "celery.worker.strategy", "httpx", "sentence_transformers", "transformers")
_MAX_CHARS = 300
_MAX_IDS = 32
"""Of one line: a claim may hold pieces of a thousand tasks."""
_MAX_FRAMES = 20
_FIELDS = "embedq_fields"
"""Attribute of a record: what it says beside its message."""


def with_fields(**fields: object) -> Mapping[str, object]:
    """The argument `extra` of a call of a logger: what the line says beside its message."""
    return {_FIELDS: fields}


def json_line(role: str, logger: str, message: str, *, level: str = "info", **fields: object) -> str:
    """One line that this process did not log through `logging`."""
    return _line(datetime.now(UTC), level, logger, message, {"role": role, **fields})


class _OneLine(logging.Filter):
    """Keeps libraries' tracebacks out: a killed child or a broker that is away is an event, not a defect.

    The exception's type is kept; its text may hold a URL with a password. asyncio keeps its traceback, of our defects.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_LIBRARIES) or record.name == "py.warnings":
            kind = record.exc_info[0] if record.exc_info else None
            message = " ".join(record.getMessage().split())[:_MAX_CHARS]
            record.msg = f"{message} ({kind.__name__})" if kind else message
            record.args, record.exc_info, record.exc_text = (), None, None
        elif record.name == "asyncio":
            # What follows its first line shows the exception, and what the task or the callback was given.
            record.msg, record.args = record.getMessage().partition("\n")[0], ()
        return True


class _Text(logging.Formatter):
    """`LEVEL logger: message`, and what else the record says as `name=value`."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        line = super().formatMessage(record)
        fields: Mapping[str, Any] | None = getattr(record, _FIELDS, None)
        if fields is None:
            return line
        return " ".join([line, *(f"{name}={_shown(value)}" for name, value in {**fields, **_ids()}.items())])

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        kind, _, trace = ei
        return "\n  ".join([f"Traceback of {kind.__name__}:", *_places(trace)]) if kind else ""


class _Json(logging.Formatter):
    """One JSON object. `process`: what each line says of this process."""

    def __init__(self, process: Mapping[str, str]) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields = {**self._process, "pid": record.process, **getattr(record, _FIELDS, {}), **_ids()}
        if record.exc_info and record.exc_info[0] is not None:
            fields |= _of_exception(record.exc_info[0], record.exc_info[2])
        moment = datetime.fromtimestamp(record.created, UTC)
        return _line(moment, record.levelname.lower(), record.name, record.getMessage(), fields)


def _ids() -> dict[str, object]:
    subject = current_subject()
    if subject is None:
        return {}
    ids: dict[str, object] = {}
    if subject.request_id:
        ids["request_id"] = subject.request_id
    if subject.task_ids:
        ids["task_ids"] = subject.task_ids[:_MAX_IDS]
    if subject.trace:
        ids["trace_id"] = subject.trace.trace_id
    return ids


def _shown(value: object) -> object:
    if value is None:
        return "-"
    return ",".join(value) if isinstance(value, tuple) else value


def _line(moment: datetime, level: str, logger: str, message: str, fields: Mapping[str, object]) -> str:
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # Names of files may hold bytes that are no text, which orjson refuses.
    said = message.encode(errors="backslashreplace").decode()
    return orjson.dumps({"time": time, "level": level, "logger": logger, "message": said, **fields}).decode()


def _of_exception(kind: type[BaseException], trace: TracebackType | None) -> dict[str, object]:
    return {"error": kind.__name__, "traceback": _places(trace)}


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


_process: dict[str, str] = {}
"""What the JSON lines of this process say of it."""
_format: LogFormat = "text"


def configure_logging(level: str, log_format: LogFormat = "text", role: str = "") -> None:
    """Sends this process's log to stderr. `level`: debug, info, warning or error."""
    global _format  # noqa: PLW0603 - one process has one log, as it has one root logger
    _format = log_format
    _process.clear()
    _process["role"] = role
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(_process) if log_format == "json" else _Text())
    handler.addFilter(_OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(_POOL).handlers[:] = [handler]
    # It repeats every second that the broker is away; the worker's parent says so once (worker/process/consumer.py).
    logging.getLogger("celery.worker.consumer.consumer").setLevel(logging.ERROR)
    if level != "debug":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
    if log_format == "json":
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def name_worker(worker_id: str) -> None:
    """Lines of this process, and of those that it forks, are of this worker."""
    _process["worker"] = worker_id


def write_refusal(who: str, message: str) -> None:
    """Tells on stderr why this process cannot run. `who`: the command; empty for none."""
    if _format == "json":
        line = json_line(_process["role"], "embedq", message, level="critical")
    else:
        line = f"{who}: {message}" if who else message
    sys.stderr.write(f"{line}\n")


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("embedq").critical("an exception ended this process", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        name = args.thread.name if args.thread else "a thread"
        uncaught = (args.exc_type, args.exc_value, args.exc_traceback)
        logging.getLogger("embedq").critical("an exception ended the thread %s", name, exc_info=uncaught)
