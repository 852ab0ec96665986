"""Progress as text, JSON and a bar."""

import contextlib
import io
import json
import re

import pytest

from embedq.cli.progress import Progress, shown_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_files_get_a_line_at_the_end_and_who_knows_better_says_when_that_is() -> None:
    plain, programs = io.StringIO(), io.StringIO()
    for stream in (plain, programs):
        with Progress("chunks", json_lines=stream is programs, stream=stream) as progress:
            progress.update(5, total=100, text="7 of 9 documents", eta_s=12, documents=9)
        with Progress("texts", json_lines=stream is programs, stream=stream) as progress:
            progress.update(0, total=2000)
            progress.update(1500, 2, total=2000)
    theirs, own = plain.getvalue().splitlines()
    assert theirs == "chunks 5/100, 12 s left, 7 of 9 documents"
    assert re.fullmatch(r"texts 1,500/2,000, 2 failed, (\d+ s left, )?[\d,]+/s", own)
    line = json.loads(programs.getvalue().splitlines()[0])
    assert (line["eta_s"], line["documents"], "text" in line) == (12, 9, False)


@pytest.mark.parametrize(
    ("eta_s", "text"),
    [(0.4, "0 s left"), (599, "599 s left"), (600, "10 min left"), (3599, "1 h 0 min left"), (9000, "2 h 30 min left")],
)
def test_the_time_left_has_one_form(eta_s: float, text: str) -> None:
    assert shown_left(eta_s) == text


@pytest.mark.parametrize("stdout", [True, False])
def test_a_narrow_terminal_shows_a_bar_with_count_and_end_on_one_line(
    stdout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    stream = Terminal()
    without = contextlib.nullcontext() if stdout else contextlib.redirect_stdout(None)
    with without, Progress("chunks", json_lines=False, stream=stream) as progress:
        progress.update(364, 1, total=900, text="42/s, 5/100 documents and so on and on", eta_s=463)
    last = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue().split("\r")[-1])
    assert last.count("\n") == 1
    for part in ("chunks ", " 364/900 ", "1 failed, 463 s left"):
        assert part in last
