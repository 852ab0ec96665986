"""What a line of the log says, in both forms, and what no value says of itself: what somebody submitted."""

import asyncio
import gc
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeAlias

import pytest
from billiard.util import get_logger

from tasks.encoder.interface import Text
from tasks.ingestion.sources.record import Described
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
LOG = logging.getLogger("tasks.x")
Configure: TypeAlias = Callable[[LogFormat], Callable[[], list[str]]]


@pytest.fixture
def log_as(capsys: pytest.CaptureFixture[str]) -> Iterator[Configure]:
    """Configures the process's log and gives what is written to it since the last call; undone at the end."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers, level = root.handlers[:], root.level

    def configure(log_format: LogFormat) -> Callable[[], list[str]]:
        def written() -> list[str]:
            return capsys.readouterr().err.splitlines()

        configure_logging("info", log_format, "worker")
        return written

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
    LOG.warning("two\nlines of %s", "text")
    line = json.loads(*written())
    assert line.pop("time").endswith("Z")
    assert isinstance(line.pop("pid"), int)
    told = {"level": "warning", "logger": "tasks.x", "message": "two\nlines of text"}
    assert line == told | {"role": "worker", "worker": "host:1:abc"}


def test_the_ids_of_a_request_and_of_claims_within_claims(log_as: Configure) -> None:
    written = log_as("json")
    begin_request("req_1")
    LOG.info("before")
    subject_is_task("task_1")
    with about_tasks(["task_2", "task_3"]):
        with about_tasks(["task_4"]):
            LOG.info("inner")
        LOG.info("outer")
    LOG.info("after")
    lines = map(json.loads, written())
    assert [{name: line[name] for name in ("request_id", "task_ids") if name in line} for line in lines] == [
        {"request_id": "req_1"},
        {"task_ids": ["task_4"]},
        {"task_ids": ["task_2", "task_3"]},
        {"request_id": "req_1", "task_ids": ["task_1"]},
    ]
    written = log_as("text")
    logging.getLogger("api.access").info("answered", extra=with_fields(status=200, owner=None))
    assert written() == ["INFO api.access: answered status=200 owner=- request_id=req_1 task_ids=task_1"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_of_an_exception_the_place_is_told_and_not_the_message(log_as: Configure, log_format: LogFormat) -> None:
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
    except ValueError as error:
        LOG.exception("it failed")
        sys.excepthook(ValueError, error, error.__traceback__)
    lines = written()
    said = "\n".join(lines)
    for message in ("Task exception was never retrieved", "it failed", "an exception ended this process"):
        assert message in said
    assert said.count("ValueError") == 3
    assert said.count("test_logs.py:") >= 3
    assert SECRET not in said
    if log_format == "json":
        assert {json.loads(line)["error"] for line in lines} == {"ValueError"}


@pytest.mark.parametrize(("log_format", "begins"), [("text", "ERROR multiprocessing: "), ("json", "{")])
def test_what_libraries_write_has_the_same_form_and_no_password(
    log_as: Configure, log_format: LogFormat, begins: str
) -> None:
    written = log_as(log_format)
    try:
        fail(ConnectionError("redis://:password@host"))
    except ConnectionError:
        logging.getLogger("celery.worker").exception("lost redis://:pass%40word@host")
    get_logger().error("Process %r exited", "ForkPoolWorker-1")
    lost, exited = written()
    assert "lost redis://host (ConnectionError)" in lost
    assert "pass" not in lost
    assert exited.startswith(begins)


def test_a_value_does_not_show_what_was_submitted() -> None:
    """Of each kind that hides fields one; tests/test_architecture.py finds those that hide none."""
    for value in (Text(SECRET), Described("a", SECRET, {"note": SECRET})):
        assert repr(value).startswith(f"{type(value).__name__}(")
        assert SECRET not in repr(value) + str(value)
