"""Who is let in while a process has much under way, or its event loop is late, and how fast the rest is refused."""

from contextlib import ExitStack

import pytest

from api.server.overload import (
    BUSY_UNDER_WAY,
    LONGEST_DELAY_S,
    MAX_LAG_S,
    MAX_UNDER_WAY,
    REFUSALS_AT_ONCE,
    REFUSALS_PER_S,
    Door,
    overloaded,
)
from tasks.errors import Overloaded


def busy(door: Door, number: int) -> ExitStack:
    """So many submissions under way, until it is closed."""
    stack = ExitStack()
    for _ in range(number):
        stack.enter_context(door.submitting())
    return stack


async def test_no_more_than_so_many_are_under_way() -> None:
    door = Door(lambda: 0.0)
    with busy(door, MAX_UNDER_WAY):
        with pytest.raises(Overloaded):
            await door.check()
        with pytest.raises(Overloaded), door.submitting():
            pass
    await door.check()
    assert door.under_way == 0


def test_a_submission_that_fails_is_no_longer_under_way() -> None:
    door = Door(lambda: 0.0)
    with pytest.raises(KeyError), door.submitting():
        raise KeyError
    assert door.under_way == 0


@pytest.mark.parametrize(
    ("lag_s", "under_way", "let_in"),
    [
        (MAX_LAG_S * 2, BUSY_UNDER_WAY, False),
        (MAX_LAG_S * 2, BUSY_UNDER_WAY - 1, True),  # one slow thing, and nobody to turn away for it
        (MAX_LAG_S, MAX_UNDER_WAY - 1, True),
    ],
)
async def test_a_late_loop_with_much_to_do_takes_no_more(lag_s: float, under_way: int, let_in: bool) -> None:
    late = 0.0
    door = Door(lambda: late)
    with busy(door, under_way):
        late = lag_s
        if let_in:
            await door.check()
        else:
            with pytest.raises(Overloaded):
                await door.check()


def test_those_who_are_turned_away_come_back_at_different_times() -> None:
    assert {overloaded().retry_after_s for _ in range(200)} == {1, 2, 3, 4, 5}


def test_many_refusals_are_spread_so_that_they_leave_time_to_serve() -> None:
    door = Door(lambda: 0.0)
    delays = [door.delay_s(50.0) for _ in range(3000)]
    assert sum(delay < 0.001 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE, abs=1)
    assert sum(delay <= 1 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE + REFUSALS_PER_S, abs=1)
    assert max(delays) == LONGEST_DELAY_S
    assert max(door.delay_s(100.0) for _ in range(REFUSALS_AT_ONCE)) < 0.001
