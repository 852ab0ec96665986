"""Reading and parsing request bodies."""

import json
import sys
from types import FrameType

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import EmbedqError
from tasks.wire.validation import parse_object
from tests.raises_code import raises_code


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.text() | st.lists(st.text())))
def test_any_object_comes_through(value: dict[str, object]) -> None:
    assert parse_object(orjson.dumps(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_give_an_object_or_one_of_our_errors(body: bytes) -> None:
    try:
        parsed = parse_object(body)
    except EmbedqError:
        return
    assert isinstance(parsed, dict)


def test_what_is_wrong_is_located() -> None:
    for body, where in (
        (b'{"a": 1,}', "line 1 column"),
        (b'{"a":\n\n"b" "c"}', "line 3 column"),
        (b"{", "line 1 column"),
    ):
        with raises_code("invalid_json", match=where):
            parse_object(body)
    with raises_code("invalid_unicode", match="byte 2"):
        parse_object(b'{"\xff": 1}')
    surrogates: list[tuple[object, str]] = [
        ({"input": "\ud800"}, "input"),
        ({"input": ["a", "b", "c", "x\udfff"]}, "input[3]"),
        ({"input": "a", "metadata": {"k": "\udabc"}}, "metadata.k"),
        ({"input": [["a", "\ud800"]]}, "input[0][1]"),
        ({"metadata": {"\ud800": "v"}}, "metadata"),
    ]
    for value, param in surrogates:
        with raises_code("invalid_unicode") as caught:
            parse_object(json.dumps(value).encode())
        assert caught.value.param == param
    with raises_code("invalid_unicode", match="line 1 column") as caught:  # in a large body it is only located
        parse_object(json.dumps({"input": ["x" * 2**20, "\ud800"]}).encode())
    assert caught.value.param is None


def test_where_a_lone_surrogate_is_is_said_in_few_words() -> None:
    deep = b'{"input":' * 300 + b'"\\ud800"' + b"}" * 300
    long = b'{"' + b"k" * 10_000 + b'": "\\ud800"}'

    for body in (deep, long):
        with raises_code("invalid_unicode") as caught:
            parse_object(body)
        assert caught.value.param is not None
        assert len(caught.value.param) < 100
        assert len(caught.value.detail) < 200


def test_looking_for_a_lone_surrogate_takes_few_steps_per_string_however_deep() -> None:
    strings = 1000
    body = b'{"input":' + b"[" * 500 + b'"",' * strings + b'"\\ud800"' + b"]" * 500 + b"}"
    steps = 0

    def count(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        with raises_code("invalid_unicode"):
            parse_object(body)
    finally:
        sys.setprofile(None)

    assert steps < 100 * strings
