"""Frequent events in the log: the first at once, and none untold."""

import logging

import pytest

from api.log_tally import Tally
from tests.processes import eventually


async def test_what_came_meanwhile_is_told_although_nothing_follows(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(logging.getLogger("here"), "connections were ended", interval_s=0.05)
    for _ in range(10_000):
        tally.add("head_too_large")
    for number in range(40):
        tally.add(f"from {number:03}")

    async def told() -> bool:
        return len(caplog.records) == 2

    await eventually(told, message="the rest was not told")
    first, rest = (record.getMessage() for record in caplog.records)
    assert first == "connections were ended: 1 x head_too_large"
    assert "9999 x head_too_large" in rest
    assert rest.endswith("21 x others"), "of many kinds the later ones are counted together"
