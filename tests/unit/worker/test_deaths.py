"""What a parent says of a child that died, in place of Celery's lines."""

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from billiard.exceptions import WorkerLostError

from tasks.worker.process.parent import MOST_LOADS, Deaths
from tasks.worker.process.stop import SharedPage

KILLED = "signal 9 (SIGKILL)"


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that the process has sent itself."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number) if pid == os.getpid() else None)
    return sent


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO):
        yield caplog


def test_a_death_is_one_error_with_the_tasks_in_hand(lines: pytest.LogCaptureFixture) -> None:
    shared = SharedPage.make()
    deaths, logger = Deaths(shared), logging.getLogger("test.of.deaths")
    logger.addFilter(deaths)
    shared.loaded = 1
    shared.work_on(0, ["task_1", "task_2"])
    logger.error("Process %r pid:%r exited with %r", "ForkPoolWorker-3", 3770, KILLED)
    logger.error("Task handler raised error: %r", "lost", exc_info=WorkerLostError("lost"))
    logger.removeFilter(deaths)
    (line,) = lines.records
    assert line.levelname == "ERROR"
    assert line.getMessage() == (
        "worker process died (signal 9, SIGKILL) while it worked on task_1, task_2; its texts are tried again alone"
    )
    assert (shared.loaded, shared.in_hand()) == (0, ())


def test_deaths_while_loading_end_the_worker_with_the_exit_code_of_the_signal(
    lines: pytest.LogCaptureFixture, stops: list[int]
) -> None:
    shared = SharedPage.make()
    deaths = Deaths(shared)
    for number in range(1, MOST_LOADS):
        deaths.say(KILLED)
        assert (shared.failed_loads, stops, shared.refusal()) == (number, [], None)
    assert "was killed (signal 9, SIGKILL) while loading, tried again in 2 s; out of memory?" in lines.text
    assert "was killed (signal 9, SIGKILL) while loading, tried again in 10 s; out of memory?" in lines.text
    deaths.say(KILLED)
    assert stops == [signal.SIGTERM]
    refusal = shared.refusal()
    assert refusal is not None
    assert "while loading, 3 times in a row; out of memory?" in refusal[0]
    assert refusal[1] == 137


def test_only_a_kill_looks_like_a_lack_of_memory(lines: pytest.LogCaptureFixture) -> None:
    deaths = Deaths(SharedPage.make())
    deaths.say("signal 4 (SIGILL)")
    deaths.say("exitcode 70")
    assert [line.getMessage() for line in lines.records] == [
        "worker process was killed (signal 4, SIGILL) while loading, tried again in 2 s",
        "worker process ended (exitcode 70) while loading, tried again in 10 s",
    ]


def test_a_load_that_succeeds_forgives_those_before(stops: list[int]) -> None:
    shared = SharedPage.make()
    deaths = Deaths(shared)
    for _ in range(5):
        deaths.say(KILLED)
        shared.loaded = 1
        deaths.say(KILLED)
    assert stops == []


def test_what_ends_with_a_stop_is_no_death_while_loading(stops: list[int]) -> None:
    shared = SharedPage.make()
    shared.stop()
    deaths = Deaths(shared)
    for _ in range(MOST_LOADS):
        deaths.say(KILLED)
    assert (stops, shared.refusal()) == ([], None)
