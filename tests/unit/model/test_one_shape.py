"""Is a lone text padded? Decided by passes at load, on a clock that these passes move."""

import itertools
from collections.abc import Callable

import pytest

from tasks.model.compiled import one_shape_is_faster
from tasks.model.packing import LONE_WIDTHS


class Machine:
    """Passes that take time of this clock alone.

    Args:
        token_s: of each token of a pass.
        change_s: of each pass of another shape than the one before.
        first_s: of each pass of a shape that there was never before.
        stall: added to the n-th pass, from 0.
    """

    def __init__(
        self,
        token_s: float,
        change_s: float = 0.0,
        first_s: float = 0.0,
        stall: Callable[[int], float] = lambda _number: 0.0,
    ) -> None:
        self.now_s = 1000.0
        self.lengths: list[int] = []
        self._costs = (token_s, change_s, first_s)
        self._stall = stall

    def run(self, tokens: int) -> None:
        token_s, change_s, first_s = self._costs
        self.now_s += tokens * token_s + self._stall(len(self.lengths))
        self.now_s += change_s * (self.lengths[-1:] != [tokens]) + first_s * (tokens not in self.lengths)
        self.lengths.append(tokens)

    def prefers_one_shape(self) -> bool:
        return one_shape_is_faster(self.run, lambda: self.now_s)


@pytest.mark.parametrize(("change_s", "expected"), [(0.0012, True), (0.0002, False), (0.0, False)])
def test_one_shape_is_taken_where_padding_costs_less_than_a_change(change_s: float, expected: bool) -> None:
    assert Machine(0.00005, change_s).prefers_one_shape() is expected  # 6 tokens of padding take 0.3 ms


def test_what_a_new_shape_takes_once_counts_for_neither() -> None:
    assert not Machine(0.00005, first_s=0.01).prefers_one_shape()


def test_a_few_passes_that_lost_their_core_decide_nothing() -> None:
    assert Machine(0.00005, 0.0012, stall=lambda number: 0.02 * (number % 11 == 8)).prefers_one_shape()
    assert not Machine(0.00005, 0.0002, stall=lambda number: 0.02 * (number % 11 == 3)).prefers_one_shape()


def test_passes_of_both_kinds_alternate() -> None:
    machine = Machine(0.00005)
    machine.prefers_one_shape()
    kinds = [padded for padded, _ in itertools.groupby(length in LONE_WIDTHS for length in machine.lengths)]
    assert kinds == [False, True] * (len(kinds) // 2)
    assert len(kinds) >= 6


@pytest.mark.parametrize("token_s", [0.00005, 0.001, 0.1])
def test_it_takes_a_second_and_one_pass_at_most(token_s: float) -> None:
    machine = Machine(token_s, change_s=0.001)
    begins = machine.now_s
    machine.prefers_one_shape()
    assert machine.now_s - begins < 1.1 + LONE_WIDTHS[-1] * token_s


def test_a_model_too_slow_to_be_tried_is_left_as_it_is() -> None:
    assert not Machine(0.01, change_s=10).prefers_one_shape()
