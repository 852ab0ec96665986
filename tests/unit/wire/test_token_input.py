"""Token numbers: decoded as OpenAI's own library does it, within the limits of texts.

`test_bad_input.py` of the web tier has what is refused in all other ways.
"""

from typing import Any

import pytest
import tiktoken

from tasks.wire.token_input import texts_of_tokens, tokens
from tests.raises_code import raises_code

SPACES = 58040
"""The longest token: 128 spaces."""
BYTE_FF, Z, W, FIRST_OF_UMLAUT = 187, 89, 86, 127
"""Each byte is a token, too."""


def test_every_number_stands_for_what_openais_library_says(cl100k: tiktoken.Encoding) -> None:
    def told(number: int) -> bytes:
        try:
            return cl100k.decode_single_token_bytes(number)
        except KeyError:
            return b""

    assert list(tokens()) == [told(number) for number in range(cl100k.n_vocab)]


def texts(given: list[Any]) -> list[str]:
    return texts_of_tokens(given, max_input_bytes=1000, max_total_bytes=1500)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([15339, 1917], ["hello world"]),
        ([Z, W, FIRST_OF_UMLAUT], ["zw\ufffd"]),  # cut inside a character
        # A broken character becomes three bytes, which count.
        ([[BYTE_FF] * 333, [Z] * 501], ["\ufffd" * 333, "z" * 501]),
    ],
)
def test_one_array_is_one_text(given: list[Any], expected: list[str]) -> None:
    assert texts(given) == expected


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([1] * 1001, "input"),
        ([SPACES] * 8, "input"),
        ([[1], [SPACES] * 8], "input[1]"),
        ([[SPACES] * 7] * 2, "input[1]"),
        ([BYTE_FF] * 334, "input"),
        ([[BYTE_FF] * 333, [Z] * 502], "input[1]"),
    ],
)
def test_what_stands_for_too_much_is_named(given: list[Any], param: str) -> None:
    with raises_code("input_too_large") as caught:
        texts(given)
    assert caught.value.param == param
