"""Many texts in requests, several at once."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedq.many import each, in_order, json_bytes, split

TEXTS = st.lists(st.text(st.characters(exclude_categories=()), max_size=30), max_size=60)


class Gauge:
    """Work that counts how much of it is under way."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def work(self, item: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            # Later items are ready first: order must come from in_order, not from luck.
            for _ in range(10 - item % 10):
                await asyncio.sleep(0)
            if item == -1:
                raise ValueError("minus one")
        finally:
            self.running -= 1
        return item


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_results_are_in_order_and_bounded(limit: int) -> None:
    gauge = Gauge()
    async with aclosing(in_order(gauge.work, each(range(20)), limit=limit)) as results:
        assert [result async for result in results] == list(range(20))
    assert gauge.most == min(limit, 20)


async def test_items_are_taken_as_they_are_needed_and_closing_or_a_failure_ends_what_is_under_way() -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for item in iter(int, 1):
            taken.append(item)
            yield item

    gauge = Gauge()
    async with aclosing(in_order(gauge.work, each(endless()), limit=4)) as results:
        await anext(results)
    assert len(taken) <= 5
    assert gauge.running == 0
    async with aclosing(in_order(gauge.work, each([0, -1, 1, 2]), limit=4)) as results:
        with pytest.raises(ValueError, match="minus one"):
            [result async for result in results]
        assert gauge.running == 0


@given(texts=TEXTS, max_items=st.integers(1, 10), max_bytes=st.integers(1, 200))
def test_pieces_hold_every_text_in_order_within_the_limits(texts: list[str], max_items: int, max_bytes: int) -> None:
    pieces = list(split(texts, json_bytes, max_items=max_items, max_bytes=max_bytes))
    assert [text for piece in pieces for text in piece] == texts
    for piece in pieces:
        assert 1 <= len(piece) <= max_items
        assert len(piece) == 1 or sum(map(json_bytes, piece)) <= max_bytes
        body = json.dumps(piece, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        assert sum(map(json_bytes, piece)) == len(body) - 1, "two brackets, and no comma after the last one"
