"""Several calls at once."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from embedq.concurrency import in_order


class Gauge:
    """Work that counts how much of it is under way."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.cancelled: list[int] = []

    async def work(self, item: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            # Later items are ready first: order must come from in_order, not from luck.
            for _ in range(10 - item % 10):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        finally:
            self.running -= 1
        return item


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_results_are_in_order_and_bounded(limit: int) -> None:
    gauge = Gauge()
    async with aclosing(in_order(gauge.work, range(20), limit=limit)) as results:
        assert [result async for result in results] == list(range(20))
    assert gauge.most == min(limit, 20)


async def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for item in iter(int, 1):
            taken.append(item)
            yield item

    async with aclosing(in_order(Gauge().work, endless(), limit=4)) as results:
        await anext(results)
    assert len(taken) <= 5


async def test_a_failure_ends_the_others() -> None:
    gauge = Gauge()

    async def work(item: int) -> int:
        if item == 2:
            raise ValueError("two")
        return await gauge.work(item)

    async with aclosing(in_order(work, [0, 1, 2, 3], limit=4)) as results:
        with pytest.raises(ValueError, match="two"):
            [result async for result in results]
    assert gauge.running == 0


async def test_closing_ends_what_is_under_way() -> None:
    gauge = Gauge()
    async with aclosing(in_order(gauge.work, [9, 0, 1, 2], limit=4)) as results:
        assert await anext(results) == 9
    assert gauge.running == 0
    assert gauge.cancelled == [0, 1, 2]
