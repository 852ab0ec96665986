"""The test harness itself: waiting ends, and a developer's own settings reach no test."""

import ast
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import Process, WorkerProcess, eventually, wait_until
from worker_config.settings import Settings


def test_wait_until_gives_the_first_truthy_value() -> None:
    values = iter([0, None, "", 7, 8])
    assert wait_until(lambda: next(values)) == 7


def test_wait_until_says_what_it_waited_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.02 s: the moon; last value \[\]"):
        wait_until(list, timeout_s=0.02, message="the moon")


async def test_eventually_awaits_its_condition() -> None:
    values = iter([False, True])

    async def condition() -> bool:
        return next(values)

    assert await eventually(condition)
    with pytest.raises(AssertionError, match="the moon"):
        await eventually(_never, timeout_s=0.02, message="the moon")


def test_only_chosen_settings_reach_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDQ_MODEL", "somebody's own")
    script = "import os; print({k: v for k, v in os.environ.items() if k.startswith('EMBEDQ_')})"
    process = Process("child", [sys.executable, "-c", script], tmp_path, port=1)
    process.launch()
    assert process.wait() == 0
    place = tmp_path / ".embedq" / "storage"
    assert ast.literal_eval(process.log()) == {"EMBEDQ_PORT": "1", "EMBEDQ_STORAGE_URL": str(place)}


def test_a_process_that_dies_early_is_reported_with_its_log(tmp_path: Path) -> None:
    process = Process("child", [sys.executable, "-c", "import sys; sys.exit('no luck')"], tmp_path)
    process.launch()
    with pytest.raises(AssertionError, match=r"(?s)child exited with 1 before it sang.*no luck"):
        process.wait_while_running(lambda: None, "it sang")


def test_a_killed_child_that_nobody_has_waited_for_is_not_ready(tmp_path: Path) -> None:
    script = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    worker = WorkerProcess(tmp_path, "redis://unused")
    worker.command = [sys.executable, "-c", script]
    worker.launch()
    try:
        child = int(wait_until(worker.log, message="the child's pid"))
        worker.run_dir.mkdir()
        (worker.run_dir / "ready").write_text(json.dumps({"pid": child}))
        assert worker.wait_ready() == {"pid": child}
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: psutil.Process(child).status() == psutil.STATUS_ZOMBIE, message="its end")
        assert worker._ready() is None
        assert worker._living_children() == []
    finally:
        worker.stop()


def test_settings_of_the_developer_reach_no_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("EMBEDQ_PORT=1234\n")
    monkeypatch.chdir(tmp_path)
    assert [name for name in os.environ if name.startswith("EMBEDQ_")] == []
    assert Settings().port == Settings.model_fields["port"].default


async def _never() -> None:
    return None
