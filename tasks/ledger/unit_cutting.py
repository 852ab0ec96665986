"""How the items of a task are cut into units: consecutive ones, up to a number and up to a cost."""

from collections.abc import Sequence

import orjson

from tasks.item import cost
from tasks.ledger.task import NewUnit


class UnitCutter:
    """Cuts items into units, one after the other. A single item is a unit whatever it costs.

    Args:
        max_items: of one unit.
        max_cost: estimated tokens of one unit.
    """

    def __init__(self, *, max_items: int, max_cost: int) -> None:
        self._max_items = max_items
        self._max_cost = max_cost
        self._first = self._items = self._cost = 0
        self._full: list[tuple[int, int, int]] = []

    @property
    def units(self) -> list[tuple[int, int, int]]:
        """Of each unit so far: the number of its first item, how many it has, their cost."""
        return [*self._full, (self._first, self._items, self._cost)] if self._items else []

    def add(self, item_cost: int) -> None:
        """Takes the next item."""
        if self._items and (self._items >= self._max_items or self._cost + item_cost > self._max_cost):
            self._full.append((self._first, self._items, self._cost))
            self._first += self._items
            self._items = self._cost = 0
        self._items += 1
        self._cost += item_cost


def cut_texts(texts: Sequence[str], *, max_tokens: int, max_items: int, max_cost: int) -> list[NewUnit]:
    """Units of consecutive texts. `max_tokens` is the most the model reads of one text."""
    cutter = UnitCutter(max_items=max_items, max_cost=max_cost)
    for text in texts:
        cutter.add(cost(text, max_tokens))
    return [
        NewUnit(items=items, cost=spent, payload=orjson.dumps(list(texts[first : first + items])))
        for first, items, spent in cutter.units
    ]
