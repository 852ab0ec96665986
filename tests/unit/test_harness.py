"""The test harness itself: waiting ends, and a developer's own settings reach no test."""

import sys
from pathlib import Path

import pytest

from tests.harness import Process, eventually, wait_until


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
    assert process.log() == "{'EMBEDQ_PORT': '1'}\n"


def test_a_process_that_dies_early_is_reported_with_its_log(tmp_path: Path) -> None:
    process = Process("child", [sys.executable, "-c", "import sys; sys.exit('no luck')"], tmp_path)
    process.launch()
    with pytest.raises(AssertionError, match=r"(?s)child exited with 1 before it sang.*no luck"):
        process.wait_while_running(lambda: None, "it sang")


async def _never() -> None:
    return None
