"""Plans of passes: every text once, no pass above the budget, few rows, and not much padding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.encoder.micro_batches import ROW_WIDTHS, fill, plan

NARROW, WIDE = ROW_WIDTHS
BUDGET = 1024

short = st.lists(st.integers(1, NARROW), min_size=1, max_size=150)


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
