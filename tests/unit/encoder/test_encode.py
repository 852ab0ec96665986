"""`encode`: order, one pass per distinct text, refusals, and the worker's hooks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import EncodeStats, Float32Array, Layout, Text
from tasks.item import Options, Vector
from tests.unit.encoder.stub_encoder import Batch, StubEncoder


def items(*texts: str, **options: object) -> list[Text]:
    return [Text(text, Options(**options)) for text in texts]  # type: ignore[arg-type]


def code(outcome: Vector) -> str | None:
    return outcome.error.code if outcome.error else None


@settings(deadline=None)
@given(st.lists(st.text("ab ", max_size=12), max_size=60), st.integers(1, 64))
def test_each_outcome_is_that_of_its_text_encoded_alone(texts: list[str], budget: int) -> None:
    encoder = FakeEncoder(dimension=8, max_tokens=6)
    together, _ = encode(encoder, items(*texts), max_padded_tokens=budget)
    for text, outcome in zip(texts, together, strict=True):
        [alone], _ = encode(encoder, items(text), max_padded_tokens=budget)
        assert outcome.vector is not None
        np.testing.assert_array_equal(outcome.vector, alone.vector)
        assert (outcome.tokens, outcome.truncated) == (alone.tokens, alone.truncated)


def test_equal_texts_go_through_the_model_once() -> None:
    encoder = StubEncoder()
    outcomes, stats = encode(encoder, items(*["same"] * 50, "else"), max_padded_tokens=100)
    assert encoder.batches == [[4, 4]]
    assert sorted(encoder.tokenized) == ["else", "same"]
    assert stats == EncodeStats(forward_passes=1, padded_tokens=8, tokens=8)
    assert [outcome.tokens for outcome in outcomes] == [4] * 51


def test_equal_texts_with_other_options_share_the_pass() -> None:
    encoder = StubEncoder()
    wanted = [
        *items("abc"),
        *items("abc", dimensions=2),
        *items("abc", normalize=False),
        *items("abc", truncate=False),
    ]
    outcomes, _ = encode(encoder, wanted, max_padded_tokens=100)
    assert encoder.batches == [[3]]
    assert [len(outcome.vector) for outcome in outcomes if outcome.vector is not None] == [4, 2, 4, 4]


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


def test_hooks_run_between_and_after_the_passes() -> None:
    events: list[str] = []
    encoder = StubEncoder(fault=lambda _batch: events.append("pass"))
    encode(
        encoder,
        items("aaa", "bb", "c"),
        max_padded_tokens=1,
        between=lambda: events.append("between"),
        finished=lambda: events.append("finished"),
    )
    assert events == ["pass", "finished", "between", "pass", "finished", "between", "pass", "finished"]


def test_hooks_run_while_many_long_texts_are_tokenized() -> None:
    events: list[str] = []
    encoder = StubEncoder(max_tokens=4, tokenizer_fault=lambda texts: events.append(f"{len(texts)} texts"))
    encode(
        encoder,
        items(*(letter * 100_000 for letter in "abcde"), "f" * 300_000, "g"),
        max_padded_tokens=1_000,
        between=lambda: events.append("between"),
        finished=lambda: events.append("finished"),
    )
    pause = ["finished", "between"]
    assert events == ["2 texts", *pause, "2 texts", *pause, "1 texts", *pause, "1 texts", *pause, "1 texts", "finished"]


def test_an_exception_of_a_hook_abandons_the_rest() -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    encoder = StubEncoder()
    with pytest.raises(Stopped):
        encode(encoder, items("aaa", "bb", "c"), max_padded_tokens=1, between=stop)
    assert encoder.batches == [[3]]


def test_a_row_that_one_text_spoils_is_computed_again_with_a_row_for_each() -> None:
    class Spoiling(StubEncoder):
        def forward(self, batch: Batch, layout: Layout) -> Float32Array:
            rows = super().forward(batch, layout)
            bad = [text.features["input_ids"][0] == ord("x") for text in batch]
            rows[np.full(len(batch), layout.shared and any(bad)) | np.array(bad)] = np.nan
            return rows

    encoder = Spoiling(row_widths=(8,))
    outcomes, stats = encode(encoder, items("aaa", "bb", "xx", "c"), max_padded_tokens=100)
    assert [code(outcome) for outcome in outcomes] == [None, None, "non_finite_vector", None]
    assert [layout.shared for layout in encoder.layouts] == [True] + [False] * (stats.forward_passes - 1)
