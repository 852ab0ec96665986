"""What the trial of overload makes of the answers that it gets."""

import dataclasses
from pathlib import Path

import pytest

from bench.overload import Outcome, Point, draw


def outcomes(*rows: tuple[float, float, int]) -> list[Outcome]:
    """(sent, took, status) of each."""
    return [Outcome("online", sent_s, took_s, status, None) for sent_s, took_s, status in rows]


def test_goodput_is_what_was_done_while_its_caller_waited() -> None:
    point = Point.of(
        2.0,
        outcomes(
            (0.0, 1.0, 200),  # before the window
            (3.0, 2.0, 200),  # sent before it, answered in it
            (5.0, 1.0, 200),
            (5.0, 4.5, 200),  # too late
            (6.0, 4.0, 503),  # a caller who waited in vain
            (6.0, 0.1, 503),
            (7.0, 0.1, 429),
            (8.0, 0.0, 0),
            (13.5, 1.0, 200),  # answered behind the window
        ),
        capacity_per_s=0.4,
        window=(4.0, 14.0),
    )
    assert point.goodput_per_s == pytest.approx(0.2)
    assert point.share == pytest.approx(0.5)
    assert (point.accepted, point.refused, point.late, point.broken) == (4, 2, 2, 1)
    assert point.offered_per_s == pytest.approx(0.7)


def test_the_plot_has_a_point_for_each_load(tmp_path: Path) -> None:
    points = [Point(multiple, multiple, 0.9, 1.0, 0, 0, 0, 0) for multiple in (0.5, 1.0, 10.0)]
    draw({"points": [dataclasses.asdict(point) for point in points]}, tmp_path / "a.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.count("<circle") == 3
    assert "10x" in drawn
