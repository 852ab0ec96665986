"""Token numbers: decoded, refused, and loaded without holding anybody up."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from api.queue.submission import EmbeddingRequests
from api.request.token_input import Encoding, Vocabulary, VocabularyNotLoaded
from stack.testing import PATIENCE_S
from tasks.errors import InputTooLarge, InvalidType, NotReady, RequestError
from tasks.ledger import Submission
from tests.unit.api.embedding_requests import overview, requests

SPACES = 300
"""The one number that stands for more than a byte, and for more than it takes as JSON."""
GAP = 299
LONG_S = 20.0


class Bytes:
    """An encoding whose first 256 tokens are the bytes."""

    n_vocab = 301

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        if GAP in tokens:
            raise KeyError(GAP)
        return b"".join(b" " * 128 if token == SPACES else bytes([token]) for token in tokens)


def vocabulary(load: Callable[[], Encoding] = Bytes, *, max_input_bytes: int = 1000, total: int = 1500) -> Vocabulary:
    return Vocabulary(max_input_bytes=max_input_bytes, max_total_bytes=total, load=load)


@pytest.fixture
async def loaded() -> Vocabulary:
    made = vocabulary()
    await made.load(LONG_S)
    return made


async def decoded(input_: Any) -> list[str]:
    made = vocabulary()
    await made.load(LONG_S)
    made_by = requests(overview())
    stored, _ = EmbeddingRequests(made_by.settings, made_by.registry, made).synchronous(
        orjson.dumps({"input": input_}), owner="me", wait_s=LONG_S
    )
    return texts(stored)


def texts(stored: Submission) -> list[str]:
    return [text for unit in stored.units for text in orjson.loads(unit.payload)]


def numbers(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("input_", "expected"),
    [
        (numbers("one"), ["one"]),
        ([numbers("one")], ["one"]),
        ([numbers("one"), numbers("zwölf")], ["one", "zwölf"]),
        ([SPACES], [" " * 128]),
        (numbers("zwölf")[:3], ["zw\ufffd"]),  # cut inside a character
        (["one", "two"], ["one", "two"]),
        ("one", ["one"]),
        (list(range(65, 91)) * 30, ["ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 30]),
    ],
)
async def test_one_array_is_one_text(input_: Any, expected: list[str]) -> None:
    assert await decoded(input_) == expected


async def test_an_array_may_be_longer_than_a_request_has_texts() -> None:
    made_by = requests(overview(), max_inputs=2)
    made = vocabulary()
    await made.load(LONG_S)
    body = orjson.dumps({"input": numbers("longer")})

    stored, _ = EmbeddingRequests(made_by.settings, made_by.registry, made).synchronous(body, owner="me", wait_s=1)

    assert texts(stored) == ["longer"]


@pytest.mark.parametrize(
    ("input_", "code", "param"),
    [
        ([1, "a"], "invalid_type", "input[1]"),
        ([1, True], "invalid_type", "input[1]"),
        ([1, None], "invalid_type", "input[1]"),
        ([1, 2.5], "invalid_type", "input[1]"),
        ([[1], "a"], "invalid_type", "input[1]"),
        ([[1], 7], "invalid_type", "input[1]"),
        ([[1], {"a": 1}], "invalid_type", "input[1]"),
        ([[1], [2, "a"]], "invalid_type", "input[1][1]"),
        ([[[1]]], "invalid_type", "input[0][0]"),
        (["a", 1], "invalid_type", "input[1]"),
        (["a", [1]], "invalid_type", "input[1]"),
        ([[1], []], "empty_input", "input[1]"),
        ([[]], "empty_input", "input[0]"),
        ([1, -1], "invalid_value", "input[1]"),
        ([301], "invalid_value", "input[0]"),
        ([[1], [2, 2**63]], "invalid_value", "input[1][1]"),
        ([[1], [GAP]], "invalid_value", "input[1]"),
        ([1] * 1001, "input_too_large", "input"),
        ([[SPACES] * 8], "input_too_large", "input[0]"),
        ([[SPACES] * 7, [SPACES] * 7], "input_too_large", "input[1]"),
        ([[1]] * 2049, "too_many_inputs", "input"),
    ],
)
async def test_what_is_wrong_is_named(input_: Any, code: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        await decoded(input_)

    assert (caught.value.code, caught.value.param) == (code, param)
    assert caught.value.detail.startswith(param)


async def test_numbers_and_their_text_are_the_same_work(loaded: Vocabulary) -> None:
    made_by = requests(overview())
    made_by = EmbeddingRequests(made_by.settings, made_by.registry, loaded)

    stored = [
        made_by.synchronous(orjson.dumps({"input": input_}), owner="me", wait_s=1)[0]
        for input_ in (["one"], [numbers("one")])
    ]

    assert stored[0].alias == stored[1].alias


def test_before_it_is_loaded_nothing_is_decoded() -> None:
    with pytest.raises(VocabularyNotLoaded):
        vocabulary().texts([1])


async def test_it_is_loaded_once_for_all_who_ask() -> None:
    loads = []
    go = threading.Event()

    def load() -> Encoding:
        loads.append(threading.current_thread())
        assert go.wait(PATIENCE_S)
        return Bytes()

    made = vocabulary(load)
    waiting = [asyncio.create_task(made.load(LONG_S)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()  # a client that leaves takes nothing from the others
    go.set()
    await asyncio.gather(*waiting)
    await made.load(LONG_S)

    assert made.texts([65]) == ["A"]
    assert len(loads) == 1
    assert loads[0].daemon
    assert loads[0] is not threading.main_thread()


async def test_without_a_vocabulary_the_way_out_is_told_and_nobody_tries_again_at_once() -> None:
    loads = []

    def load() -> Encoding:
        loads.append(1)
        raise ImportError("No module named 'tiktoken'")

    made = vocabulary(load)
    for _ in range(2):
        with pytest.raises(RequestError, match="check_embedding_ctx_length=False") as caught:
            await made.load(LONG_S)
        assert (caught.value.status, caught.value.param) == (400, "input")
    assert len(loads) == 1


async def test_a_slow_download_is_waited_for_no_longer_than_the_caller_waits() -> None:
    go = threading.Event()
    loads = []

    def load() -> Encoding:
        loads.append(1)
        assert go.wait(PATIENCE_S)
        return Bytes()

    made = vocabulary(load)
    for _ in range(2):
        with pytest.raises(NotReady, match="check_embedding_ctx_length=False") as caught:
            await made.load(0.01)
        assert caught.value.param == "input"
        assert caught.value.retry_after_s
    go.set()
    await made.load(LONG_S)

    assert made.texts([65]) == ["A"]
    assert len(loads) == 1


async def test_a_failure_that_nobody_waited_for_is_as_old_as_it_is() -> None:
    now_s = 0.0
    go = threading.Event()
    loads = []

    def load() -> Encoding:
        loads.append(1)
        assert go.wait(PATIENCE_S)
        if len(loads) == 1:
            raise OSError
        return Bytes()

    made = Vocabulary(max_input_bytes=10, max_total_bytes=10, load=load, clock=lambda: now_s)
    with pytest.raises(NotReady):
        await made.load(0.01)
    go.set()
    with pytest.raises(InvalidType):  # the failure is noted before anybody hears of it
        await made.load(LONG_S)
    now_s = 1000.0
    await made.load(LONG_S)

    assert made.texts([65]) == ["A"]


async def test_a_download_that_does_not_end_is_not_promised_for_ever() -> None:
    now_s = 0.0
    go = threading.Event()

    def load() -> Encoding:
        assert go.wait(PATIENCE_S)
        return Bytes()

    made = Vocabulary(max_input_bytes=10, max_total_bytes=10, load=load, clock=lambda: now_s)
    with pytest.raises(NotReady):
        await made.load(0.01)
    now_s = 1000.0
    with pytest.raises(InvalidType, match="check_embedding_ctx_length=False"):
        await made.load(LONG_S)
    go.set()
    while True:  # it is taken all the same when it has come
        try:
            await made.load(LONG_S)
            break
        except InvalidType:
            await asyncio.sleep(0)

    assert made.texts([65]) == ["A"]


async def test_a_download_that_timed_out_is_no_slow_one() -> None:
    def load() -> Encoding:
        raise TimeoutError

    with pytest.raises(InvalidType):
        await vocabulary(load).load(LONG_S)


@pytest.mark.parametrize(("broken", "taken"), [(333, True), (334, False)])
async def test_what_takes_the_place_of_broken_characters_counts(broken: int, taken: bool, loaded: Vocabulary) -> None:
    array = [0xFF] * broken  # each becomes three bytes
    if taken:
        assert loaded.texts([array, numbers("a" * 501)])[0] == "\ufffd" * broken
        with pytest.raises(InputTooLarge):
            loaded.texts([array, numbers("a" * 502)])
    else:
        with pytest.raises(InputTooLarge):
            loaded.texts(array)
