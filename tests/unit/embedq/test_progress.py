"""Progress as text, JSON and a bar."""

import contextlib
import io
import json
import re

import pytest

from embedq.cli.progress import Progress, shown_left
from embedq.cli.tasks import TaskProgress
from embedq.responses import Job


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_files_get_a_line_at_the_end() -> None:
    stream = io.StringIO()
    with Progress("embedding", json_lines=False, stream=stream) as progress:
        progress.update(0, total=2000)
        progress.update(1500, 2, total=2000)
    assert re.fullmatch(r"embedding 1,500/2,000, 2 failed, (\d+ s left, )?[\d,]+/s\n", stream.getvalue())


def test_who_knows_better_says_when_the_end_is() -> None:
    plain, programs = io.StringIO(), io.StringIO()
    for stream in (plain, programs):
        with Progress("chunks", json_lines=stream is programs, stream=stream) as progress:
            progress.update(5, total=100, text="7 of 9 documents", eta_s=12, documents=9)
    assert plain.getvalue() == "chunks 5/100, 12 s left, 7 of 9 documents\n"
    [line] = lines(programs)
    assert (line["eta_s"], line["documents"], "text" in line) == (12, 9, False)


@pytest.mark.parametrize(
    ("eta_s", "text"),
    [(0.4, "0 s left"), (599, "599 s left"), (600, "10 min left"), (3599, "1 h 0 min left"), (9000, "2 h 30 min left")],
)
def test_the_time_left_has_one_form(eta_s: float, text: str) -> None:
    assert shown_left(eta_s) == text


@pytest.mark.parametrize("stdout", [True, False])
def test_a_terminal_gets_a_bar_with_the_count(stdout: bool) -> None:
    stream = Terminal()
    without = contextlib.nullcontext() if stdout else contextlib.redirect_stdout(None)
    with without, Progress("embedding", json_lines=False, stream=stream) as progress:
        progress.update(3, 1, total=3)
    for part in ("embedding", "3/3", "1 failed"):
        assert part in stream.getvalue()


def test_a_narrow_terminal_shows_the_count_and_the_end_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    stream = Terminal()
    with Progress("chunks", json_lines=False, stream=stream) as progress:
        progress.update(364, 1, total=900, text="42/s, 5/100 documents and so on and on", eta_s=463)
    last = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue().split("\r")[-1])
    assert last.count("\n") == 1
    for part in ("chunks ", " 364/900 ", "1 failed, 463 s left"):
        assert part in last


def job(name: str, status: str, total: int, completed: int, failed: int) -> Job:
    return Job(id=name, status=status, counts={"total": total, "completed": completed, "failed": failed})


def test_many_tasks_add_up() -> None:
    stream = io.StringIO()
    with Progress("x", json_lines=True, stream=stream) as display:
        progress = TaskProgress(display, [job("a", "in_progress", 10, 3, 0)])
        progress.changed(job("b", "completed", 5, 5, 0))
        progress.changed(job("a", "completed", 10, 8, 2))
    assert lines(stream)[-1] | {"rate": 0} == {
        "event": "progress", "done": 15, "failed": 2, "total": 15, "rate": 0, "eta_s": 0.0,
    }  # fmt: skip
    assert progress.outcome == 1


@pytest.mark.parametrize(("completed", "failed", "code"), [(3, 0, 0), (2, 0, 1), (2, 1, 1), (0, 3, 6), (0, 0, 6)])
def test_the_exit_code_says_how_much_came_through(completed: int, failed: int, code: int) -> None:
    with Progress("x", json_lines=True, stream=io.StringIO()) as display:
        progress = TaskProgress(display)
        progress.changed(job("a", "cancelled", 3, completed, failed))
    assert progress.outcome == code
