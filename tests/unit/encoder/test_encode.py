"""`encode`: the outcome of each text is its own, whatever is beside it, runs out of memory or breaks the model.

With a worker around it, `test_encoding.py` shows the rest, and with a real transformer `test_passes.py`.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tasks.encoder.encode import PassLock, encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Float32Array, Layout, Text, Tokens
from tasks.encoder.micro_batches import ROW_WIDTHS, fill, own_rows, plan
from tests.processes import PATIENCE_S

NARROW, WIDE = ROW_WIDTHS
BUDGET = 1024

short = st.lists(st.integers(1, NARROW), min_size=1, max_size=150)


class Faulty(FakeEncoder):
    """Notes its passes, failed ones too. `fault`: called with the number of texts of each; raises what goes wrong."""

    def __init__(self, fault: Callable[[int], None], row_widths: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.row_widths = row_widths
        self.passes: list[int] = []
        self.layouts: list[Layout] = []
        self._fault = fault

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        self.layouts.append(layout)
        self.passes.append(len(texts))
        self._fault(len(texts))
        return super().forward(texts, layout)


@settings(deadline=None)
@given(st.lists(st.text("ab ", max_size=12), max_size=60), st.integers(1, 64))
def test_each_outcome_is_that_of_its_text_encoded_alone(texts: list[str], budget: int) -> None:
    encoder = FakeEncoder(dimension=8, max_tokens=6)
    together, _ = encode(encoder, list(map(Text, texts)), max_padded_tokens=budget)
    alone = {text: encode(encoder, [Text(text)], max_padded_tokens=budget)[0][0] for text in set(texts)}
    for text, outcome in zip(texts, together, strict=True):
        assert outcome.vector is not None
        np.testing.assert_array_equal(outcome.vector, alone[text].vector)
        assert (outcome.tokens, outcome.truncated) == (alone[text].tokens, alone[text].truncated)


def test_a_text_that_ran_out_of_memory_beside_another_pass_is_tried_again_alone() -> None:
    lock, other_inside, other_leaves = PassLock(), threading.Event(), threading.Event()

    def other() -> None:
        with lock.beside_others():
            other_inside.set()
            assert other_leaves.wait(PATIENCE_S)

    def fault(_texts: int) -> None:
        if not other_leaves.is_set():
            other_leaves.set()
            raise MemoryError

    encoder = Faulty(fault)
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(other)
        assert other_inside.wait(PATIENCE_S)
        outcomes, _ = encode(encoder, [Text("a text")], max_padded_tokens=100, lock=lock)
        done.result(30)
    assert outcomes[0].error is None
    assert encoder.passes == [1, 1]


def test_a_batch_that_does_not_fit_memory_is_halved_into_passes_that_are_no_larger() -> None:
    def at_most_four(texts: int) -> None:
        if texts > 4:
            raise MemoryError

    encoder = Faulty(at_most_four, row_widths=(64,))
    for texts in ([f"{n}" for n in range(16)], ["x " * 58, *(f"{n} " * 8 for n in range(40))]):
        outcomes, _ = encode(encoder, list(map(Text, texts)), max_padded_tokens=512)
        assert all(outcome.error is None for outcome in outcomes)
    assert encoder.passes[:7] == [16, 8, 4, 4, 8, 4, 4]
    assert max(layout.padded_tokens for layout in encoder.layouts) <= 512


@pytest.mark.parametrize("part", ["tokenize", "forward"])
def test_a_text_that_breaks_model_or_tokenizer_fails_alone_and_is_quoted_nowhere(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encoder, secret = FakeEncoder(), "my password"
    does, taken = getattr(encoder, part), encoder.tokenize([secret], None)

    def refuse(texts: Sequence[object], *more: object) -> object:
        if secret in texts or taken[0] in texts:
            raise ValueError(f"cannot encode {secret!r}")
        return does(texts, *more)

    monkeypatch.setattr(encoder, part, refuse)
    with caplog.at_level(logging.DEBUG):
        outcomes, _ = encode(encoder, [Text("a"), Text(secret), Text("c")], max_padded_tokens=100)
    first, second, third = (outcome.error for outcome in outcomes)
    assert first is third is None
    assert second is not None
    assert (second.code, "could not encode this text (ValueError)" in second.message) == ("encoding_failed", True)
    assert "password" not in caplog.text + second.message


def vectors(encoder: FakeEncoder, *texts: str) -> Float32Array:
    tokens = encoder.tokenize(texts, None)
    return encoder.forward(tokens, own_rows(list(range(len(tokens))), [one.length for one in tokens]).layout)


def test_vectors_are_distinct_unit_vectors_and_the_same_on_every_machine() -> None:
    golden = np.array([0.9693956, 0.06373154, -0.02740002, 0.23549889], dtype=np.float32)
    np.testing.assert_array_equal(vectors(FakeEncoder(dimension=4), "hello wörld"), golden[None])
    rows = vectors(FakeEncoder(), *(f"text {n}" for n in range(200)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    assert np.abs((rows @ rows.T)[~np.eye(200, dtype=bool)]).max() < 0.4


@pytest.mark.parametrize(
    ("text", "length"),
    [
        *(("", 2), (" \n", 2), ("\0", 3), ("a b  c\n", 5), ("w " * 8, 10), ("a\x1cb\x1d\x1e\x1fc", 5), ("[S] x", 4)),
        *(("a\x0cb\x85c\u2028d", 6), ("a\u00a0b\u3000c", 5), ("a\u200bb", 3)),
    ],
)
def test_tokens_are_words_and_two_for_its_tokenizer_too(text: str, length: int) -> None:
    encoder = FakeEncoder(max_tokens=8)
    rules = encoder.text_rules()
    for prompt, more in ((None, 0), ("query", 1)):
        [tokens] = encoder.tokenize([text], prompt)
        assert (tokens.length, tokens.full_length) == (min(8, length + more), length + more)
        before = rules.prompts[prompt] if prompt else ""
        assert len(Tokenizer.from_str(rules.tokenizer.decode()).encode(before + text).ids) == length + more


@given(st.lists(st.integers(0, 600), max_size=100), st.sampled_from([(), (NARROW,), ROW_WIDTHS]))
def test_every_text_is_whole_in_one_row_of_one_pass_within_the_budget(
    lengths: list[int], row_widths: tuple[int, ...]
) -> None:
    batches = plan(lengths, BUDGET, row_widths)
    assert sorted(index for batch in batches for index in batch.indexes) == list(range(len(lengths)))
    for batch in batches:
        assert batch.layout.padded_tokens <= BUDGET or len(batch.indexes) == 1
        taken: set[int] = set()
        for index, start in zip(batch.indexes, batch.layout.starts.tolist(), strict=True):
            places = range(start, start + lengths[index])
            assert taken.isdisjoint(places), "no two texts share a place"
            taken.update(places)
            assert not places or places[0] // batch.layout.width == places[-1] // batch.layout.width
        assert not taken or max(taken) < batch.layout.padded_tokens


@given(short)
def test_shared_rows_are_half_full_and_compute_no_more_than_a_row_for_each(lengths: list[int]) -> None:
    rows = fill(lengths, NARROW)
    assert sum(2 * sum(lengths[index] for index in row) <= NARROW for row in rows) <= 1
    for batch in plan(lengths, BUDGET, (NARROW,)):
        own = len(batch.indexes) * max(lengths[index] for index in batch.indexes)
        assert batch.layout.padded_tokens <= own


@pytest.mark.parametrize(
    ("lengths", "row_widths", "shapes"),
    [
        ([18], ROW_WIDTHS, [(1, 18)]),  # a lone text is not padded
        ([18, 20], ROW_WIDTHS, [(2, 20)]),  # nor do few share a row that they do not fill
        ([28, 20, 12, 12, 12], ROW_WIDTHS, [(2, 64)]),
        ([31, *[11] * 100], ROW_WIDTHS, [(11, 64), (47, 11)]),
        ([200] * 10, (), [(5, 200), (5, 200)]),
        ([100, 90, 60, 150, 30, 70], ROW_WIDTHS, [(2, 256)]),
        ([140] * 7, ROW_WIDTHS, [(7, 140)]),  # two do not fit into a wide row, and each would leave half of it
        ([300, 20, 20], ROW_WIDTHS, [(1, 300), (2, 20)]),
        ([1, 1, 1, 500], (), [(1, 500), (3, 1)]),  # a long text makes no long ones of its neighbours
        ([0, 0, 3], (), [(3, 3)]),
    ],
)
def test_plans(lengths: list[int], row_widths: tuple[int, ...], shapes: list[tuple[int, int]]) -> None:
    batches = plan(lengths, BUDGET, row_widths)
    assert sorted((batch.layout.rows, batch.layout.width) for batch in batches) == sorted(shapes)
