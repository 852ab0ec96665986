import math

import pytest

from bench.load.percentile import percentile


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (1, 1.0), (25, 1.0), (26, 2.0), (50, 2.0), (75, 3.0), (99, 4.0), (100, 4.0)]
)
def test_the_smallest_value_that_enough_do_not_exceed(percent: float, expected: float) -> None:
    assert percentile([3.0, 1.0, 4.0, 2.0], percent) == expected


def test_p99_of_a_hundred_leaves_one_out() -> None:
    assert percentile([float(number) for number in range(1, 101)], 99) == 99


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 50))
