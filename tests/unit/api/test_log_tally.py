"""Frequent events in the log: the first at once, and none untold."""

import logging

import pytest

from api.log_tally import Tally
from tests.processes import eventually


async def test_what_came_meanwhile_is_told_although_nothing_follows(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(logging.getLogger("here"), "connections were ended", interval_s=0.05)
    for _ in range(10_000):
        tally.add("head_too_large")
    tally.add("request_timeout")

    async def told() -> bool:
        return len(caplog.records) == 2

    await eventually(told, message="the rest was not told")
    assert [record.getMessage() for record in caplog.records] == [
        "connections were ended: 1 x head_too_large",
        "connections were ended: 9999 x head_too_large, 1 x request_timeout",
    ]


async def test_of_many_kinds_the_later_ones_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(logging.getLogger("here"), "requests", interval_s=0.05)
    for number in range(100):
        tally.add(f"from {number:03}")

    async def told() -> bool:
        return len(caplog.records) == 2

    await eventually(told, message="the rest was not told")
    assert caplog.records[1].getMessage().endswith("79 x others")
