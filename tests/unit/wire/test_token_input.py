"""Token numbers: decoded as OpenAI's own library does it, or refused by name."""

from typing import Any

import orjson
import pytest
import tiktoken

from tasks.errors import RequestError
from tasks.ledger.task import NewTask
from tasks.wire.token_input import texts_of_tokens, tokens
from tests.raises_code import raises_code
from tests.unit.api.embedding_requests import new_tasks, overview, synchronous

_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTES = [*_PRINTED, *(byte for byte in range(256) if byte not in _PRINTED)]
NUMBER_OF = {byte: number for number, byte in enumerate(_BYTES)}
"""Each byte is a token, too."""
SPACES = 58040
"""The longest token: 128 spaces."""
GAP = 100256
AFTER_LAST = 100277


def decoded(input_: Any, **settings: Any) -> list[str]:
    return texts(synchronous(new_tasks(overview(), **settings), input=input_))


def texts(stored: NewTask) -> list[str]:
    return [text for unit in stored.pieces for text in orjson.loads(unit.payload)]


def numbers(text: str) -> list[int]:
    return [NUMBER_OF[byte] for byte in text.encode()]


def test_every_number_stands_for_what_openais_library_says(cl100k: tiktoken.Encoding) -> None:
    def told(number: int) -> bytes:
        try:
            return cl100k.decode_single_token_bytes(number)
        except KeyError:
            return b""

    assert list(tokens()) == [told(number) for number in range(cl100k.n_vocab)]


@pytest.mark.parametrize(
    ("input_", "expected"),
    [
        (numbers("one"), ["one"]),
        ([numbers("one")], ["one"]),
        ([numbers("one"), numbers("zwölf")], ["one", "zwölf"]),
        ([15339, 1917], ["hello world"]),
        ([SPACES], [" " * 128]),
        (numbers("zwölf")[:3], ["zw\ufffd"]),  # cut inside a character
        ([100257], ["<|endoftext|>"]),
        ([100276], ["<|endofprompt|>"]),
        (["one", "two"], ["one", "two"]),
        ("one", ["one"]),
        (numbers("ABCDEFGHIJKLMNOPQRSTUVWXYZ") * 300, ["ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 300]),
    ],
)
def test_one_array_is_one_text(input_: Any, expected: list[str]) -> None:
    assert decoded(input_) == expected


@pytest.mark.parametrize(
    ("input_", "code", "param"),
    [
        ([1, "a"], "invalid_type", "input[1]"),
        ([1, True], "invalid_type", "input[1]"),
        ([1, None], "invalid_type", "input[1]"),
        ([1, 2.0], "invalid_type", "input[1]"),
        ([1, [2]], "invalid_type", "input[1]"),
        ([[1], "a"], "invalid_type", "input[1]"),
        ([[1], 7], "invalid_type", "input[1]"),
        ([[1], {"a": 1}], "invalid_type", "input[1]"),
        ([[1], [2, "a"]], "invalid_type", "input[1][1]"),
        ([[[1]]], "invalid_type", "input[0]"),
        (["a", 1], "invalid_type", "input[1]"),
        (["a", [1]], "invalid_type", "input[1]"),
        ([[1], []], "empty_input", "input[1]"),
        ([[]], "invalid_type", "input[0]"),
        ([["a"]], "invalid_type", "input[0]"),
        ([1, -1], "invalid_value", "input[1]"),
        ([AFTER_LAST], "invalid_value", "input[0]"),
        ([[1], [2, 2**63]], "invalid_value", "input[1][1]"),
        ([[1], [2, GAP]], "invalid_value", "input[1][1]"),
        ([1] * 1001, "input_too_large", "input"),
        ([SPACES] * 8, "input_too_large", "input"),
        ([[1], [SPACES] * 8], "input_too_large", "input[1]"),
        ([[SPACES] * 7] * 2, "input_too_large", "input[1]"),
        ([[1]] * 2049, "too_many_inputs", "input"),
    ],
)
def test_what_is_wrong_is_named(input_: Any, code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decoded(input_, max_input_bytes=1000, max_body_bytes=1500)

    assert (caught.value.status, caught.value.code, caught.value.param) == (400, code, param)
    assert caught.value.detail.startswith(param)


def test_numbers_and_their_text_are_the_same_work() -> None:
    stored = [synchronous(new_tasks(overview()), input=input_) for input_ in (["one"], [numbers("one")])]

    assert stored[0].alias == stored[1].alias


@pytest.mark.parametrize(("broken", "taken"), [(333, True), (334, False)])
def test_what_takes_the_place_of_broken_characters_counts(broken: int, taken: bool) -> None:
    def read(*arrays: list[int]) -> list[str]:
        return texts_of_tokens(arrays, max_input_bytes=1000, max_total_bytes=1500)

    array = [NUMBER_OF[0xFF]] * broken  # each becomes three bytes
    if taken:
        assert read(array, numbers("a" * 501))[0] == "\ufffd" * broken
        with raises_code("input_too_large"):
            read(array, numbers("a" * 502))
    else:
        with raises_code("input_too_large"):
            read(array)
