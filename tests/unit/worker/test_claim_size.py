"""How large claims and passes are, what is measured before a worker is ready, and the turns of the online lane."""

import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.worker.claim_size import Speed, measure_rate, pass_budget
from tasks.worker.encode_claim import OnlineTurn

TOKENS_PER_S = 1000.0
STEP_S = 0.08


@pytest.mark.parametrize(
    ("device", "tokens_per_s", "beside_queries", "tokens"),
    [
        *(("cpu", 100_000, True, 1024), ("cpu", 8000, True, 800), ("cpu", 100, True, 512)),
        *(("cuda:0", 80_000, True, 8000), ("cuda:0", 1e6, True, 16_384)),
        *(("cpu", 100_000, False, 1024), ("cpu", 4000, False, 800), ("cpu", 100, False, 512)),
    ],
)
def test_a_pass_that_queries_wait_for_is_short_on_any_machine(
    device: str, tokens_per_s: float, beside_queries: bool, tokens: int
) -> None:
    assert Speed(tokens_per_s, pass_budget(device)).pass_tokens(beside_queries=beside_queries) == tokens


def test_the_rate_is_estimated_tokens_over_the_time_they_took() -> None:
    now, passes = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        passes.append(seconds)

    encoder = FakeEncoder(tokens_per_s=TOKENS_PER_S, sleep=sleep)
    rate = measure_rate(encoder, max_padded_tokens=1024, clock=lambda: now[0])
    # The fake counts words and padding; the estimate counts four characters as a token.
    assert TOKENS_PER_S / 2 < rate < 3 * TOKENS_PER_S
    assert len(passes) <= 4


def test_a_lone_query_says_nothing_and_a_rate_that_is_far_too_high_comes_down() -> None:
    speed = Speed(1_000_000)
    for cost, seconds in ((20, 0.01), (49, 0.2), (0, 1.0), (500, 0.0)):
        speed.measured(cost, seconds)
    assert speed.tokens_per_s == 1_000_000
    for _ in range(50):
        speed.measured(2000, 1.0)
    assert speed.tokens_per_s < 10_000


@pytest.mark.parametrize("claim_s", [STEP_S / 8, STEP_S, 30 * STEP_S])
def test_the_online_lane_gets_seven_times_the_duration_of_other_steps(claim_s: float) -> None:
    now = [0.0]

    def serve() -> bool:
        now[0] += claim_s
        return True

    turn = OnlineTurn(serve, lambda: now[0])
    for _ in range(400):
        now[0] += STEP_S
        turn()
    assert 0.86 <= turn.spent_s / now[0] <= 0.89, "a long claim is made up for"
