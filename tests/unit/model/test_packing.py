"""Texts that share rows: nothing overlaps, nothing is lost, and it never costs more than a row for each text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.model.packing import LONE_WIDTHS, ROW_WIDTHS, Int64Array, Packed, fill, layout, widths_for

NARROW, WIDE = ROW_WIDTHS

short = st.lists(st.integers(1, NARROW), min_size=1, max_size=80)
mixed = st.lists(st.integers(1, WIDE + NARROW), min_size=1, max_size=40)


def packed(features: dict[str, Int64Array], is_token: Int64Array, *, first: int = 0) -> Packed:
    return Packed(features, is_token, row_widths=ROW_WIDTHS, lone_widths=LONE_WIDTHS, first=first)


def texts_of(lengths: list[int]) -> tuple[Int64Array, Int64Array]:
    """Every token another number, from 1 on, and where there is one."""
    is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]
    numbers = np.zeros(is_token.shape, dtype=np.int64)
    numbers[is_token] = np.arange(1, sum(lengths) + 1)
    return numbers, is_token.astype(np.int64)


@given(short)
def test_every_text_is_in_one_row_and_no_row_is_too_long(lengths: list[int]) -> None:
    rows = fill(lengths, NARROW)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[index] for index in row) <= NARROW for row in rows)


@given(short)
def test_at_most_one_row_is_not_half_full(lengths: list[int]) -> None:
    rows = fill(lengths, NARROW)
    assert sum(2 * sum(lengths[index] for index in row) <= NARROW for row in rows) <= 1


@given(short, st.data())
def test_rows_that_are_left_out_leave_the_others_as_they_are(lengths: list[int], data: st.DataObject) -> None:
    rows = fill(lengths, NARROW)
    kept = data.draw(st.lists(st.sampled_from(rows), min_size=1, unique_by=tuple))
    indexes = sorted(index for row in kept for index in row)
    again = fill([lengths[index] for index in indexes], NARROW)
    assert sorted(sorted(indexes[i] for i in row) for row in again) == sorted(map(sorted, kept))


@given(mixed)
def test_shared_rows_never_cost_more_than_own_ones(lengths: list[int]) -> None:
    alone = layout(lengths, ())
    assert (alone.rows, alone.width) == (len(lengths), max(lengths))
    assert layout(lengths, (NARROW,)).padded_tokens <= alone.padded_tokens


@given(mixed)
def test_wide_rows_cost_a_little_more_at_most_than_own_ones(lengths: list[int]) -> None:
    assert layout(lengths, ROW_WIDTHS).padded_tokens < layout(lengths, ()).padded_tokens + 64


def test_passages_have_wide_rows_in_bfloat16_alone() -> None:
    assert (widths_for("bfloat16"), widths_for("float32")) == ((NARROW, WIDE), (NARROW,))


def test_a_few_texts_that_do_not_fill_rows_have_their_own() -> None:
    assert layout([18], ROW_WIDTHS).padded_tokens == 18
    assert layout([18, 20], ROW_WIDTHS).padded_tokens == 40


@pytest.mark.parametrize(("length", "width"), [(1, 24), (18, 24), (24, 24), (25, 32), (32, 32), (33, 33), (300, 300)])
def test_a_lone_text_has_a_row_of_the_first_width_that_takes_it(length: int, width: int) -> None:
    alone = layout([length], ROW_WIDTHS, LONE_WIDTHS)
    assert (alone.rows, alone.width, alone.starts.tolist()) == (1, width, [0])


def test_two_texts_are_not_alone() -> None:
    assert layout([18, 20], ROW_WIDTHS, LONE_WIDTHS).padded_tokens == 40


def test_a_lone_text_that_fills_its_row_comes_as_it_goes() -> None:
    numbers, is_token = texts_of([LONE_WIDTHS[0]])
    assert not packed({"input_ids": numbers}, is_token).rearranged


@pytest.mark.parametrize(
    ("lengths", "rows", "width"),
    [
        ([28, 20, 18, 18], 1, 96),  # of 64 it were two
        ([30, 30, 30, 20], 1, 112),
        ([40, 39, 38, 37, 5], 2, 80),  # of 64 it were four, of 128 two
        ([44, 20, 20, 20, 10, 5], 2, 64),  # one of 128 is as much
        ([40] * 3 + [1], 1, 128),
        ([20, 20, 20, 20, 19], 5, 20),  # one of 112 is more
    ],
)
def test_a_few_rows_have_the_width_that_computes_fewest_tokens(lengths: list[int], rows: int, width: int) -> None:
    place = layout(lengths, ROW_WIDTHS)
    assert (place.rows, place.width) == (rows, width)


def test_many_rows_have_one_width() -> None:
    assert layout([30, 20, 20] * 5, ROW_WIDTHS).width == NARROW


@given(short)
def test_a_few_wider_rows_never_compute_more_than_those_the_passes_are_cut_by(lengths: list[int]) -> None:
    assert layout(lengths, ROW_WIDTHS).padded_tokens <= len(fill(lengths, NARROW)) * NARROW


@pytest.mark.parametrize("row_widths", [ROW_WIDTHS, ()])
def test_nobody_changes_the_places_that_others_are_given(row_widths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        layout([30, 14, 14], row_widths).starts[0] = 1


def test_texts_too_long_for_a_row_have_their_own() -> None:
    assert layout([WIDE + 1, 3, 3], ROW_WIDTHS).padded_tokens == 3 * (WIDE + 1)


@pytest.mark.parametrize(
    ("lengths", "rows", "width"),
    [
        ([100, 90, 60, 150, 30, 70], 2, WIDE),
        ([NARROW + 1, 3, 3], 3, NARROW + 1),  # one wide row is more by a third
        ([240, 241, 242, 243], 4, WIDE),  # a row for each computes less, and is another shape each time
        ([190, 191, 192], 3, 192),
    ],
)
def test_passages_share_wide_rows(lengths: list[int], rows: int, width: int) -> None:
    place = layout(lengths, ROW_WIDTHS)
    assert (place.rows, place.width) == (rows, width)


@given(mixed)
def test_texts_that_open_no_row_take_what_is_left_of_the_others(lengths: list[int]) -> None:
    longer = [length for length in lengths if length > NARROW]
    rows = fill(lengths, WIDE + NARROW, opens_above=NARROW)
    assert len(rows) == len(fill(longer, WIDE + NARROW))
    free = [WIDE + NARROW - sum(lengths[index] for index in row) for row in rows]
    left_out = set(range(len(lengths))) - {index for row in rows for index in row}
    assert all(max(free, default=0) < lengths[index] <= NARROW for index in left_out)


@given(mixed)
def test_what_is_laid_out_comes_back(lengths: list[int]) -> None:
    numbers, is_token = texts_of(lengths)
    texts = packed({"input_ids": numbers}, is_token)
    inputs = texts.inputs
    assert len({values.shape for values in inputs.values()}) == 1
    found = texts.unpack(inputs["input_ids"][:, :, None].astype(np.float32))[:, :, 0]
    assert found.shape == numbers.shape
    np.testing.assert_array_equal(found[is_token == 1], numbers[is_token == 1])


@given(mixed)
def test_a_text_is_told_from_its_neighbours_and_its_positions_begin_anew(lengths: list[int]) -> None:
    numbers, is_token = texts_of(lengths)
    inputs = packed({"input_ids": numbers}, is_token, first=2).inputs
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


@pytest.mark.parametrize("lengths", [[30, 14, 14], [20, 20], [18]])
def test_all_inputs_are_contiguous(lengths: list[int]) -> None:
    numbers, is_token = texts_of(lengths)
    texts = packed({"input_ids": numbers}, is_token)
    assert texts.rearranged is (lengths != [20, 20])
    assert all(values.flags.c_contiguous and values.dtype == np.int64 for values in texts.inputs.values())
