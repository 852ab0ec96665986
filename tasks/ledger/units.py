"""Cutting texts into units. Pure: what an item costs, and how many go into one unit."""

from collections.abc import Sequence

import orjson

from tasks.ledger.types import NewUnit

BYTES_PER_TOKEN = 4


def cost(size_bytes: int, max_tokens: int) -> int:
    """Estimated tokens of a text of `size_bytes` UTF-8 bytes: a quarter of them, at most what the model reads."""
    return max(1, min(-(-size_bytes // BYTES_PER_TOKEN), max_tokens))


def cut(texts: Sequence[str], *, max_tokens: int, max_items: int, max_cost: int) -> list[NewUnit]:
    """Units of consecutive texts, each of at most `max_items` texts and `max_cost` estimated tokens.

    A single text is a unit whatever it costs. `max_tokens` is the most the model reads of one text.
    """
    units: list[NewUnit] = []
    start = spent = 0
    for index, text in enumerate(texts):
        price = cost(len(text) if text.isascii() else len(text.encode()), max_tokens)
        if index > start and (index - start >= max_items or spent + price > max_cost):
            units.append(_unit(texts[start:index], spent))
            start, spent = index, 0
        spent += price
    if start < len(texts):
        units.append(_unit(texts[start:], spent))
    return units


def _unit(texts: Sequence[str], spent: int) -> NewUnit:
    return NewUnit(items=len(texts), cost=spent, payload=orjson.dumps(list(texts)))
