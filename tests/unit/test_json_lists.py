"""Counting lists and objects without parsing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.json_lists import has_more_lists

VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('[]{}"\\\\,:ab\n'), max_size=12),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text('[{"\\\\x', max_size=4), below, max_size=4),
    max_leaves=30,
)


def containers(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + sum(map(containers, inner))


@given(VALUES)
def test_what_is_counted_is_what_parsing_makes(value: Any) -> None:
    data, there = json.dumps(value).encode(), containers(value)

    assert not has_more_lists(data, there)
    assert there == 0 or has_more_lists(data, there - 1)


@pytest.mark.parametrize("before", [2**18 - 2, 2**18 - 1, 2**18, 2**18 + 1])
def test_a_string_that_goes_on_in_the_next_block(before: int) -> None:
    data = b'["' + b"x" * before + b'[[["]'

    assert has_more_lists(data, 0)
    assert not has_more_lists(data, 1)


def test_bytes_that_are_no_json_are_counted_too() -> None:
    assert not has_more_lists(b"", 0)
    assert has_more_lists(b"[" * 9, 8)
    assert not has_more_lists(b"\xff" * 9, 8)
