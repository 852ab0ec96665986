"""How large a pass is on which device, and what is measured before a worker is ready."""

import pytest

from tasks.embedding.speed import LEASE_PER_PASS, budget_for, lease_for, measure_rate
from tasks.encoder.fake import FakeEncoder
from tasks.item import UNLIMITED_TOKENS

TOKENS_PER_S = 1000.0


class Timed:
    """A fake encoder whose passes take no time, but that of a clock."""

    def __init__(self, *, max_tokens: int = 256) -> None:
        self.now_s = 0.0
        self.passes: list[int] = []
        """Padded tokens of each."""
        self.encoder = FakeEncoder(max_tokens=max_tokens, tokens_per_s=TOKENS_PER_S, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.passes.append(round(seconds * TOKENS_PER_S))


@pytest.mark.parametrize(("device", "tokens"), [("cpu", 1024), ("cuda:0", 16_384), ("cuda:1", 16_384)])
def test_a_pass_is_as_large_as_suits_the_device(device: str, tokens: int) -> None:
    assert budget_for(device).most == tokens


@pytest.mark.parametrize(
    ("tokens_per_s", "beside_urgent_texts", "otherwise"),
    [(100_000, 1024, 1024), (10_000, 800, 1024), (5_000, 512, 800), (100, 512, 512)],
)
def test_a_pass_of_bulk_work_is_short_on_any_machine(
    tokens_per_s: float, beside_urgent_texts: int, otherwise: int
) -> None:
    budget = budget_for("cpu")
    assert budget.interrupted(tokens_per_s, urgent=True) == beside_urgent_texts
    assert budget.interrupted(tokens_per_s, urgent=False) == otherwise


def test_on_a_card_passes_of_bulk_work_are_short_too() -> None:
    budget = budget_for("cuda:0")
    assert budget.interrupted(100_000, urgent=True) == 8000
    assert budget.interrupted(10**6, urgent=True) == 16_384


@pytest.mark.parametrize(("max_tokens", "passes"), [(100, [1000]), (4000, [4000]), (UNLIMITED_TOKENS, [8195])])
def test_a_lease_is_measured_with_a_full_pass(max_tokens: int, passes: list[int]) -> None:
    timed = Timed(max_tokens=max_tokens)
    assert lease_for(timed.encoder, max_padded_tokens=1000, least_s=60) == 60
    assert timed.passes == passes


def test_a_lease_lasts_for_several_passes_of_a_slow_machine() -> None:
    encoder = FakeEncoder(max_tokens=100, tokens_per_s=5000)
    assert lease_for(encoder, max_padded_tokens=1000, least_s=0.1) >= LEASE_PER_PASS * 0.2


def test_the_rate_is_estimated_tokens_over_the_time_they_took() -> None:
    timed = Timed()
    rate = measure_rate(timed.encoder, max_padded_tokens=1024, clock=lambda: timed.now_s)
    # The fake counts words and padding; the estimate counts four characters as a token.
    assert TOKENS_PER_S / 2 < rate < 3 * TOKENS_PER_S
    assert len(timed.passes) <= 4


def test_measuring_stops_with_a_model_that_takes_no_time() -> None:
    assert measure_rate(FakeEncoder(), max_padded_tokens=10**9) > 0
