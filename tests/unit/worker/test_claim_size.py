"""How large claims and passes are, and what is measured before a worker is ready."""

import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.worker.claim_loop import ClaimSize
from tasks.worker.claim_size import Speed, measure_rate, pass_budget

TOKENS_PER_S = 1000.0


class Timed:
    """A fake encoder whose passes take no time, but that of a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.passes: list[int] = []
        """Padded tokens of each."""
        self.encoder = FakeEncoder(tokens_per_s=TOKENS_PER_S, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.passes.append(round(seconds * TOKENS_PER_S))


@pytest.mark.parametrize(
    ("device", "tokens_per_s", "tokens"),
    [("cpu", 100_000, 1024), ("cpu", 8000, 800), ("cpu", 100, 512), ("cuda:0", 80_000, 8000), ("cuda:0", 1e6, 16_384)],
)
def test_a_pass_that_queries_wait_for_is_short_on_any_machine(device: str, tokens_per_s: float, tokens: int) -> None:
    assert Speed(tokens_per_s, pass_budget(device)).pass_tokens(beside_queries=True) == tokens


@pytest.mark.parametrize(("tokens_per_s", "tokens"), [(100_000, 1024), (4000, 800), (100, 512)])
def test_a_pass_that_nobody_waits_for_is_twice_as_long(tokens_per_s: float, tokens: int) -> None:
    assert Speed(tokens_per_s, pass_budget("cpu")).pass_tokens(beside_queries=False) == tokens


def test_the_rate_is_estimated_tokens_over_the_time_they_took() -> None:
    timed = Timed()
    rate = measure_rate(timed.encoder, max_padded_tokens=1024, clock=lambda: timed.now_s)
    # The fake counts words and padding; the estimate counts four characters as a token.
    assert TOKENS_PER_S / 2 < rate < 3 * TOKENS_PER_S
    assert len(timed.passes) <= 4


@pytest.mark.parametrize(("cost", "seconds"), [(20, 0.01), (49, 0.2), (0, 1.0), (500, 0.0)])
def test_a_lone_query_and_an_empty_claim_say_nothing(cost: int, seconds: float) -> None:
    speed = Speed(1000)
    speed.measured(cost, seconds)
    assert speed.tokens_per_s == 1000


def test_a_rate_that_is_far_too_high_comes_down_although_claims_look_small() -> None:
    speed = Speed(1_000_000)
    for _ in range(50):
        speed.measured(2000, 1.0)
    assert speed.tokens_per_s < 10_000


def test_claims_hold_24_pieces_or_four_of_lists_or_a_tenth_of_a_second_of_queries() -> None:
    speed = Speed(1000)
    assert speed.claim_size(beside_queries=False) == ClaimSize(bulk_cost=6000, online_cost=1000, rate=1000)
    assert speed.claim_size(beside_queries=True) == ClaimSize(bulk_cost=6000, online_cost=100, rate=1000)
