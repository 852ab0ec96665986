"""The supervisor over small real processes: start in stages, restarts, stops, and nobody left behind."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from stack.testing import wait_until
from tests.integration.stack.stage import Stage


def test_a_stage_starts_when_the_one_below_is_up(stage: Stage, tmp_path: Path) -> None:
    stage.perform(
        {"name": "redis", "up_when": tmp_path / "up"}, {"name": "worker", "stage": 1}, {"name": "api", "stage": 2}
    )
    stage.wait_for("redis")
    assert stage.pids("worker") == []

    (tmp_path / "up").touch()

    stage.wait_for("worker", "api")


def test_roles_stop_in_order_and_the_exit_code_is_0(stage: Stage) -> None:
    stage.perform({"name": "redis"}, {"name": "worker", "stage": 1}, {"name": "api", "stage": 2})
    stage.wait_for("redis", "worker", "api")

    stage.send(signal.SIGTERM)

    assert stage.wait() == 0
    assert stage.stopped() == ["api", "worker", "redis"]
    stage.wait_for_nobody()


def test_ctrl_c_reaches_the_supervisor_alone(stage: Stage) -> None:
    stage.perform({"name": "redis"}, {"name": "api", "stage": 1})
    stage.wait_for("redis", "api")

    os.killpg(stage.pid, signal.SIGINT)  # what a terminal does: the whole group gets it

    assert stage.wait() == 0
    assert stage.stopped() == ["api", "redis"]


def test_ready_is_said_once_and_alone_on_stdout(stage: Stage, tmp_path: Path) -> None:
    stage.perform({"name": "api"}, ready_when=tmp_path / "loaded")
    stage.wait_for("api")
    assert stage.stdout_file.read_text() == ""

    (tmp_path / "loaded").touch()
    wait_until(stage.stdout_file.read_text)
    os.kill(stage.pids("api")[0], signal.SIGKILL)
    stage.wait_for("api", times=2)
    stage.stop()

    assert stage.stdout_file.read_text() == "ready\n"


def test_each_line_of_a_role_carries_its_name(stage: Stage) -> None:
    stage.perform({"name": "api"}, {"name": "worker"})
    wait_until(lambda: "hello" in stage.log())
    stage.wait_for("api", "worker")
    stage.stop()
    assert "api    | api says hello\n" in stage.log()
    assert "worker | worker says hello\n" in stage.log()


def test_a_role_that_dies_is_started_again(stage: Stage) -> None:
    stage.perform({"name": "worker"}, {"name": "api"})
    stage.wait_for("worker", "api")

    os.kill(stage.pids("worker")[0], signal.SIGKILL)

    stage.wait_for("worker", times=2)
    assert "worker ended by SIGKILL, starting it again in 0.5 s" in stage.log()
    assert len(stage.pids("api")) == 1


def test_a_role_that_keeps_dying_is_started_ever_later(stage: Stage) -> None:
    stage.perform({"name": "worker", "flags": ["--exit", "3"]})
    wait_until(lambda: "ended with exit code 3, starting it again in 2 s" in stage.log())
    assert "exit code 3, starting it again in 0.5 s" in stage.log()
    assert "exit code 3, starting it again in 1 s" in stage.log()
    assert len(stage.pids("worker")) == 3


def test_a_program_that_does_not_exist_is_named(stage: Stage) -> None:
    stage.perform({"name": "worker", "command": ["/nowhere/at-all"]})
    wait_until(lambda: "worker | /nowhere/at-all: No such file or directory" in stage.log())


def test_a_role_that_can_never_run_ends_everything_with_its_words(stage: Stage) -> None:
    stage.perform({"name": "redis"}, {"name": "worker", "stage": 1, "flags": ["--exit", "78"]})

    assert stage.wait() == 78

    assert stage.log().splitlines()[-1].endswith("worker cannot run: worker gives up")
    assert stage.stopped() == ["redis"]
    assert len(stage.pids("worker")) == 1
    stage.wait_for_nobody()


def test_a_role_that_does_not_stop_in_time_is_killed_with_its_children(stage: Stage) -> None:
    stage.perform({"name": "worker", "grace_s": 0.2, "flags": ["--stubborn", "--parent-of-one"]})
    stage.wait_for("worker", "worker-child")

    stage.send(signal.SIGTERM)

    assert stage.wait() == 0
    stage.wait_for_nobody()


def test_a_second_ctrl_c_hurries(stage: Stage) -> None:
    stage.perform({"name": "worker", "grace_s": 1000, "flags": ["--stubborn"]})
    stage.wait_for("worker")
    stage.send(signal.SIGINT)
    wait_until(lambda: "stopping worker" in stage.log())

    stage.send(signal.SIGINT)

    assert stage.wait() == 0
    stage.wait_for_nobody()


def test_children_that_a_dead_role_leaves_behind_are_ended(stage: Stage) -> None:
    stage.perform({"name": "worker", "flags": ["--parent-of-one"]})
    stage.wait_for("worker", "worker-child")
    orphan = stage.pids("worker-child")[0]

    os.kill(stage.pids("worker")[0], signal.SIGKILL)

    wait_until(lambda: not psutil.pid_exists(orphan))


def test_a_role_that_hangs_is_killed_and_started_again(stage: Stage, tmp_path: Path) -> None:
    stage.perform({"name": "worker", "touch": tmp_path / "alive", "hung_after_s": 0.3})

    stage.wait_for("worker", times=2)

    assert "worker hangs, killing it" in stage.log()
    assert "worker ended by SIGKILL" in stage.log()


def test_no_orphan_is_left_when_the_supervisor_is_killed(stage: Stage) -> None:
    stage.perform({"name": "redis"}, {"name": "worker", "stage": 1}, {"name": "api", "stage": 2})
    stage.wait_for("redis", "worker", "api")

    stage.kill()

    stage.wait_for_nobody()
    assert sorted(stage.stopped()) == ["api", "redis", "worker"]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_stops_the_stack_unless_nohup_asked_otherwise(stage: Stage, ignored: bool) -> None:
    if ignored:
        stage.command[:0] = ["nohup"]
    stage.perform({"name": "worker"})
    stage.wait_for("worker")

    stage.send(signal.SIGHUP)
    if ignored:
        assert stage.running
        stage.send(signal.SIGTERM)

    assert stage.wait() == 0
    assert stage.stopped() == ["worker"]
    assert "stopping worker" in stage.log()
