"""Parent and child of a worker: what is said of a death, who hangs, and the files for probes."""

import logging
import os
import shutil
import signal
from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError

from tasks.worker.process.hangs import LEAST_CHECKS, HangWatch, Progress
from tasks.worker.process.parent import MOST_LOADS, Deaths
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage

KILLED = "signal 9 (SIGKILL)"
PATIENCE_S = 120.0
PART_S = PATIENCE_S / LEAST_CHECKS


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Signals that the process has sent itself."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number) if pid == os.getpid() else None)
    return sent


def test_a_death_is_one_error_with_the_tasks_in_hand(caplog: pytest.LogCaptureFixture) -> None:
    shared = SharedPage.make()
    deaths, logger = Deaths(shared), logging.getLogger("test.of.deaths")
    logger.addFilter(deaths)
    shared.loaded = 1
    shared.work_on(0, ["task_1", "task_2"])
    logger.error("Process %r pid:%r exited with %r", "ForkPoolWorker-3", 3770, KILLED)
    logger.error("Task handler raised error: %r", "lost", exc_info=WorkerLostError("lost"))
    logger.removeFilter(deaths)
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == (
        "ERROR",
        "worker process died (signal 9, SIGKILL) while it worked on task_1, task_2; its texts are tried again alone",
    )
    assert (shared.loaded, shared.in_hand()) == (0, ())
    ids = [f"task_{number:026}" for number in range(1000)]
    shared.work_on(0, ids)
    assert set(shared.in_hand()) < set(ids), "those for which there is no room are left out whole"


def test_deaths_while_loading_end_the_worker_with_the_exit_code_of_the_signal(
    caplog: pytest.LogCaptureFixture, stops: list[int]
) -> None:
    shared = SharedPage.make()
    deaths = Deaths(shared)
    for _ in range(5):  # a load that succeeds forgives those before
        deaths.say(KILLED)
        shared.loaded = 1
        deaths.say(KILLED)
    with caplog.at_level(logging.INFO):
        caplog.clear()
        deaths.say("exitcode 70")
        deaths.say(KILLED)
    first, second = (line.getMessage() for line in caplog.records)
    assert first == "worker process ended (exitcode 70) while loading, tried again in 2 s"
    assert "was killed (signal 9, SIGKILL) while loading, tried again in 10 s; out of memory?" in second
    assert (stops, shared.refusal()) == ([], None)
    deaths.say(KILLED)
    assert stops == [signal.SIGTERM]
    refusal = shared.refusal()
    assert refusal is not None
    assert "while loading, 3 times in a row; out of memory?" in refusal[0]
    assert refusal[1] == 137


def test_what_ends_with_a_stop_is_no_death_while_loading(stops: list[int]) -> None:
    shared = SharedPage.make()
    shared.stop()
    deaths = Deaths(shared)
    for _ in range(MOST_LOADS):
        deaths.say(KILLED)
    assert (stops, shared.refusal()) == ([], None)


class Clock:
    """A monotonic clock that moves when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def hangs(self, watch: HangWatch, seconds: float, *, often: int = 1) -> bool:
        """What the watch says at last."""
        said = False
        for _ in range(often):
            self.now += seconds
            said = watch()
        return said


def test_work_hangs_when_a_claim_is_in_hand_and_nothing_moves_but_not_while_it_waits_for_the_storage() -> None:
    clock, progress = Clock(), Progress()
    watch = HangWatch(progress.reading, 10, clock)
    assert not clock.hangs(watch, 1, often=100), "nothing in hand"
    with progress.holding("claim", ["task"]):
        assert not clock.hangs(watch, 1, often=10)
        assert clock.hangs(watch, 1)
        progress.step()
        assert not clock.hangs(watch, 1, often=10)
        with progress.outside():
            assert not clock.hangs(watch, 1, often=100)
            assert progress.tokens() == ("claim",)
        assert clock.hangs(watch, 1, often=11)
    assert not clock.hangs(watch, 1, often=100)


def test_a_child_hangs_when_its_count_stands_still_and_not_while_it_loads_or_both_pause() -> None:
    clock, shared = Clock(), SharedPage.make()
    watch = HangWatch(lambda: shared.beats or None, PATIENCE_S, clock)
    assert not clock.hangs(watch, PATIENCE_S, often=12)
    for _ in range(12):
        shared.beats += 1
        assert not watch()
        assert not clock.hangs(watch, 10 * PATIENCE_S), "the child had no time to beat"
    shared.beats += 1
    assert not watch()
    assert not clock.hangs(watch, PART_S, often=LEAST_CHECKS - 1)
    assert clock.hangs(watch, PART_S)
    shared.forget_child()
    assert not watch(), "the next child loads its model"


def test_what_somebody_cleans_away_is_made_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    worker = folder.take()
    folder.set_ready({"model": "m"})
    folder.touch_alive()
    shutil.rmtree(tmp_path / "run")
    assert not folder.is_alive(30)
    folder.keep_ready()
    folder.touch_alive()
    folder.keep_ready()
    assert (folder.is_alive(30), folder.is_ready()) == (True, True)
    folder.leave()
    assert RunFolder(tmp_path / "run").take() == worker
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_bytes(b"")  # nothing can be written: that ends no worker
    folder.touch_alive()
    folder.keep_ready()


def test_the_next_worker_of_a_folder_has_the_id_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    first = RunFolder(tmp_path)
    worker = first.take()
    first.leave()
    assert RunFolder(tmp_path).take() == worker
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "worker", tmp_path / "copy" / "worker")
    assert RunFolder(tmp_path / "copy").take() != worker, "a copy of the folder on another machine"
