"""OpenAI's token numbers as input: they become texts again, with cl100k_base, OpenAI's vocabulary for embeddings.

LangChain's `OpenAIEmbeddings` sends them by default. They are never tokens of the served model: to take them for its
own would give wrong vectors without any error.
"""

from base64 import b64decode
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tasks.errors import Invalid
from tasks.item import size_bytes

_FIM = (b"<|fim_prefix|>", b"<|fim_middle|>", b"<|fim_suffix|>")
_SPECIAL = (b"", b"<|endoftext|>", *_FIM, *[b""] * 15, b"<|endofprompt|>")
"""The numbers after those of the file. Empty: no token."""


@cache
def tokens() -> tuple[bytes, ...]:
    """All tokens by their number; an empty one is none. The first call takes some 50 ms and 10 MB."""
    lines = Path(__file__).with_name("cl100k_base.tiktoken").read_bytes().splitlines()
    return (*(b64decode(line.partition(b" ")[0]) for line in lines), *_SPECIAL)


def texts_of_tokens(value: Sequence[object], *, max_input_bytes: int, max_total_bytes: int) -> list[str]:
    """The texts of one array of token numbers, `[1, 2]`, or of several, `[[1], [2]]`. `value` is not empty.

    Raises:
        RequestError: an array is empty, holds something else or a number that is no token, or stands for more bytes
            than one text or all texts may have: a few digits may stand for 128.
    """
    if type(value[0]) is int:
        return [_text(value, "input", max_input_bytes)]
    texts: list[str] = []
    for index, array in enumerate(value):
        texts.append(_text(array, f"input[{index}]", min(max_input_bytes, max_total_bytes)))
        max_total_bytes -= size_bytes(texts[-1])
    return texts


def _text(array: object, param: str, max_bytes: int) -> str:
    if not isinstance(array, list):
        raise Invalid("invalid_type", f"{param} must be a list of token numbers, as the first one is.", param=param)
    if not array:
        raise Invalid("empty_input", f"{param} is an empty list of token numbers; leave it out.", param=param)
    tokens = [_token(number) for number in array[: max_bytes + 1]]  # no token is shorter than a byte
    if b"" in tokens:
        raise _no_token(array, tokens.index(b""), param)
    # Clients cut long texts at a number of tokens, which may be in the middle of a character. What takes its place has
    # three bytes for each broken one, so the text can be larger than what it was made of, never smaller.
    if sum(map(len, tokens)) <= max_bytes:
        text = b"".join(tokens).decode("utf-8", errors="replace")
        if size_bytes(text) <= max_bytes:
            return text
    raise Invalid(
        "input_too_large",
        f"{param} stands for more than {max_bytes:,} bytes: the limit of one text (EMBEDQ_MAX_INPUT_BYTES), or what "
        f"the texts before it leave of the request's limit (EMBEDQ_MAX_BODY_BYTES). Split it into passages.",
        param=param,
    )


def _token(number: object) -> bytes:
    """Empty if there is none."""
    return tokens()[number] if type(number) is int and 0 <= number < len(tokens()) else b""  # True is an int, too


def _no_token(array: Sequence[object], index: int, param: str) -> Invalid:
    where = f"{param}[{index}]"
    if type(array[index]) is int:
        return Invalid("invalid_value", f"{where} is no token number of cl100k_base.", param=where)
    return Invalid(
        "invalid_type",
        f"{where} must be a token number: a list in input is one text. Send texts as strings.",
        param=where,
    )
