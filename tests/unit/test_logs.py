"""What a line of the log says, in both forms."""

import asyncio
import gc
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

import pytest
from billiard.util import get_logger

from worker_config.logs import (
    LogFormat,
    about_tasks,
    begin_request,
    configure_logging,
    name_worker,
    subject_is_task,
    with_fields,
)

SECRET = "what somebody submitted"


class Written:
    """What the process has logged."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def texts(self) -> list[str]:
        """The lines since the last call."""
        return self._capsys.readouterr().err.splitlines()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.texts()]


Configure: TypeAlias = Callable[[LogFormat], Written]


@pytest.fixture
def log_as(capsys: pytest.CaptureFixture[str]) -> Iterator[Configure]:
    """Configures the process's log and gives what is written to it; undone at the end."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers, level = root.handlers[:], root.level

    def configure(log_format: LogFormat) -> Written:
        configure_logging("info", log_format, "worker")
        return Written(capsys)

    yield configure
    configure_logging("info")
    begin_request("")
    root.handlers[:], root.level = handlers, level
    sys.excepthook, threading.excepthook = hooks


def fail(error: Exception) -> NoReturn:
    raise error


def test_a_line_of_json_says_when_where_and_what(log_as: Configure) -> None:
    written = log_as("json")
    name_worker("host:1:abc")
    logging.getLogger("tasks.x").warning("two\nlines of %s", "text")
    (line,) = written.lines()
    assert line.pop("time").endswith("Z")
    assert isinstance(line.pop("pid"), int)
    assert line == {
        "level": "warning",
        "logger": "tasks.x",
        "message": "two\nlines of text",
        "role": "worker",
        "worker": "host:1:abc",
    }


def test_the_ids_of_a_request_and_of_claims_within_claims(log_as: Configure) -> None:
    written = log_as("json")
    log = logging.getLogger("tasks.x")
    begin_request("req_1")
    log.info("before")
    subject_is_task("task_1")
    log.info("found")
    with about_tasks(["task_2", "task_3"]):
        with about_tasks(["task_4"]):
            log.info("inner")
        log.info("outer")
    log.info("after")
    ids = [{name: line[name] for name in ("request_id", "task_ids") if name in line} for line in written.lines()]
    assert ids == [
        {"request_id": "req_1"},
        {"request_id": "req_1", "task_ids": ["task_1"]},
        {"task_ids": ["task_4"]},
        {"task_ids": ["task_2", "task_3"]},
        {"request_id": "req_1", "task_ids": ["task_1"]},
    ]


def test_of_an_exception_the_place_is_told_and_not_the_message(log_as: Configure) -> None:
    written = log_as("json")
    try:
        fail(ValueError(SECRET))
    except ValueError as error:
        logging.getLogger("tasks.x").exception("it failed")
        sys.excepthook(ValueError, error, error.__traceback__)
    lines = written.lines()
    assert [(line["message"], line["error"]) for line in lines] == [
        ("it failed", "ValueError"),
        ("an exception ended this process", "ValueError"),
    ]
    assert all("test_logs.py" in line["traceback"][-1] for line in lines)
    assert SECRET not in str(lines)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_an_exception_says_is_in_no_form_of_the_log(log_as: Configure, log_format: LogFormat) -> None:
    async def fail_later() -> None:
        raise ValueError(SECRET)

    async def nobody_looks() -> None:
        task = asyncio.create_task(fail_later())
        await asyncio.wait([task])
        del task
        gc.collect()

    written = log_as(log_format)
    asyncio.run(nobody_looks())
    try:
        fail(ValueError(SECRET))
    except ValueError:
        logging.getLogger("tasks.x").exception("it failed")
    said = "\n".join(written.texts())
    assert "Task exception was never retrieved" in said
    assert said.count("ValueError") == 2
    assert said.count("test_logs.py:") >= 2
    assert SECRET not in said


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_library_s_traceback_is_one_line(log_as: Configure, log_format: LogFormat) -> None:
    written = log_as(log_format)
    try:
        fail(ConnectionError("redis://:password@host"))
    except ConnectionError:
        logging.getLogger("celery.worker").exception("lost redis://:pass%40word@host")
    (line,) = written.texts()
    assert "lost redis://host (ConnectionError)" in line
    assert "pass%40word" not in line
    assert "password" not in line


def test_text_is_as_it_was_and_fields_follow_the_message(log_as: Configure) -> None:
    written = log_as("text")
    begin_request("req_1")
    subject_is_task("task_1")
    logging.getLogger("tasks.x").info("ready")
    logging.getLogger("api.access").info("answered", extra=with_fields(status=200, owner=None))
    assert written.texts() == [
        "INFO tasks.x: ready",
        "INFO api.access: answered status=200 owner=- request_id=req_1 task_ids=task_1",
    ]


@pytest.mark.parametrize(("log_format", "begins"), [("text", "ERROR multiprocessing: "), ("json", "{")])
def test_the_pool_of_processes_writes_lines_of_the_same_form(
    log_as: Configure, log_format: LogFormat, begins: str
) -> None:
    written = log_as(log_format)
    get_logger().error("Process %r exited", "ForkPoolWorker-1")
    (line,) = written.texts()
    assert line.startswith(begins)
