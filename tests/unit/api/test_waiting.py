"""The stall probe, and work that is moved off the loop."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from api.loop_stall import TICK_S, StallProbe
from api.offload import LARGE_BYTES, offload


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
