"""Progress as text, JSON and a bar."""

import contextlib
import io
import json
import re
from dataclasses import replace

import pytest

from embedq.cli.progress import Details, Progress, Sample, showing, shown_left


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sample_knows_its_end() -> None:
    sample = Sample("embedding", done=500, failed=2, total=2000, rate=100)
    assert sample.eta_s == 15
    assert sample.to_text() == "embedding 500/2,000, 100/s, 2 failed, 15 s left"
    assert json.loads(sample.to_json()) == {
        "event": "progress", "done": 500, "failed": 2, "total": 2000, "rate": 100, "eta_s": 15,
    }  # fmt: skip


def test_without_a_total_there_is_no_end() -> None:
    sample = Sample("embedding", done=5, failed=0, total=None, rate=1)
    assert sample.eta_s is None
    assert sample.to_text() == "embedding 5, 1/s"


def test_who_knows_better_says_when_the_end_is() -> None:
    sample = Sample("documents", 5, 0, 100, 0.5, Details("7 of 9 chunks embedded", {"chunks": 9, "embedded": 7}, 12))
    assert sample.to_text() == "documents 5/100, 7 of 9 chunks embedded, 12 s left"
    assert json.loads(sample.to_json())["embedded"] == 7
    unknown = replace(sample, details=Details("", {}, None))
    assert unknown.eta_s is None


def test_a_terminal_shows_the_same() -> None:
    stream = Terminal()
    with showing("documents", 100, json_lines=False, stream=stream) as progress:
        progress.update(5, details=Details("7 of 9 chunks embedded", {}, 12))
    assert "12 s left" in stream.getvalue()


@pytest.mark.parametrize(
    ("eta_s", "text"),
    [(0.4, "0 s left"), (599, "599 s left"), (600, "10 min left"), (3599, "1 h 0 min left"), (9000, "2 h 30 min left")],
)
def test_the_time_left_has_one_form(eta_s: float, text: str) -> None:
    assert shown_left(eta_s) == text


def test_a_narrow_terminal_shows_the_count_and_the_end_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    with showing("documents", 100, json_lines=False, stream=stream) as progress:
        progress.update(5, 1, details=Details("364 of 900 chunks embedded at 42/s", {}, 463))
    last = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue().split("\r")[-1])
    assert last.count("\n") == 1
    for part in ("documents ", "  5/100 ", "463 s left ", "1 failed"):
        assert part in last


def test_before_the_first_result_there_is_no_end() -> None:
    assert Sample("x", done=0, failed=0, total=10, rate=0).eta_s is None


def test_lines_come_at_most_once_per_interval() -> None:
    now = 100.0
    written: list[Sample] = []
    lines = Progress("x", 10, written.append, 5, clock=lambda: now)
    for now, done in ((104.9, 1), (105.0, 2), (109.9, 3), (110.1, 4)):  # noqa: B007 - the clock reads it
        lines.update(done)
    lines.finish()
    assert [sample.done for sample in written] == [2, 4, 4]
    assert written[0].rate == 2 / 5


def test_programs_get_json_even_on_a_terminal() -> None:
    stream = Terminal()
    with showing("x", 2, json_lines=True, stream=stream) as progress:
        progress.update(2, 1)
    assert [json.loads(line)["done"] for line in stream.getvalue().splitlines()] == [2]


def test_files_get_a_line_at_the_end() -> None:
    stream = io.StringIO()
    with showing("x", 2, json_lines=False, stream=stream) as progress:
        progress.update(2)
    assert stream.getvalue().startswith("x 2/2, ")


def test_a_bar_needs_no_standard_output() -> None:
    stream = Terminal()
    with (
        contextlib.redirect_stdout(None),
        showing("embedding", 3, json_lines=False, stream=stream) as progress,
    ):
        progress.update(3)
    assert "3/3" in stream.getvalue()


def test_a_terminal_gets_a_bar_with_the_count() -> None:
    stream = Terminal()
    with showing("embedding", 3, json_lines=False, stream=stream) as progress:
        progress.update(3, failed=1)
    assert "embedding" in stream.getvalue()
    assert "3/3" in stream.getvalue()
    assert "1 failed" in stream.getvalue()
