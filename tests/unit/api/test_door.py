"""Who is let in while a process has much under way, or its event loop is late, and how fast the rest is refused."""

from contextlib import ExitStack

import pytest

from api.request.memory_budget import OWNER
from api.server.overload import (
    BUSY_UNDER_WAY,
    LONGEST_DELAY_S,
    MAX_LAG_S,
    MAX_UNDER_WAY,
    REFUSALS_AT_ONCE,
    REFUSALS_PER_S,
    Door,
    Places,
    Returns,
    leave,
    overloaded,
)
from tasks.errors import Overloaded
from tasks.ledger import Lane


def busy(door: Door, number: int, owner: str = "a") -> ExitStack:
    """So many submissions under way, until it is closed."""
    stack = ExitStack()
    for _ in range(number):
        stack.enter_context(door.submitting(owner))
    return stack


def filled(door: Door, stack: ExitStack, owner: str, *, bulk: bool = False) -> int:
    """How many more submissions of an owner the door takes. They last until the stack is closed."""
    for number in range(MAX_UNDER_WAY + 1):  # pragma: no branch
        try:
            stack.enter_context(door.submitting(owner, bulk=bulk))
        except Overloaded:
            return number
    raise AssertionError


async def test_no_more_than_so_many_are_under_way() -> None:
    door = Door(lambda: 0.0)
    with busy(door, MAX_UNDER_WAY):
        with pytest.raises(Overloaded):
            await door.check("a")
        with pytest.raises(Overloaded), door.submitting("a"):
            pass
    await door.check("a")
    assert door.under_way == 0


def test_a_submission_that_fails_is_no_longer_under_way() -> None:
    door = Door(lambda: 0.0)
    with pytest.raises(KeyError), door.submitting("a"):
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
            await door.check("a")
        else:
            with pytest.raises(Overloaded):
                await door.check("a")


def test_one_of_several_owners_fills_half_of_the_door_at_most() -> None:
    door = Door(lambda: 0.0, shared=lambda: True)
    with ExitStack() as stack:
        assert filled(door, stack, "greedy") == MAX_UNDER_WAY // 2
        assert filled(door, stack, "second") == MAX_UNDER_WAY // 4
        assert filled(door, stack, "third") == MAX_UNDER_WAY // 8
    assert door.under_way == 0
    with ExitStack() as stack:
        assert filled(door, stack, "greedy") == MAX_UNDER_WAY // 2, "nothing is left of the last time"


def test_an_owner_without_others_fills_the_whole_door() -> None:
    with ExitStack() as stack:
        assert filled(Door(lambda: 0.0), stack, "a") == MAX_UNDER_WAY


@pytest.mark.parametrize("lag_s", [0.0, 2 * MAX_LAG_S])
def test_bulk_work_gives_way_before_queries(lag_s: float) -> None:
    door = Door(lambda: lag_s)
    most = BUSY_UNDER_WAY if lag_s else MAX_UNDER_WAY
    with ExitStack() as stack:
        assert filled(door, stack, "a", bulk=True) == most * 3 // 4
        assert filled(door, stack, "a") == most // 4


def test_one_of_several_owners_has_half_of_the_connections_at_most() -> None:
    several = False
    places = Places(8, lambda: several)
    scopes = [{OWNER: "a"} for _ in range(6)]
    for scope in scopes:
        places.enter(scope)
        places.enter(scope)  # a route may ask twice
    several = True
    with pytest.raises(Overloaded):
        places.enter({OWNER: "a"})
    places.enter({OWNER: "b"})
    for scope in scopes[:3]:
        leave(scope)
        leave(scope)
    places.enter({OWNER: "a"})


def test_those_who_are_turned_away_come_back_at_different_times() -> None:
    assert {overloaded().retry_after_s for _ in range(200)} == {1, 2, 3, 4, 5}


def test_many_refusals_are_spread_so_that_they_leave_time_to_serve() -> None:
    door = Door(lambda: 0.0)
    delays = [door.delay_s("a", 50.0) for _ in range(3000)]
    assert sum(delay < 0.001 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE, abs=1)
    assert sum(delay <= 1 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE + REFUSALS_PER_S, abs=1)
    assert max(delays) == LONGEST_DELAY_S
    assert door.delay_s("a", 50.0, 1.0) == 1
    assert door.delay_s("b", 50.0) == 0, "the refusals of one owner do not delay those of another"
    assert max(door.delay_s("a", 100.0) for _ in range(REFUSALS_AT_ONCE)) < 0.001


def test_owners_who_are_not_refused_any_more_are_forgotten() -> None:
    door = Door(lambda: 0.0)
    for number in range(5000):
        door.delay_s(f"owner-{number}", float(number))
    assert len(door._next_s) <= 1000


A, B = ("m", Lane.ONLINE, "a"), ("m", Lane.ONLINE, "b")


def test_those_for_whom_there_is_no_room_come_back_one_after_the_other() -> None:
    now_s = 100.0
    returns = Returns(30, lambda: now_s)
    assert [returns.wait_s(A, 2, 1) for _ in range(4)] == [2, 3, 4, 5]
    assert returns.wait_s(B, 2, 1) == 2, "others wait in another line"
    now_s += 3
    assert returns.wait_s(A, 2, 1) == 3
    now_s += 60
    assert returns.wait_s(A, 2, 1) == 2
    assert max(returns.wait_s(A, 2, 1) for _ in range(100)) == 32


def test_nobody_waits_for_those_who_do_not_come_back() -> None:
    returns = Returns(30, lambda: 100.0)
    for line in (A, A, A, B, B, B):
        returns.wait_s(line, 2, 1)
    returns.forget(lambda _queue, _lane, owner: owner == "a")
    assert (returns.wait_s(A, 2, 1), returns.wait_s(B, 2, 1)) == (2, 5)
