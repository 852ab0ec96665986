"""`encode` with a cache: the same answers as without, fewer passes, and nothing kept that must not be."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.item import Options
from tasks.model.encoder import EncodeStats, ItemVector, TextItem
from tasks.model.encoding import encode
from tasks.model.fake import FakeEncoder
from tasks.model.vector_cache import OVERHEAD_BYTES, VectorCache
from tests.unit.model.stub_encoder import Batch, StubEncoder

LARGE = 2**20
NO_WORK = EncodeStats(0, 0, 0)

options = st.builds(
    Options,
    prompt_name=st.sampled_from([None, "query", "document", "unknown"]),
    dimensions=st.sampled_from([None, 1, 5, 8, 9]),
    normalize=st.booleans(),
    truncate=st.booleans(),
)
texts = st.sampled_from(["", "a", "b", "a b", "a b c", "a b c d e f g", "a !!nan!!", "!!fail!!", "\ud800"])
claims = st.lists(st.tuples(st.lists(st.builds(TextItem, texts, options), max_size=6), st.booleans()), max_size=8)


def item(text: str, **changed: object) -> TextItem:
    return TextItem(text, Options(**changed))  # type: ignore[arg-type]


def same(one: ItemVector, other: ItemVector) -> bool:
    return (one.tokens, one.truncated, one.error) == (other.tokens, other.truncated, other.error) and (
        one.vector is other.vector is None or np.array_equal(one.vector, other.vector)  # type: ignore[arg-type]
    )


@settings(deadline=None, max_examples=200)
@given(claims, st.sampled_from([0, OVERHEAD_BYTES + 40, 4 * (OVERHEAD_BYTES + 40), LARGE]))
def test_a_cache_changes_no_answer(claims: Sequence[tuple[list[TextItem], bool]], max_bytes: int) -> None:
    encoder, cache = FakeEncoder(dimension=8, max_tokens=5), VectorCache(max_bytes)
    for items, remember in claims:
        plain, _ = encode(encoder, items, max_padded_tokens=20)
        got, _ = encode(encoder, items, max_padded_tokens=20, cache=cache, remember=remember)
        assert [same(one, other) for one, other in zip(plain, got, strict=True)] == [True] * len(items)
        assert cache.state.size_bytes <= max_bytes


def test_a_text_that_is_known_is_neither_tokenized_nor_encoded() -> None:
    encoder, cache = StubEncoder(), VectorCache(LARGE)
    first, _ = encode(encoder, [item("abc")], max_padded_tokens=100, cache=cache, remember=True)
    again, stats = encode(
        encoder,
        [item("abc"), item("abc", dimensions=2), item("abc", normalize=False), item("abc", truncate=False)],
        max_padded_tokens=100,
        cache=cache,
        remember=True,
    )
    assert stats == NO_WORK
    assert (encoder.tokenized, encoder.batches) == (["abc"], [[3]])
    assert [outcome.tokens for outcome in again] == [3] * 4
    assert (first[0].cached, [outcome.cached for outcome in again]) == (False, [True] * 4)


def test_known_and_new_texts_keep_their_places() -> None:
    encoder, cache = FakeEncoder(dimension=8), VectorCache(LARGE)
    encode(encoder, [item("b"), item("d")], max_padded_tokens=100, cache=cache, remember=True)
    wanted = [item("a"), item("b"), item("c"), item("d"), item("b")]
    got, stats = encode(encoder, wanted, max_padded_tokens=100, cache=cache)
    assert [outcome.cached for outcome in got] == [False, True, False, True, True]
    assert stats.tokens == 6
    plain, _ = encode(encoder, wanted, max_padded_tokens=100)
    assert all(same(one, other) for one, other in zip(plain, got, strict=True))


def test_another_prompt_is_another_text() -> None:
    encoder, cache = StubEncoder(), VectorCache(LARGE)
    for prompt_name in (None, "query", "document"):
        encode(encoder, [item("a", prompt_name=prompt_name)], max_padded_tokens=9, cache=cache, remember=True)
    assert len(encoder.batches) == 3


def test_who_does_not_remember_leaves_nothing_behind_and_uses_what_is_there() -> None:
    encoder, cache = StubEncoder(), VectorCache(LARGE)
    for remember in (False, True, False):
        encode(encoder, [item("a")], max_padded_tokens=9, cache=cache, remember=remember)
    assert len(encoder.batches) == 2
    assert (cache.state.hits, cache.state.misses) == (1, 2)


@pytest.mark.parametrize("counted", [7, 8])
def test_a_text_that_must_not_be_cut_is_refused_in_the_same_words_when_it_is_known(counted: int) -> None:
    encoder, cache = StubEncoder(max_tokens=5, counted=counted), VectorCache(LARGE)
    refusals = [
        encode(encoder, [item("abcdefgh", truncate=truncate)], max_padded_tokens=9, cache=cache, remember=True)[0][0]
        for truncate in (False, True, False)
    ]
    assert refusals[0].error == refusals[2].error is not None
    assert (refusals[1].tokens, refusals[1].truncated) == (5, True)
    assert encoder.batches == [[5]]


@pytest.mark.parametrize("text", ["!!fail!!", "!!memory-error!!", "a !!nan!!"])
def test_a_text_that_failed_is_not_kept(text: str) -> None:
    encoder, cache = FakeEncoder(), VectorCache(LARGE)
    for _ in range(2):
        (bad, good), _ = encode(encoder, [item(text), item("fine")], max_padded_tokens=1, cache=cache, remember=True)
        assert bad.error is not None
        assert good.error is None
    assert cache.state.hits == 1


def test_a_text_that_failed_once_is_tried_again() -> None:
    faults = [RuntimeError("once")]

    def fault(_batch: Batch) -> None:
        if faults:
            raise faults.pop()

    encoder, cache = StubEncoder(fault=fault), VectorCache(LARGE)
    outcomes = [encode(encoder, [item("a")], max_padded_tokens=9, cache=cache, remember=True)[0][0] for _ in range(3)]
    assert [outcome.error is None for outcome in outcomes] == [False, True, True]
    assert len(encoder.batches) == 2


def test_an_abandoned_claim_leaves_nothing_behind() -> None:
    cache = VectorCache(LARGE)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        encode(StubEncoder(), [item("aaa"), item("b")], max_padded_tokens=1, cache=cache, remember=True, between=stop)
    assert cache.state.size_bytes == 0


def test_a_vector_that_was_handed_out_can_be_changed_without_harm() -> None:
    encoder, cache = FakeEncoder(dimension=8), VectorCache(LARGE)
    for _ in range(3):
        [outcome], _ = encode(encoder, [item("a", normalize=False)], max_padded_tokens=9, cache=cache, remember=True)
        assert outcome.vector is not None
        assert outcome.vector.any()
        outcome.vector[:] = 0
