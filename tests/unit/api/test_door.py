"""Who is let in while a process has much under way, or its event loop is late."""

from contextlib import ExitStack

import pytest

from api.door import BUSY_UNDER_WAY, MAX_LAG_S, MAX_UNDER_WAY, Door
from tasks.errors import Overloaded


def busy(door: Door, number: int) -> ExitStack:
    """So many submissions under way, until it is closed."""
    stack = ExitStack()
    for _ in range(number):
        stack.enter_context(door.submitting())
    return stack


def test_no_more_than_so_many_are_under_way() -> None:
    door = Door(lambda: 0.0)
    with busy(door, MAX_UNDER_WAY):
        with pytest.raises(Overloaded):
            door.check()
        with pytest.raises(Overloaded), door.submitting():
            pass
    door.check()
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
def test_a_late_loop_with_much_to_do_takes_no_more(lag_s: float, under_way: int, let_in: bool) -> None:
    late = 0.0
    door = Door(lambda: late)
    with busy(door, under_way):
        late = lag_s
        if let_in:
            door.check()
        else:
            with pytest.raises(Overloaded):
                door.check()


def test_those_who_are_turned_away_come_back_at_different_times() -> None:
    door = Door(lambda: 0.0)
    told = set()
    with busy(door, MAX_UNDER_WAY):
        for _ in range(100):
            with pytest.raises(Overloaded) as refused:
                door.check()
            told.add(refused.value.retry_after_s)
    assert told == {1, 2, 3, 4, 5}
