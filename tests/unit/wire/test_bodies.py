"""From bytes to a checked body: what is wrong is located, and a body with many faults costs no more than its first."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.embeddings import TaskBody
from tasks.errors import EmbedqError, RequestError
from tasks.wire.embeddings_body import read_body
from tasks.wire.json_limits import has_more_parts
from tasks.wire.validation import parse_object
from tests.raises_code import raises_code

MANY = 200_000
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
def test_lists_objects_and_fields_are_counted_without_parsing(value: Any) -> None:
    data, there = json.dumps(value).encode(), parts(value)
    assert not has_more_parts(data, there)
    assert there == 0 or has_more_parts(data, there - 1)


@pytest.mark.parametrize(
    ("data", "there"),
    [
        *((b'["' + b"x" * before + b'[[["]', 1) for before in range(2**18 - 2, 2**18 + 2)),  # the edge of a block
        *((b"[" * 9, 9), (b":" * 9, 9), (b"\xff" * 9, 0), (b"", 0)),
    ],
)
def test_what_is_counted_at_the_edges(data: bytes, there: int) -> None:
    assert not has_more_parts(data, there)
    assert there == 0 or has_more_parts(data, there - 1)


@given(st.binary(max_size=60))
def test_any_bytes_give_an_object_or_one_of_our_errors(body: bytes) -> None:
    try:
        parsed = parse_object(body)
    except EmbedqError:
        return
    assert isinstance(parsed, dict)


DEEP = b'{"input":' * 300 + b'"\\ud800"' + b"}" * 300
LONG = b'{"' + b"k" * 10_000 + b'": "\\ud800"}'


@pytest.mark.parametrize(
    ("body", "param", "where"),
    [
        (b'{"a":\n\n"b" "c"}', None, "line 3 column"),
        (b'{"\xff": 1}', None, "byte 2"),
        (json.dumps({"input": ["a", "b", "c", "x\udfff"]}).encode(), "input[3]", "line 1"),
        (json.dumps({"input": "a", "metadata": {"k": "\udabc"}}).encode(), "metadata.k", "line 1"),
        (json.dumps({"metadata": {"\ud800": "v"}}).encode(), "metadata", "line 1"),
        (json.dumps({"input": ["x" * 2**20, "\ud800"]}).encode(), None, "line 1 column"),  # it is large
        (DEEP, ".".join(["input"] * 11), "line 1"),
        (LONG, "k" * 64, "line 1"),
    ],
    ids=range(8),
)
def test_what_is_wrong_is_located_in_few_words(body: bytes, param: str | None, where: str) -> None:
    with raises_code("invalid_json", "invalid_unicode", match=where) as caught:
        parse_object(body)
    assert caught.value.param == param
    assert len(caught.value.detail) < 200


def refusal(fields: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_body(TaskBody, fields, max_inputs=2048)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [  # made in the test: each process of a run would hold them all
        lambda: {"input": "a"} | {f"field {i}": i for i in range(MANY)},
        lambda: {"input": "a", "metadata": {f"key {i}": i for i in range(MANY)}},
        lambda: {"input": "a", "metadata": {"x" * MANY: 1}},
        lambda: {"input": [7] * 2048},
    ],
    ids=["unknown fields", "pairs", "a long key", "numbers"],
)
def test_many_faults_cost_no_more_than_the_first(body: Callable[[], dict[str, Any]]) -> None:
    fields = body()
    refusal(dict(fields))  # what a first refusal loads
    tracemalloc.start()
    try:
        error = refusal(fields)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5 * MANY, "it grows with the body"
    assert len(error.detail) < 500
