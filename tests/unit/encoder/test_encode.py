"""`encode`: order, one pass per distinct text, the worker's hooks; and a text that breaks the model fails alone."""

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.encoder.encode import PassLock, encode, postprocess
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import EncoderBroken, EncodeStats, Float32Array, Layout, Text, TextRules, Tokens
from tasks.item import Options
from tasks.model import Model
from tests.processes import PATIENCE_S

Batch = Sequence[Tokens]


class StubEncoder:
    """One token per character; the vector is (length, first character, 0, 1).

    Args:
        fault: called with every batch before it counts as done; raises what should go wrong.
        tokenizer_fault: the same with the texts, before they are tokenized.
        prompt_lengths: prompt name -> the `prompt_length` of its texts.
        counted: characters of a text that are counted.
        row_widths: as in `Encoder`.
    """

    streams, needs_tokens, reference_texts = 1, True, ()

    def __init__(
        self,
        fault: Callable[[Batch], object] = lambda _batch: None,
        *,
        tokenizer_fault: Callable[[Sequence[str]], object] = lambda _texts: None,
        prompt_lengths: dict[str | None, int | None] | None = None,
        max_tokens: int = 100,
        counted: int = sys.maxsize,
        row_widths: tuple[int, ...] = (),
    ) -> None:
        self.info = Model("stub", "0", 4, max_tokens, ("query", "document"), "cpu", "stub", "float32")
        self.reference: Float32Array = np.zeros((0, 4), dtype=np.float32)
        self.row_widths = row_widths
        self.batches: list[list[int]] = []
        """Lengths of every batch, failed ones included."""
        self.layouts: list[Layout] = []
        self._fault = fault
        self._tokenizer_fault = tokenizer_fault
        self._prompt_lengths = prompt_lengths or {}
        self._counted = counted

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        self._tokenizer_fault(texts)
        return [
            Tokens(
                features={"input_ids": [ord(c) for c in text[: self.info.max_tokens]]},
                length=min(len(text), self.info.max_tokens),
                full_length=min(len(text), self._counted),
                full_length_exact=len(text) <= self._counted,
                prompt_length=self._prompt_lengths.get(prompt_name),
            )
            for text in texts
        ]

    def text_rules(self) -> TextRules:
        return TextRules(b"{}", {"query": "", "document": ""})

    def forward(self, batch: Batch, layout: Layout) -> Float32Array:
        self.layouts.append(layout)
        self.batches.append([text.length for text in batch])
        self._fault(batch)
        rows = [(text.length, text.features["input_ids"][0], 0, 1) for text in batch]
        return np.array(rows, dtype=np.float32)


def items(*texts: str, **options: object) -> list[Text]:
    return [Text(text, Options(**options)) for text in texts]  # type: ignore[arg-type]


def codes(encoder: FakeEncoder | StubEncoder, texts: Sequence[str], budget: int = 10_000) -> list[str | None]:
    outcomes, _ = encode(encoder, items(*texts), max_padded_tokens=budget)
    assert all((outcome.vector is None) == (outcome.error is not None) for outcome in outcomes)
    return [outcome.error.code if outcome.error else None for outcome in outcomes]


@settings(deadline=None)
@given(st.lists(st.text("ab ", max_size=12), max_size=60), st.integers(1, 64))
def test_each_outcome_is_that_of_its_text_encoded_alone(texts: list[str], budget: int) -> None:
    encoder = FakeEncoder(dimension=8, max_tokens=6)
    together, _ = encode(encoder, items(*texts), max_padded_tokens=budget)
    alone = {text: encode(encoder, items(text), max_padded_tokens=budget)[0][0] for text in set(texts)}
    for text, outcome in zip(texts, together, strict=True):
        assert outcome.vector is not None
        np.testing.assert_array_equal(outcome.vector, alone[text].vector)
        assert (outcome.tokens, outcome.truncated) == (alone[text].tokens, alone[text].truncated)


def test_equal_texts_go_through_the_model_once_also_with_other_options() -> None:
    encoder = StubEncoder()
    wanted = [*items(*["same"] * 50, "else"), *items("same", dimensions=2), *items("same", normalize=False)]
    outcomes, stats = encode(encoder, wanted, max_padded_tokens=100)
    assert encoder.batches == [[4, 4]]
    assert stats == EncodeStats(forward_passes=1, padded_tokens=8, tokens=8)
    assert [len(outcome.vector) for outcome in outcomes[50:] if outcome.vector is not None] == [4, 2, 4]


def test_texts_whose_prompt_is_left_out_of_pooling_do_not_share_a_pass_with_others() -> None:
    encoder = StubEncoder(prompt_lengths={"query": 2, "document": 3})
    wanted = [*items("aa", "bb", prompt_name="query"), *items("ccc", prompt_name="document"), *items("dddd")]
    encode(encoder, wanted, max_padded_tokens=1000)
    assert encoder.batches == [[2, 2], [3], [4]]


def test_a_refused_text_that_was_not_counted_to_its_end_has_at_least_so_many_tokens() -> None:
    encoder = StubEncoder(max_tokens=5, counted=8)
    outcomes, _ = encode(encoder, items("abcdefgh", "abcdefghi", truncate=False), max_padded_tokens=100)
    exact, bound = [outcome.error.message for outcome in outcomes if outcome.error is not None]
    assert "has 8 tokens; the model takes at most 5" in exact
    assert "has at least 8 tokens; the model takes at most 5" in bound


PAUSE = ["finished", "between"]


def test_hooks_run_between_and_after_the_passes_and_while_many_long_texts_are_tokenized() -> None:
    events: list[str] = []

    def note(event: str) -> Callable[..., None]:
        return lambda *_: events.append(event)

    encode(
        *(StubEncoder(note("pass")), items("aaa", "bb", "c")),
        max_padded_tokens=1,
        between=note("between"),
        finished=note("finished"),
    )
    assert events == ["pass", *PAUSE, "pass", *PAUSE, "pass", "finished"]
    events.clear()
    encode(
        StubEncoder(max_tokens=4, tokenizer_fault=lambda texts: events.append(f"{len(texts)} texts")),
        items(*(letter * 100_000 for letter in "abcde"), "f" * 300_000, "g"),
        max_padded_tokens=1_000,
        between=note("between"),
        finished=note("finished"),
    )
    assert events == ["2 texts", *PAUSE, "2 texts", *PAUSE, "1 texts", *PAUSE, "1 texts", *PAUSE, "1 texts", "finished"]


def test_an_exception_of_a_hook_abandons_the_rest_and_a_broken_encoder_blames_no_text() -> None:
    def stop(*_: object) -> None:
        raise EncoderBroken("gone")

    for encoder, between in ((StubEncoder(), stop), (StubEncoder(stop), lambda: None)):
        with pytest.raises(EncoderBroken):
            encode(encoder, items("aaa", "bb", "c"), max_padded_tokens=1, between=between)
        assert encoder.batches == [[3]]


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        ([3, 4, 12, 84], Options(), [3 / 85, 4 / 85, 12 / 85, 84 / 85]),
        ([3, 4, 12, 84], Options(dimensions=2), [0.6, 0.8]),
        ([3, 4, 12, 84], Options(normalize=False, dimensions=3), [3, 4, 12]),
        ([0, 0, 0], Options(), [0, 0, 0]),
    ],
)
def test_a_cut_vector_is_scaled_after_the_cut(raw: list[float], options: Options, expected: list[float]) -> None:
    rows = np.array([raw, [9] * len(raw)], dtype=np.float32)
    vectors = postprocess(rows, options)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors[0], expected, rtol=1e-6)
    assert not np.shares_memory(vectors, rows), "the raw vectors stay alive"


# ---- texts at fault


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [("!!fail!!", "encoding_failed"), ("!!memory-error!!", "out_of_memory"), ("!!nan!!", "non_finite_vector")],
)
def test_the_text_at_fault_fails_and_its_neighbours_do_not(trigger: str, expected: str) -> None:
    neighbours = [f"neighbour {n}" for n in range(15)]
    texts = [*neighbours[:7], f"a {trigger} b", *neighbours[7:]]
    assert codes(FakeEncoder(), texts) == [None] * 7 + [expected] + [None] * 8


def test_a_row_that_one_text_spoils_is_computed_again_with_a_row_for_each() -> None:
    class Spoiling(StubEncoder):
        def forward(self, batch: Batch, layout: Layout) -> Float32Array:
            rows = super().forward(batch, layout)
            bad = [text.features["input_ids"][0] == ord("x") for text in batch]
            rows[np.full(len(batch), layout.shared and any(bad)) | np.array(bad)] = np.inf
            return rows

    encoder = Spoiling(row_widths=(8,))
    assert codes(encoder, ["aaa", "bb", "xx", "c"], budget=100) == [None, None, "non_finite_vector", None]
    assert [layout.shared for layout in encoder.layouts] == [True] + [False] * (len(encoder.layouts) - 1)


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

    encoder = StubEncoder(fault)
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(other)
        assert other_inside.wait(PATIENCE_S)
        outcomes, _ = encode(encoder, [Text("a text")], max_padded_tokens=100, lock=lock)
        done.result(30)
    assert outcomes[0].error is None
    assert len(encoder.batches) == 2


def test_a_batch_that_does_not_fit_memory_is_halved_into_passes_that_are_no_larger() -> None:
    def at_most_four(batch: Batch) -> None:
        if len(batch) > 4:
            raise MemoryError

    encoder = StubEncoder(at_most_four)
    assert codes(encoder, [f"{n:02}" for n in range(16)]) == [None] * 16
    assert [len(batch) for batch in encoder.batches] == [16, 8, 4, 4, 8, 4, 4]
    encoder = StubEncoder(at_most_four, row_widths=(64,))
    assert codes(encoder, ["x" * 60, *(f"{n:02} of some" for n in range(40))], budget=512) == [None] * 41
    assert max(layout.padded_tokens for layout in encoder.layouts) <= 512


def test_a_text_that_breaks_model_or_tokenizer_fails_alone_and_is_quoted_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(texts: Sequence[object]) -> None:
        if any("password" in str(text) or (isinstance(text, Tokens) and text.length == len(secret)) for text in texts):
            raise ValueError(f"cannot encode {secret!r}")

    secret = "my password"
    with caplog.at_level(logging.DEBUG):
        for encoder in (StubEncoder(refuse), StubEncoder(tokenizer_fault=refuse)):
            outcomes, _ = encode(encoder, items("a", secret, "c"), max_padded_tokens=100)
            first, second, third = (outcome.error for outcome in outcomes)
            assert first is third is None
            assert second is not None
            assert second.code == "encoding_failed"
            assert "could not encode this text (ValueError)" in second.message
            assert "password" not in caplog.text + second.message
    assert "ValueError" in caplog.text
