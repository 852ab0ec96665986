"""What is to be expected in the online lane, and how much time it gets between two steps of other work."""

from tasks.worker.claim_loop import ClaimSize
from tasks.worker.online_first import QUIET_AFTER_S, OnlineCheck, RecentWork

STEP_S = 0.08
SIZE = ClaimSize(bulk_cost=1, online_cost=1, rate=1)


def test_more_is_expected_for_a_while_after_the_last_arrival() -> None:
    now = [100.0]
    arrivals = RecentWork(lambda: now[0])
    expected = [arrivals.expected]
    for passed_s in (QUIET_AFTER_S - 1, QUIET_AFTER_S - 1, QUIET_AFTER_S):
        arrivals.seen()
        now[0] += passed_s
        expected.append(arrivals.expected)
    assert expected == [False, True, True, False]


class Busy:
    """The online lane always has another claim, which takes so long."""

    def __init__(self, claim_s: float) -> None:
        self.claim_s = claim_s
        self.now_s = 0.0

    def serve_online(self, _size: ClaimSize, *, no_lists: bool) -> bool:
        self.now_s += self.claim_s
        return True


def online_part(claim_s: float, *, lists: bool, steps: int = 400) -> float:
    """Of a stream's time."""
    busy = Busy(claim_s)
    check = OnlineCheck(busy, lambda: SIZE, lambda: False, lists=lists, clock=lambda: busy.now_s)
    for _ in range(steps):
        busy.now_s += STEP_S
        check()
    return check.spent_s / busy.now_s


def test_the_online_lane_gets_so_many_times_the_duration_of_the_steps() -> None:
    for claim_s in (STEP_S / 8, STEP_S, 30 * STEP_S):
        assert 0.86 <= online_part(claim_s, lists=False) <= 0.89, "a long claim is made up for"
    assert 0.74 <= online_part(STEP_S / 8, lists=True) <= 0.77
