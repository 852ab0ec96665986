"""What counts for the measured rate."""

import pytest

from tasks.drain.rate import MAX_UNITS_PER_CLAIM, MeasuredRate, bulk_claim_s, longest_claim_s
from tasks.drain.work import ClaimSize


def test_a_full_claim_moves_the_rate_towards_what_it_showed() -> None:
    rate = MeasuredRate(1000)
    rate.measured(500, 0.25)
    assert 1000 < rate.tokens_per_s < 2000


@pytest.mark.parametrize(("cost", "seconds"), [(20, 0.01), (49, 0.2), (0, 1.0), (500, 0.0)])
def test_a_lone_query_and_an_empty_claim_say_nothing(cost: int, seconds: float) -> None:
    rate = MeasuredRate(1000)
    rate.measured(cost, seconds)
    assert rate.tokens_per_s == 1000


@pytest.mark.parametrize("cost", [50, 100, 250])
def test_a_claim_that_was_cut_short_counts_upwards_too(cost: int) -> None:
    rate = MeasuredRate(1000)
    rate.measured(cost, cost / 2000)
    assert rate.tokens_per_s > 1000


def test_a_rate_that_is_far_too_high_comes_down_although_claims_look_small() -> None:
    rate = MeasuredRate(1_000_000)
    for _ in range(50):
        rate.measured(2000, 1.0)
    assert rate.tokens_per_s < 10_000


def test_bulk_claims_hold_24_units_or_eight_and_online_ones_a_tenth_of_a_second_or_four() -> None:
    assert bulk_claim_s(0.25) == 6
    assert bulk_claim_s(0.25, urgent=True) == 2
    rate = MeasuredRate(1000)
    assert rate.claim_size(60, 0.25, urgent=False) == ClaimSize(6000, 100, 1000, MAX_UNITS_PER_CLAIM, 1000)
    assert rate.claim_size(60, 0.25, urgent=True).bulk_cost == 2000
    assert rate.claim_size(60, 0.05, urgent=False).online_cost == 50


def test_a_claim_fits_into_the_slice_and_holds_a_unit_in_any_case() -> None:
    rate = MeasuredRate(1000)
    assert rate.claim_size(3, 0.25, urgent=False).bulk_cost == 3000
    assert [rate.claim_size(left_s, 0.25, urgent=False).bulk_cost for left_s in (0.1, 0, -5)] == [250] * 3
    assert [rate.claim_size(left_s, 0.25, urgent=False).large_cost for left_s in (0.6, 0.1, -5)] == [600, 250, 250]


def test_the_longest_claim_serves_urgent_texts_seven_eighths_of_its_time() -> None:
    assert longest_claim_s(0.25) == 48
