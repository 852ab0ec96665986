"""Texts that share rows: nothing overlaps, nothing is lost, and it never costs more than a row for each text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.model.packing import ROW_TOKENS, Int64Array, Packed, fill, layout

short = st.lists(st.integers(1, ROW_TOKENS), min_size=1, max_size=80)
mixed = st.lists(st.integers(1, 3 * ROW_TOKENS), min_size=1, max_size=40)


def texts_of(lengths: list[int]) -> tuple[Int64Array, Int64Array]:
    """Every token another number, from 1 on, and where there is one."""
    is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]
    numbers = np.zeros(is_token.shape, dtype=np.int64)
    numbers[is_token] = np.arange(1, sum(lengths) + 1)
    return numbers, is_token.astype(np.int64)


@given(short)
def test_every_text_is_in_one_row_and_no_row_is_too_long(lengths: list[int]) -> None:
    rows = fill(lengths, ROW_TOKENS)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[index] for index in row) <= ROW_TOKENS for row in rows)


@given(short)
def test_at_most_one_row_is_not_half_full(lengths: list[int]) -> None:
    rows = fill(lengths, ROW_TOKENS)
    assert sum(2 * sum(lengths[index] for index in row) <= ROW_TOKENS for row in rows) <= 1


@given(short, st.data())
def test_rows_that_are_left_out_leave_the_others_as_they_are(lengths: list[int], data: st.DataObject) -> None:
    rows = fill(lengths, ROW_TOKENS)
    kept = data.draw(st.lists(st.sampled_from(rows), min_size=1, unique_by=tuple))
    indexes = sorted(index for row in kept for index in row)
    again = fill([lengths[index] for index in indexes], ROW_TOKENS)
    assert sorted(sorted(indexes[i] for i in row) for row in again) == sorted(map(sorted, kept))


@given(mixed)
def test_shared_rows_never_cost_more_than_own_ones(lengths: list[int]) -> None:
    alone = layout(lengths, 0)
    assert (alone.rows, alone.width) == (len(lengths), max(lengths))
    assert layout(lengths, ROW_TOKENS).padded_tokens <= alone.padded_tokens


def test_a_few_texts_that_do_not_fill_rows_have_their_own() -> None:
    assert layout([18], ROW_TOKENS).padded_tokens == 18
    assert layout([18, 20], ROW_TOKENS).padded_tokens == 40


def test_texts_too_long_for_a_row_have_their_own() -> None:
    assert layout([ROW_TOKENS + 1, 3, 3], ROW_TOKENS).padded_tokens == 3 * (ROW_TOKENS + 1)


@given(mixed)
def test_what_is_laid_out_comes_back(lengths: list[int]) -> None:
    numbers, is_token = texts_of(lengths)
    packed = Packed({"input_ids": numbers}, is_token, ROW_TOKENS, 0)
    inputs = packed.inputs
    assert len({values.shape for values in inputs.values()}) == 1
    found = packed.unpack(inputs["input_ids"][:, :, None].astype(np.float32))[:, :, 0]
    assert found.shape == numbers.shape
    np.testing.assert_array_equal(found[is_token == 1], numbers[is_token == 1])


@given(mixed)
def test_a_text_is_told_from_its_neighbours_and_its_positions_begin_anew(lengths: list[int]) -> None:
    numbers, is_token = texts_of(lengths)
    inputs = Packed({"input_ids": numbers}, is_token, ROW_TOKENS, 2).inputs
    there = inputs["input_ids"] > 0
    assert there.sum() == sum(lengths)
    np.testing.assert_array_equal(inputs["text_numbers"] > 0, there)
    runs = []
    for row, texts, positions in zip(inputs["input_ids"], inputs["text_numbers"], inputs["position_ids"], strict=True):
        for text in set(texts[texts > 0].tolist()):
            own = texts == text
            np.testing.assert_array_equal(np.diff(row[own]), 1)  # tokens of one text, in their order
            np.testing.assert_array_equal(positions[own], 2 + np.arange(own.sum()))
            runs.append(int(own.sum()))
    assert sorted(runs) == sorted(lengths)


@pytest.mark.parametrize("shared", [True, False])
def test_all_inputs_are_contiguous(shared: bool) -> None:
    numbers, is_token = texts_of([30, 14, 14] if shared else [18])
    packed = Packed({"input_ids": numbers}, is_token, ROW_TOKENS, 0)
    assert packed.shares_rows is shared
    assert all(values.flags.c_contiguous and values.dtype == np.int64 for values in packed.inputs.values())
