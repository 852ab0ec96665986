"""Micro-batch planning: properties that hold for every list of lengths, and the padding it saves."""

import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.model.batching import PASSES_PER_BUDGET, plan
from tasks.model.packing import layout

lengths = st.lists(st.integers(1, 512), max_size=300)
budgets = st.integers(1, 4096)


def padded(batch: list[int], of: list[int]) -> int:
    return max(of[i] for i in batch) * len(batch)


@given(lengths, budgets)
def test_every_text_is_in_exactly_one_batch(of: list[int], budget: int) -> None:
    assert sorted(i for batch in plan(of, budget) for i in batch) == list(range(len(of)))


@given(lengths, budgets)
def test_no_batch_exceeds_the_budget_unless_it_is_one_text(of: list[int], budget: int) -> None:
    assert all(padded(batch, of) <= budget or len(batch) == 1 for batch in plan(of, budget))


@given(lengths, budgets)
def test_a_batch_ends_only_where_it_is_full_or_another_pass_pays(of: list[int], budget: int) -> None:
    batches = plan(of, budget)
    for number, (batch, following) in enumerate(itertools.pairwise(batches)):
        longest, next_length = of[batch[0]], of[following[0]]
        free = budget // longest - len(batch)
        waiting = sum(map(len, batches[number + 1 :]))
        assert free <= 0 or (longest - next_length) * min(free, waiting) > budget / PASSES_PER_BUDGET


@given(lengths, budgets)
def test_lengths_never_rise(of: list[int], budget: int) -> None:
    order = [of[i] for batch in plan(of, budget) for i in batch]
    assert order == sorted(of, reverse=True)


def test_equal_lengths_keep_their_order() -> None:
    assert plan([3, 3, 3, 3, 3], 6) == [[0, 1], [2, 3], [4]]


def test_no_texts_make_no_batches() -> None:
    assert plan([], 100) == []


def test_a_long_passage_does_not_make_passages_of_the_queries_beside_it() -> None:
    assert plan([8, 256, 9, 8, 10, 9, 8], 2048) == [[1], [4, 2, 5, 0, 3, 6]]


def test_a_burst_of_queries_takes_few_passes() -> None:
    source = random.Random(7)  # noqa: S311 - a fixed corpus, not a secret
    assert len(plan([source.randint(10, 16) for _ in range(200)], 2048)) <= 4


@pytest.mark.parametrize("count", [32, 64, 500])
def test_small_claims_are_mostly_not_padding(count: int) -> None:
    source = random.Random(count)  # noqa: S311 - a fixed corpus, not a secret
    claim = [source.choice([source.randint(8, 30), source.randint(60, 256)]) for _ in range(count)]
    assert 1 - sum(claim) / sum(padded(batch, claim) for batch in plan(claim, 2048)) < 0.1


def test_a_text_above_the_budget_is_alone() -> None:
    assert plan([10, 500, 10], 100) == [[1], [0, 2]]


def test_a_mixed_corpus_wastes_less_than_a_tenth_on_padding() -> None:
    # Passages as measured: log-normal around 138 tokens and cut at 256, with queries of a few words between them.
    source = random.Random(7)  # noqa: S311 - a fixed corpus, not a secret
    passages = [min(256, max(3, int(source.lognormvariate(4.75, 0.6)))) for _ in range(500)]
    corpus = passages + [source.randint(4, 30) for _ in range(500)]
    source.shuffle(corpus)
    total = sum(padded(batch, corpus) for batch in plan(corpus, 2048))
    assert 1 - sum(corpus) / total < 0.1

    unsorted = [list(range(i, min(i + 32, len(corpus)))) for i in range(0, len(corpus), 32)]
    assert 1 - sum(corpus) / sum(padded(batch, corpus) for batch in unsorted) > 0.4  # what sorting saves


@given(st.lists(st.integers(0, 512), max_size=300), budgets, st.sampled_from([(), (64,), (64, 256), (256,)]))
def test_with_shared_rows_every_text_is_in_one_batch_within_the_budget(
    of: list[int], budget: int, widths: tuple[int, ...]
) -> None:
    batches = plan(of, budget, widths)
    assert sorted(i for batch in batches for i in batch) == list(range(len(of)))
    computed = [layout([of[i] for i in batch], widths).padded_tokens for batch in batches]
    assert all(tokens <= budget or len(batch) == 1 for tokens, batch in zip(computed, batches, strict=True))


@pytest.mark.parametrize("count", [16, 24, 32, 48])
def test_a_claim_of_queries_is_one_pass_that_is_mostly_not_padding(count: int) -> None:
    source = random.Random(count)  # noqa: S311 - a fixed corpus, not a secret
    claim = [min(28, max(10, round(source.gauss(18, 3)))) for _ in range(count)]
    assert len(plan(claim, 1024, (64,))) == 1
    assert sum(claim) / layout(claim, (64,)).padded_tokens > 0.8


def test_long_texts_share_no_rows_and_no_batch_with_short_ones() -> None:
    assert plan([70, 20, 65, 20, 20], 1024, (64,)) == [[0, 2], [1, 3, 4]]


def test_short_texts_fill_what_is_left_of_wide_rows_and_share_narrow_ones_beyond_that() -> None:
    assert plan([200, 40, 60, 180, 60], 1024, (64, 256)) == [[0, 1, 3, 2], [4]]


def cost(batches: list[list[int]], of: list[int], budget: int, widths: tuple[int, ...]) -> float:
    computed = sum(layout([of[i] for i in batch], widths).padded_tokens for batch in batches)
    return computed + len(batches) * budget / PASSES_PER_BUDGET


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(16, 2048))
def test_a_plan_with_wide_rows_never_costs_more_than_one_without(of: list[int], budget: int) -> None:
    wide, narrow = plan(of, budget, (64, 256)), plan(of, budget, (64,))
    computed = [layout([of[i] for i in batch], (64, 256)).padded_tokens for batch in narrow]
    assume(all(tokens <= budget or len(batch) == 1 for tokens, batch in zip(computed, narrow, strict=True)))
    assert cost(wide, of, budget, (64, 256)) <= cost(narrow, of, budget, (64, 256))


def test_a_plan_whose_usual_shape_is_above_the_budget_is_none() -> None:
    assert layout([250] * 3, (64, 256)).padded_tokens == 768  # and 750 in rows of their own
    assert plan([250] * 3, 760, (64, 256)) == [[0, 1], [2]]


@pytest.mark.parametrize(("length", "passes"), [(140, 9), (170, 10), (200, 12)])
def test_passages_that_would_leave_wide_rows_half_empty_have_their_own(length: int, passes: int) -> None:
    assert len(plan([length] * 60, 1024, (64, 256))) == passes


def test_few_queries_beside_one_passage_are_not_as_dear_as_a_wide_row() -> None:
    assert plan([100, 18, 18], 1024, (64, 256)) == [[0], [1, 2]]


def test_rows_wider_than_the_budget_are_not_planned() -> None:
    assert plan([70, 20, 65, 20, 20], 255, (64, 256)) == plan([70, 20, 65, 20, 20], 255, (64,))


def test_a_claim_of_passages_is_full_passes() -> None:
    source = random.Random(7)  # noqa: S311 - a fixed corpus, not a secret
    claim = [min(256, max(3, int(source.lognormvariate(4.75, 0.6)))) for _ in range(20)]
    passes = [layout([claim[i] for i in batch], (64, 256)) for batch in plan(claim, 1024, (64, 256))]
    assert len(passes) < len(plan(claim, 1024, (64,))) / 2
    assert sum(claim) / sum(place.padded_tokens for place in passes) > 0.9


def test_equal_shared_batches_rather_than_full_ones_and_a_rest() -> None:
    assert list(map(len, plan([64] * 17, 1024, (64,)))) == [9, 8]
