"""Waiters, the stall probe, and work that is moved off the loop."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from api.request.offload import LARGE_BYTES, offload
from api.server.overload import TICK_S, StallProbe
from api.waiting.subscription import Waiter

LONG_S = 20.0


async def test_a_wake_before_the_wait_is_not_lost() -> None:
    waiter = Waiter("t")
    waiter.wake()

    assert await waiter.changed(LONG_S)
    assert not await waiter.changed(0)


async def test_a_wake_during_the_wait_ends_it() -> None:
    waiter = Waiter("t")
    waiting = asyncio.create_task(waiter.changed(LONG_S))
    await asyncio.sleep(0)
    waiter.wake()
    waiter.wake()

    assert await waiting
    assert not await waiter.changed(0.001)


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    waiter = Waiter("t")
    waiting = asyncio.create_task(waiter.changed(LONG_S))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    waiter.wake()

    assert await waiter.changed(LONG_S)


async def test_leaving_and_dismissal_wake() -> None:
    gone, dismissed = Waiter("a"), Waiter("b")
    gone.leave()
    dismissed.dismiss()

    assert (gone.gone, gone.dismissed, await gone.changed(LONG_S)) == (True, False, True)
    assert (dismissed.gone, dismissed.dismissed, await dismissed.changed(LONG_S)) == (False, True, True)


async def test_the_probe_sees_a_blocked_loop() -> None:
    clock = SimpleNamespace(now_s=100.0)
    ticked = asyncio.Event()
    lates: list[float] = []

    def observe(late_s: float) -> None:
        lates.append(late_s)
        ticked.set()

    probe = StallProbe(observe, clock=lambda: clock.now_s)
    probe.start()
    clock.now_s += TICK_S + 0.25  # until then the loop had no turn
    await ticked.wait()
    assert probe.recent_s == lates[0] == pytest.approx(0.25)
    ticked.clear()
    clock.now_s += TICK_S
    await ticked.wait()
    probe.stop()

    assert probe.recent_s == pytest.approx(0.9 * lates[0])
    assert probe.take_s() == probe.longest_s == lates[0]
    assert probe.take_s() == 0


async def test_large_work_goes_to_a_thread_and_small_work_does_not() -> None:
    here = threading.get_ident()

    assert await offload(LARGE_BYTES - 1, threading.get_ident) == here
    assert await offload(LARGE_BYTES, threading.get_ident) != here
