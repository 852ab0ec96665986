"""Who is let in while a process has much in flight, or its event loop is late, and how fast the rest is refused."""

from contextlib import ExitStack, closing
from typing import Any

import pytest
from starlette.types import Message

from api.load_limits import (
    BUSY_IN_FLIGHT,
    LONGEST_PAUSE_S,
    MAX_IN_FLIGHT,
    MAX_LAG_S,
    REFUSALS_AT_ONCE,
    REFUSALS_PER_S,
    Held,
    InFlight,
    LargeResponse,
    Shared,
    jitter,
    overloaded,
)
from tasks.errors import Overloaded

LARGE = 100_000


def filled(in_flight: InFlight, stack: ExitStack, owner: str, *, bulk: bool = False) -> int:
    """How many more submissions of an owner are let in. They last until the stack is closed."""
    for number in range(MAX_IN_FLIGHT + 1):  # pragma: no branch
        try:
            stack.enter_context(in_flight.submitting(owner, bulk=bulk))
        except Overloaded:
            return number
    raise AssertionError


async def test_no_more_than_so_many_are_in_flight() -> None:
    in_flight = InFlight(lambda: 0.0)
    with ExitStack() as stack:
        assert filled(in_flight, stack, "a") == MAX_IN_FLIGHT
        with pytest.raises(Overloaded):
            await in_flight.require_room("a")
    await in_flight.require_room("a")
    assert in_flight.number == 0


@pytest.mark.parametrize(
    ("lag_s", "number", "let_in"),
    [
        (MAX_LAG_S * 2, BUSY_IN_FLIGHT, False),
        (MAX_LAG_S * 2, BUSY_IN_FLIGHT - 1, True),  # one slow thing, and nobody to turn away for it
        (MAX_LAG_S, MAX_IN_FLIGHT - 1, True),
    ],
)
async def test_a_late_loop_with_much_to_do_takes_no_more(lag_s: float, number: int, let_in: bool) -> None:
    late = 0.0
    in_flight = InFlight(lambda: late)
    with ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(in_flight.submitting("a", bulk=False))
        late = lag_s
        if let_in:
            await in_flight.require_room("a")
        else:
            with pytest.raises(Overloaded):
                await in_flight.require_room("a")


def test_one_of_several_owners_fills_half_at_most() -> None:
    in_flight = InFlight(lambda: 0.0, lambda: True)
    with ExitStack() as stack:
        assert filled(in_flight, stack, "greedy") == MAX_IN_FLIGHT // 2
        assert filled(in_flight, stack, "second") == MAX_IN_FLIGHT // 4
        assert filled(in_flight, stack, "third") == MAX_IN_FLIGHT // 8
    with ExitStack() as stack:
        assert filled(in_flight, stack, "greedy") == MAX_IN_FLIGHT // 2, "nothing is left of the last time"


@pytest.mark.parametrize("lag_s", [0.0, 2 * MAX_LAG_S])
def test_bulk_work_gives_way_before_queries(lag_s: float) -> None:
    in_flight = InFlight(lambda: lag_s)
    most = BUSY_IN_FLIGHT if lag_s else MAX_IN_FLIGHT
    with ExitStack() as stack:
        assert filled(in_flight, stack, "a", bulk=True) == most * 3 // 4
        assert filled(in_flight, stack, "a") == most // 4


def test_those_who_are_turned_away_come_back_at_different_times() -> None:
    assert {overloaded().retry_after_s for _ in range(200)} == {1, 2, 3, 4, 5}
    waits = [jitter(8) for _ in range(200)]
    assert 8 <= min(waits) < 8.5
    assert 9.5 < max(waits) <= 10


def test_many_refusals_are_spread_so_that_they_leave_time_to_serve() -> None:
    in_flight = InFlight(lambda: 0.0)
    delays = [in_flight.next_refusal_s(50.0) for _ in range(3000)]
    assert sum(delay < 0.001 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE, abs=1)
    assert sum(delay <= 1 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE + REFUSALS_PER_S, abs=1)
    assert max(delays) == LONGEST_PAUSE_S
    assert max(in_flight.next_refusal_s(100.0) for _ in range(REFUSALS_AT_ONCE)) < 0.001


def test_bytes_are_held_as_long_as_their_request() -> None:
    limit = Shared(3 * LARGE)
    with closing(Held(limit, "a")) as first, closing(Held(limit, "a")) as second:
        first.grow_to(1000)
        assert limit.number == 0, "few bytes are not counted"
        first.grow_to(LARGE)
        first.grow_to(LARGE + LARGE // 2)
        with pytest.raises(Overloaded):
            second.grow_to(2 * LARGE)
        second.grow_to(LARGE)
        assert limit.number == 2.5 * LARGE
    assert limit.number == 0


def test_a_request_that_is_alone_is_never_refused() -> None:
    limit = Shared(LARGE, lambda: True)
    with closing(Held(limit, "a")) as alone:
        alone.grow_to(2 * LARGE)
        with closing(Held(limit, "b")) as other, pytest.raises(Overloaded):
            other.grow_to(LARGE)


async def test_a_large_answer_is_sent_in_pieces_none_of_which_keeps_the_whole() -> None:
    budget, sent = Shared(10 * LARGE), list[Any]()
    held = Held(budget, "a")
    held.grow_to(10 * LARGE)
    response = LargeResponse(b"x" * 10 * LARGE, held, "application/json", {})

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    await response({"type": "http"}, receive, send)
    pieces = [message["body"] for message in sent[1:]]
    assert b"".join(pieces) == response.body
    assert {type(piece) for piece in pieces} == {bytes}
    assert max(map(len, pieces)) <= 256 * 1024
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(pieces) - 1) + [False]
    assert budget.number == 0
