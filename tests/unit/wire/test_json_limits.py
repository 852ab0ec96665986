"""Counting lists, objects and fields without parsing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.wire.json_limits import has_more_parts

VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('[]{}"\\\\,:ab\n'), max_size=12),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text('[{:"\\\\x', max_size=4), below, max_size=4),
    max_leaves=30,
)


def parts(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(parts, value.values()))
    return 1 + sum(map(parts, value)) if isinstance(value, list) else 0


@given(VALUES)
def test_what_is_counted_is_what_parsing_makes(value: Any) -> None:
    data, there = json.dumps(value).encode(), parts(value)

    assert not has_more_parts(data, there)
    assert there == 0 or has_more_parts(data, there - 1)


@pytest.mark.parametrize("before", [2**18 - 2, 2**18 - 1, 2**18, 2**18 + 1])
def test_a_string_that_goes_on_in_the_next_block(before: int) -> None:
    data = b'["' + b"x" * before + b'[[["]'

    assert has_more_parts(data, 0)
    assert not has_more_parts(data, 1)


def test_bytes_that_are_no_json_are_counted_too() -> None:
    assert not has_more_parts(b"", 0)
    assert has_more_parts(b"[" * 9, 8)
    assert has_more_parts(b":" * 9, 8)
    assert not has_more_parts(b"\xff" * 9, 8)
