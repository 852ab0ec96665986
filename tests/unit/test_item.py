"""Cutting texts into units."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.item import cost
from tasks.ledger.task import cut_texts

MAX_TOKENS = 256
texts = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("size_bytes", "tokens"), [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (1023, 256), (1024, 256), (10**6, 256)]
)
def test_cost_is_a_quarter_of_the_bytes_up_to_what_the_model_reads(size_bytes: int, tokens: int) -> None:
    assert cost("x" * size_bytes, MAX_TOKENS) == tokens


def test_cost_counts_bytes_not_characters() -> None:
    units = cut_texts(["a" * 8, "é" * 8, "漢" * 8], max_tokens=256, max_items=1, max_cost=100)
    assert [unit.cost for unit in units] == [2, 4, 6]


@given(texts=texts, max_items=st.integers(1, 10), max_cost=st.integers(1, 60))
def test_units_hold_all_texts_once_in_order(texts: list[str], max_items: int, max_cost: int) -> None:
    units = cut_texts(texts, max_tokens=MAX_TOKENS, max_items=max_items, max_cost=max_cost)
    assert [text for unit in units for text in orjson.loads(unit.payload)] == texts
    assert [len(orjson.loads(unit.payload)) for unit in units] == [unit.items for unit in units]


@given(texts=texts, max_items=st.integers(1, 10), max_cost=st.integers(1, 60))
def test_units_keep_to_the_limits_and_leave_no_room(texts: list[str], max_items: int, max_cost: int) -> None:
    units = cut_texts(texts, max_tokens=MAX_TOKENS, max_items=max_items, max_cost=max_cost)
    for unit in units:
        held = orjson.loads(unit.payload)
        assert unit.cost == sum(cost(text, MAX_TOKENS) for text in held)
        assert 1 <= unit.items <= max_items
        assert unit.cost <= max_cost or unit.items == 1
    for unit, following in pairwise(units):
        first = orjson.loads(following.payload)[0]
        fits = unit.cost + cost(first, MAX_TOKENS) <= max_cost
        assert unit.items == max_items or not fits, "a text was left for the next unit although it fits"


def test_no_texts_are_no_units() -> None:
    assert cut_texts([], max_tokens=256, max_items=4, max_cost=100) == []


def test_white_space_and_nul_are_texts() -> None:
    (unit,) = cut_texts([" ", "\0", "\n"], max_tokens=256, max_items=64, max_cost=4096)
    assert orjson.loads(unit.payload) == [" ", "\0", "\n"]
