"""Reading and parsing request bodies."""

import json
import sys
from types import FrameType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from api.error_responses import CallerGone
from api.request_limits import Held, Shared, read_body
from tasks.errors import EmbedqError
from tasks.wire.validation import parse_object
from tests.raises_code import raises_code


def request(*chunks: bytes, content_type: str = "application/json", length: str | None = None) -> Request:
    """A request whose body arrives in these chunks; without any, the client leaves at once."""
    messages: list[Message] = [{"type": "http.request", "body": c, "more_body": True} for c in chunks]
    messages.append(
        {"type": "http.request", "body": b"", "more_body": False} if chunks else {"type": "http.disconnect"}
    )
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", length.encode()))

    async def receive() -> Message:
        return messages.pop(0)

    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_chunks_are_joined() -> None:
    assert await read_body(request(b'{"a"', b":1}"), 100, Held(Shared(2**20), "me")) == b'{"a":1}'


async def test_the_limit_is_inclusive() -> None:
    assert len(await read_body(request(b"x" * 50, b"x" * 50), 100, Held(Shared(2**20), "me"))) == 100
    with raises_code("body_too_large"):
        await read_body(request(b"x" * 50, b"x" * 51), 100, Held(Shared(2**20), "me"))


async def test_a_declared_length_is_refused_before_reading() -> None:
    with raises_code("body_too_large"):
        await read_body(request(b"x", length="101"), 100, Held(Shared(2**20), "me"))


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", "application/x+json"])
async def test_json_by_any_name(content_type: str) -> None:
    assert await read_body(request(b"{}", content_type=content_type), 100, Held(Shared(2**20), "me")) == b"{}"


@pytest.mark.parametrize("content_type", ["", "text/json", "application/jsonx", "multipart/form-data"])
async def test_anything_else_is_refused(content_type: str) -> None:
    with raises_code("unsupported_media_type"):
        await read_body(request(b"{}", content_type=content_type), 100, Held(Shared(2**20), "me"))


async def test_a_client_that_leaves_while_sending() -> None:
    with pytest.raises(CallerGone):
        await read_body(request(), 100, Held(Shared(2**20), "me"))


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


@pytest.mark.parametrize(
    ("body", "where"),
    [(b'{"a": 1,}', "line 1 column"), (b'{"a":\n\n"b" "c"}', "line 3 column"), (b"{", "line 1 column")],
)
def test_invalid_json_is_located(body: bytes, where: str) -> None:
    with raises_code("invalid_json", match=where):
        parse_object(body)


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"input": "\ud800"}, "input"),
        ({"input": ["a", "b", "c", "x\udfff"]}, "input[3]"),
        ({"input": "a", "metadata": {"k": "\udabc"}}, "metadata.k"),
        ({"input": [["a", "\ud800"]]}, "input[0][1]"),
        ({"metadata": {"\ud800": "v"}}, "metadata"),
    ],
)
def test_a_lone_surrogate_is_found(value: object, param: str) -> None:
    with raises_code("invalid_unicode") as caught:
        parse_object(json.dumps(value).encode())
    assert caught.value.param == param


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


def test_in_a_large_body_a_lone_surrogate_is_only_located() -> None:
    with raises_code("invalid_unicode", match="line 1 column") as caught:
        parse_object(json.dumps({"input": ["x" * 2**20, "\ud800"]}).encode())
    assert caught.value.param is None


def test_surrogates_in_a_body_that_is_wrong_anyway() -> None:
    with raises_code("invalid_unicode", "invalid_json"):
        parse_object(b'{"input": "\\ud800", ')


def test_bytes_that_are_not_utf8_are_located() -> None:
    with raises_code("invalid_unicode", match="byte 2"):
        parse_object(b'{"\xff": 1}')
