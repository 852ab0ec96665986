"""The budget of one forward pass: fixed on a CPU, measured on a card, here a simulated one whose time is a clock's."""

import dataclasses
from collections.abc import Callable

import pytest

from tasks.embedding.speed import budget_for
from tasks.model.encoder import EncoderBroken
from tests.unit.model.stub_encoder import Batch, StubEncoder


class SimulatedCard(StubEncoder):
    """A pass takes its padded tokens by the speed; one that does not fill the card takes as long as one that does.

    Args:
        tokens_per_s: of a full card.
        full_at: tokens from which it is full.
        start_s: what every pass takes in addition.
        fits: tokens of the largest pass that fits into its memory.
        failure: what is raised for a larger one.
        cold_s: what the first pass of each shape takes in addition.
    """

    def __init__(
        self,
        *,
        tokens_per_s: float,
        full_at: int = 1,
        start_s: float = 0,
        fits: int = 10**9,
        failure: Callable[[], Exception] = lambda: RuntimeError("CUDA out of memory. Tried to allocate 9 GiB."),
        cold_s: float = 0,
        max_tokens: int = 512,
        streams: int = 2,
    ) -> None:
        super().__init__(fault=self._take_time, max_tokens=max_tokens, streams=streams)
        self.info = dataclasses.replace(self.info, device="cuda:0")
        self.now = 0.0
        self.released = 0
        self.sizes: list[int] = []
        """Padded tokens of each pass."""
        self._speed, self._full_at, self._fits, self._failure = tokens_per_s, full_at, fits, failure
        self._start_s, self._cold_s = start_s, cold_s

    def _take_time(self, batch: Batch) -> None:
        padded = len(batch) * max(text.length for text in batch)
        if padded > self._fits:
            raise self._failure()
        self.now += max(padded, self._full_at) / self._speed + self._start_s
        self.now += 0 if padded in self.sizes else self._cold_s
        self.sizes.append(padded)

    def budget(self, max_padded_tokens: int | None = None) -> int:
        return budget_for(self, max_padded_tokens, clock=lambda: self.now, release=self._release).most

    def _release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(
    ("full_at", "expected"),
    [(1, 2048), (2048, 2048), (5000, 8192), (16_384, 16_384), (20_000, 32_768), (10**6, 65_536)],
)
def test_a_pass_is_as_large_as_makes_a_card_faster(full_at: int, expected: int) -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=full_at)
    assert card.budget() == expected
    assert max(card.sizes) == min(2 * expected, 65_536)
    assert card.released == 1


def test_a_gain_of_less_than_a_twentieth_is_none() -> None:
    assert SimulatedCard(tokens_per_s=1e8, full_at=8192 * 104 // 100).budget() == 8192
    assert SimulatedCard(tokens_per_s=1e8, full_at=8192 * 106 // 100).budget() == 16_384


def test_the_first_pass_of_a_shape_is_not_timed() -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=16_384, cold_s=1)
    assert card.budget() == 16_384


@pytest.mark.parametrize(
    ("tokens_per_s", "expected"), [(2_000_000, 65_536), (500_000, 16_384), (200_000, 8192), (40_000, 2048), (100, 2048)]
)
def test_on_a_slow_card_an_urgent_text_waits_no_longer_than_elsewhere(tokens_per_s: float, expected: int) -> None:
    # Twice the size is always more than a twentieth faster here: what bounds a pass is 0.08 s.
    card = SimulatedCard(tokens_per_s=tokens_per_s, start_s=0.02)
    assert card.budget() == expected


@pytest.mark.parametrize(
    ("fits", "streams", "expected"), [(20_000, 2, 4096), (20_000, 1, 8192), (4096, 2, 1024), (1000, 2, 512)]
)
def test_streams_share_what_fits_into_memory_and_half_is_left_free(fits: int, streams: int, expected: int) -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=10**6, fits=fits, streams=streams)
    assert card.budget() == expected
    assert card.released == 1


def test_whatever_else_a_large_pass_raises_is_the_end_of_the_search() -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=10**6, fits=20_000, failure=lambda: RuntimeError("too many blocks"))
    assert card.budget() == 4096


def test_a_card_that_broke_is_not_measured_any_more() -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=10**6, fits=20_000, failure=lambda: EncoderBroken("gone"))
    with pytest.raises(EncoderBroken):
        card.budget()


def test_a_model_of_long_texts_is_measured_with_ordinary_ones() -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=16_384, max_tokens=8192)
    assert card.budget() == 16_384
    assert all(256 < length <= 512 for lengths in card.batches for length in lengths)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_what_an_operator_sets_is_meant_and_nothing_is_tried(device: str) -> None:
    card = SimulatedCard(tokens_per_s=1e8)
    card.info = dataclasses.replace(card.info, device=device)
    assert card.budget(4096) == 4096
    assert (card.sizes, card.released) == ([], 0)
    assert budget_for(card, 4096).interrupted(100, urgent=True) == 4096


def test_on_a_cpu_nothing_is_tried() -> None:
    encoder = StubEncoder()
    assert budget_for(encoder, None).most == 1024
    assert encoder.batches == []


@pytest.mark.parametrize(
    ("tokens_per_s", "beside_urgent_texts", "otherwise"),
    [(100_000, 1024, 1024), (10_000, 800, 1024), (5_000, 512, 800), (100, 512, 512)],
)
def test_a_pass_of_bulk_work_is_short_on_any_machine(
    tokens_per_s: float, beside_urgent_texts: int, otherwise: int
) -> None:
    budget = budget_for(StubEncoder(), None)
    assert budget.interrupted(tokens_per_s, urgent=True) == beside_urgent_texts
    assert budget.interrupted(tokens_per_s, urgent=False) == otherwise


def test_on_a_card_passes_of_bulk_work_are_bounded_too() -> None:
    card = SimulatedCard(tokens_per_s=1e8, full_at=10**6)
    budget = budget_for(card, None, clock=lambda: card.now, release=lambda: None)
    assert (budget.most, budget.interrupted(100_000, urgent=True)) == (65_536, 8000)


def test_where_two_passes_go_together_each_is_half_as_long() -> None:
    card = SimulatedCard(tokens_per_s=200_000, start_s=0.02)
    card.launch = lambda batch, *, alone=False: lambda: card.forward(batch, alone=alone)
    budget = budget_for(card, None, clock=lambda: card.now, release=lambda: None)
    assert budget.most == 2048
    assert budget.interrupted(20_000, urgent=True) == 800
