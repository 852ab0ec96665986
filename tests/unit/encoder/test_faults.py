"""A text that breaks the model fails alone: halving, bisecting, and what is never swallowed."""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.encoder.encode import PassLock, encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import EncoderBroken, Text, is_out_of_memory
from tests.processes import PATIENCE_S
from tests.unit.encoder.stub_encoder import Batch, StubEncoder

NEIGHBOURS = [f"neighbour {n}" for n in range(15)]


def codes(encoder: FakeEncoder | StubEncoder, texts: Sequence[str], budget: int = 10_000) -> list[str | None]:
    outcomes, _ = encode(encoder, [Text(text) for text in texts], max_padded_tokens=budget)
    assert all((outcome.vector is None) == (outcome.error is not None) for outcome in outcomes)
    return [outcome.error.code if outcome.error else None for outcome in outcomes]


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("!!fail!!", "encoding_failed"),
        ("!!memory-error!!", "out_of_memory"),
        ("!!nan!!", "non_finite_vector"),
    ],
)
def test_the_text_at_fault_fails_and_its_neighbours_do_not(trigger: str, expected: str) -> None:
    texts = [*NEIGHBOURS[:7], f"a {trigger} b", *NEIGHBOURS[7:]]
    assert codes(FakeEncoder(), texts) == [None] * 7 + [expected] + [None] * 8


def test_a_text_that_ran_out_of_memory_beside_another_pass_is_tried_again_alone() -> None:
    lock, other_inside, other_leaves = PassLock(), threading.Event(), threading.Event()

    def other() -> None:
        with lock.beside_others():
            other_inside.set()
            assert other_leaves.wait(PATIENCE_S)

    def fault(_batch: Batch) -> None:
        if not other_leaves.is_set():
            other_leaves.set()
            raise MemoryError

    encoder = StubEncoder(fault=fault)
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(other)
        assert other_inside.wait(PATIENCE_S)
        outcomes, _ = encode(encoder, [Text("a text")], max_padded_tokens=100, lock=lock)
        done.result(30)
    assert outcomes[0].error is None
    assert len(encoder.batches) == 2


def test_a_batch_that_does_not_fit_memory_is_halved_until_it_does() -> None:
    def at_most_four(batch: Batch) -> None:
        if len(batch) > 4:
            raise MemoryError

    encoder = StubEncoder(fault=at_most_four)
    assert codes(encoder, [f"{n:02}" for n in range(16)]) == [None] * 16
    assert [len(batch) for batch in encoder.batches] == [16, 8, 4, 4, 8, 4, 4]


def test_halves_of_a_pass_whose_texts_share_rows_are_no_larger_than_it_was() -> None:
    def at_most_eight(batch: Batch) -> None:
        if len(batch) > 8:
            raise MemoryError

    encoder = StubEncoder(fault=at_most_eight, row_widths=(64,))
    assert codes(encoder, ["x" * 60, *(f"{n:02} of some" for n in range(40))], budget=512) == [None] * 41
    assert max(layout.padded_tokens for layout in encoder.layouts) <= 512


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            True,
        ),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_exhaustion_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_messages_and_logs_hold_nothing_of_the_text(caplog: pytest.LogCaptureFixture) -> None:
    def quote(_batch: Batch) -> None:
        raise ValueError("cannot encode 'my password'")

    with caplog.at_level(logging.DEBUG):
        [outcome], _ = encode(StubEncoder(fault=quote), [Text("my password")], max_padded_tokens=100)
    assert outcome.error is not None
    assert outcome.error.message == (
        "The model could not encode this text (ValueError). Submit it once more, then leave it out."
    )
    assert "password" not in caplog.text
    assert "ValueError" in caplog.text


def test_a_broken_encoder_blames_no_text() -> None:
    def broken(_batch: Batch) -> None:
        raise EncoderBroken("gone")

    encoder = StubEncoder(fault=broken)
    with pytest.raises(EncoderBroken):
        encode(encoder, [Text("a"), Text("b")], max_padded_tokens=100)
    assert len(encoder.batches) == 1


def test_a_text_that_breaks_the_tokenizer_fails_alone() -> None:
    def refuse(texts: Sequence[str]) -> None:
        if "bad" in texts:
            raise TypeError("TextEncodeInput must be a string")

    assert codes(StubEncoder(tokenizer_fault=refuse), ["a", "bad", "c"]) == [None, "encoding_failed", None]


@pytest.mark.parametrize("component", [float("nan"), float("inf"), float("-inf")])
def test_a_vector_that_is_not_finite_is_an_error(component: float) -> None:
    assert codes(StubEncoder(row=[1, component, 0, 0]), ["a"]) == ["non_finite_vector"]
