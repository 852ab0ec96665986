"""Who is let in while a process has much in flight, its event loop is late or a database is slow, and who is not."""

import asyncio
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from api import async_datasets
from api.async_datasets import AsyncDatasets
from api.async_storage import AsyncStorage
from api.load_limits import (
    BUSY_IN_FLIGHT,
    LONGEST_PAUSE_S,
    MAX_IN_FLIGHT,
    MAX_LAG_S,
    REFUSALS_AT_ONCE,
    REFUSALS_PER_S,
    InFlight,
)
from tasks.errors import Overloaded
from worker_config.settings import load_settings


def filled(in_flight: InFlight, stack: ExitStack, owner: str, *, bulk: bool = False) -> int:
    """How many more submissions of an owner are let in. They last until the stack is closed."""
    for number in range(MAX_IN_FLIGHT + 1):  # pragma: no branch
        try:
            stack.enter_context(in_flight.submitting(owner, bulk=bulk))
        except Overloaded:
            return number
    raise AssertionError


@pytest.mark.parametrize(
    ("lag_s", "number", "let_in"),
    [
        (0, MAX_IN_FLIGHT, False),
        (MAX_LAG_S, MAX_IN_FLIGHT - 1, True),
        (MAX_LAG_S * 2, BUSY_IN_FLIGHT, False),
        (MAX_LAG_S * 2, BUSY_IN_FLIGHT - 1, True),  # one slow thing, and nobody to turn away for it
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
    await in_flight.require_room("a")


def test_one_of_several_owners_fills_half_at_most() -> None:
    in_flight = InFlight(lambda: 0.0, lambda: True)
    for _ in range(2):  # nothing is left of the last time
        with ExitStack() as stack:
            filled_by = [filled(in_flight, stack, owner) for owner in ("greedy", "second", "third")]
        assert filled_by == [MAX_IN_FLIGHT // 2, MAX_IN_FLIGHT // 4, MAX_IN_FLIGHT // 8]


@pytest.mark.parametrize("lag_s", [0.0, 2 * MAX_LAG_S])
def test_bulk_work_gives_way_before_queries(lag_s: float) -> None:
    in_flight = InFlight(lambda: lag_s)
    most = BUSY_IN_FLIGHT if lag_s else MAX_IN_FLIGHT
    with ExitStack() as stack:
        assert filled(in_flight, stack, "a", bulk=True) == most * 3 // 4
        assert filled(in_flight, stack, "a") == most // 4


def test_many_refusals_are_spread_so_that_they_leave_time_to_serve() -> None:
    in_flight = InFlight(lambda: 0.0)
    delays = [in_flight.next_refusal_s(50.0) for _ in range(3000)]
    assert sum(delay < 0.001 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE, abs=1)
    assert sum(delay <= 1 for delay in delays) == pytest.approx(REFUSALS_AT_ONCE + REFUSALS_PER_S, abs=1)
    assert max(delays) == LONGEST_PAUSE_S
    assert max(in_flight.next_refusal_s(100.0) for _ in range(REFUSALS_AT_ONCE)) < 0.001


# ---- databases that do not answer


async def nobody(_: object) -> str:
    raise AssertionError


async def test_slow_databases_hold_up_those_who_ask_them_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(datasets=str(tmp_path))
    datasets = AsyncDatasets(AsyncStorage(settings.storage_url, nobody), settings)
    asked, answering = threading.Semaphore(0), threading.Event()

    def ask(_: object) -> str:
        asked.release()
        answering.wait()
        return "late"

    calls = [asyncio.create_task(datasets.ask("slow", ask)) for _ in range(20)]
    try:
        refused, asking = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
        assert {type(call.exception()) for call in refused} == {Overloaded}
        for _ in asking:
            assert await asyncio.to_thread(asked.acquire)
        assert await datasets.held_bytes("slow") == await datasets.held_bytes("other") == 0
        assert await datasets.run(lambda found: found.names("other")) == []
        assert await datasets.ask("other", lambda found: found.names("other")) == []
        for call in asking:  # its caller leaves; the thread is still there
            call.cancel()
        await asyncio.wait(asking)
        with pytest.raises(Overloaded):
            await datasets.ask("slow", ask)
        monkeypatch.setattr(async_datasets, "_SOON_S", 0.0)
        assert await datasets.ask("another", ask) is None, "what takes too long is not known"
    finally:
        answering.set()
