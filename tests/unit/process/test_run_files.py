"""The files a worker leaves for probes, and the watches over those of its two processes."""

import os
from pathlib import Path

import pytest

from tasks.process.liveness import LEAST_CHECKS, HangWatch
from tasks.process.run_files import RunFiles

PATIENCE_S = 120.0


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_parent_hangs_when_its_file_stands_still(tmp_path: Path) -> None:
    clock, files = Clock(), RunFiles(tmp_path)
    hangs = HangWatch(files.alive_at, PATIENCE_S, clock)
    files.touch_alive()
    assert not hangs()
    for _ in range(LEAST_CHECKS - 1):
        clock.now += PATIENCE_S / LEAST_CHECKS
        assert not hangs()
    clock.now += PATIENCE_S / LEAST_CHECKS
    assert hangs()


def test_a_touch_starts_the_wait_again(tmp_path: Path) -> None:
    clock, files = Clock(), RunFiles(tmp_path)
    hangs = HangWatch(files.alive_at, PATIENCE_S, clock)
    assert not hangs()  # no file yet
    clock.now += PATIENCE_S
    files.touch_alive()
    assert not hangs()
    clock.now += PATIENCE_S
    assert not hangs()


def test_a_child_freezes_when_its_file_stands_still(tmp_path: Path) -> None:
    clock, files = Clock(), RunFiles(tmp_path)
    frozen = HangWatch(files.beat_at, PATIENCE_S, clock)
    for _ in range(3 * LEAST_CHECKS):
        clock.now += PATIENCE_S
        assert not frozen(), "a child that has no heartbeat yet loads its model"
    files.touch_beat()
    assert not frozen()
    for _ in range(LEAST_CHECKS - 1):
        clock.now += PATIENCE_S / LEAST_CHECKS
        assert not frozen()
    clock.now += PATIENCE_S / LEAST_CHECKS
    assert frozen()
    files.clear_beat()
    assert not frozen(), "the next child loads its model"


def test_a_pause_of_both_processes_freezes_no_child(tmp_path: Path) -> None:
    clock, files = Clock(), RunFiles(tmp_path)
    frozen = HangWatch(files.beat_at, PATIENCE_S, clock)
    for beat in range(3 * LEAST_CHECKS):
        files.touch_beat()
        os.utime(tmp_path / "beat", (beat, beat))
        assert not frozen()
        clock.now += 10 * PATIENCE_S
        assert not frozen(), "the child had no time to beat"


def test_ready_needs_a_living_process(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "run")
    files.clear()
    assert not files.is_ready()
    files.set_ready({"model": "m"})
    assert files.is_ready()
    files.clear_ready()
    assert not files.is_ready()


def test_a_folder_knows_the_worker_before(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    assert files.succeed("first") == ""
    files.clear()
    assert files.succeed("second") == "first"


@pytest.mark.parametrize("message", ["", "the model is gone"])
def test_a_failure_is_kept_until_the_next_start(tmp_path: Path, message: str) -> None:
    files = RunFiles(tmp_path)
    assert files.failure() is None
    files.set_failure(message)
    assert files.failure() == message
    files.clear()
    assert files.failure() is None
