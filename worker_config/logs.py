"""Logging: one line per event on stderr, as text or as a JSON object, and what a line is about.

No line holds a text of a caller or a key, and of an exception it holds type and places only: its message may hold what
somebody submitted. A JSON line names the process, and the request or the tasks that are worked on.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, TypeAlias

import orjson
from opentelemetry.trace import get_current_span

LogFormat: TypeAlias = Literal["text", "json"]

_POOL = "multiprocessing"
"""billiard's logger. It does not propagate, and without a handler of its own its lines have no form."""
_LIBRARIES = ("celery", "kombu", "billiard", _POOL, "redis", "opentelemetry", "py.warnings")
_CHATTY = (_POOL, "celery.app.trace", "celery.worker.strategy", "httpx", "sentence_transformers", "transformers")
_MAX_CHARS = 300
_MAX_IDS = 32
"""Of one line: a claim may hold pieces of a thousand tasks."""
_MAX_FRAMES = 20
_LOGIN = re.compile(r"//[^/\s]*@")
"""In a URL."""
_FIELDS = "embedq_fields"
"""Attribute of a record: what it says beside its message."""


@dataclass(slots=True)
class Subject:
    """What an asyncio task, or a thread, works on: a request, or the tasks of a claim."""

    request_id: str = ""
    task_ids: Sequence[str] = ()


_subject: ContextVar[Subject] = ContextVar("subject", default=Subject())  # noqa: B039 - nobody changes this one


def begin_request(request_id: str) -> None:
    """This asyncio task works on a request from now on."""
    _subject.set(Subject(request_id))


def subject_is_task(task_id: str) -> None:
    """The request that is worked on concerns this task."""
    if (subject := _subject.get()).request_id:
        subject.task_ids = (task_id,)


@contextmanager
def about_tasks(task_ids: Sequence[str]) -> Iterator[None]:
    """This thread works on these tasks; claims may nest."""
    token = _subject.set(Subject(task_ids=task_ids))
    try:
        yield
    finally:
        _subject.reset(token)


def with_fields(**fields: object) -> Mapping[str, object]:
    """The argument `extra` of a call of a logger: what the line says beside its message."""
    return {_FIELDS: fields}


class _Line(logging.Formatter):
    """A record as a line. `process`: what each JSON line says of this process; None: lines are text."""

    def __init__(self, process: Mapping[str, str] | None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        kind, _, trace = record.exc_info or (None, None, None)
        message = record.getMessage()
        if record.name.startswith(_LIBRARIES):
            # A killed child or a broker that is away is an event, not a defect.
            message = _LOGIN.sub("//", " ".join(message.split())[:_MAX_CHARS]) + (f" ({kind.__name__})" if kind else "")
            kind = None
        elif record.name == "asyncio":
            # What follows its first line shows the exception, and what the task or the callback was given.
            message = message.partition("\n")[0]
        fields: Mapping[str, object] | None = getattr(record, _FIELDS, None)
        if self._process is None:
            said = "".join(f" {name}={_shown(value)}" for name, value in {**(fields or {}), **_ids()}.items())
            failed = "\n  ".join([f"\nTraceback of {kind.__name__}:", *_places(trace)]) if kind else ""
            return f"{record.levelname} {record.name}: {message}{'' if fields is None else said}{failed}"
        error = {"error": kind.__name__, "traceback": _places(trace)} if kind else {}
        told = {**self._process, "pid": record.process, **(fields or {}), **_ids(), **error}
        return _json(datetime.fromtimestamp(record.created, UTC), record.levelname.lower(), record.name, message, told)


def _ids() -> dict[str, object]:
    subject, span = _subject.get(), get_current_span()
    trace_id = f"{span.get_span_context().trace_id:032x}" if span.is_recording() else ""
    ids = {"request_id": subject.request_id, "task_ids": subject.task_ids[:_MAX_IDS], "trace_id": trace_id}
    return {name: value for name, value in ids.items() if value}


def _shown(value: object) -> object:
    return "-" if value is None else ",".join(value) if isinstance(value, tuple) else value


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


def _json(moment: datetime, level: str, logger: str, message: str, fields: Mapping[str, object]) -> str:
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # Names of files may hold bytes that are no text, which orjson refuses.
    said = message.encode(errors="backslashreplace").decode()
    return orjson.dumps({"time": time, "level": level, "logger": logger, "message": said, **fields}).decode()


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
    handler.setFormatter(_Line(_process if log_format == "json" else None))
    root = logging.getLogger()
    root.handlers[:] = logging.getLogger(_POOL).handlers[:] = [handler]
    root.setLevel(level.upper())
    # It repeats every second that the broker is away; the worker's parent says so once (worker/process/consumer.py).
    logging.getLogger("celery.worker.consumer.consumer").setLevel(logging.ERROR)
    if level != "debug":
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda of: _log_uncaught(of.exc_type, of.exc_value, of.exc_traceback, of.thread)


def name_worker(worker_id: str) -> None:
    """Lines of this process, and of those that it forks, are of this worker."""
    _process["worker"] = worker_id


def json_line(role: str, logger: str, message: str, *, level: str = "info", **fields: object) -> str:
    """One line that this process did not log through `logging`."""
    return _json(datetime.now(UTC), level, logger, message, {"role": role, **fields})


def write_refusal(who: str, message: str) -> None:
    """Tells on stderr why this process cannot run. `who`: the command; empty for none."""
    if _format == "json":
        line = json_line(_process["role"], "embedq", message, level="critical")
    else:
        line = f"{who}: {message}" if who else message
    sys.stderr.write(f"{line}\n")


def _log_uncaught(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    thread: threading.Thread | None = None,
) -> None:
    if error is None or issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    ended = f"the thread {thread.name}" if thread else "this process"
    logging.getLogger("embedq").critical("an exception ended %s", ended, exc_info=(kind, error, trace))
