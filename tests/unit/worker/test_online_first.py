"""What is to be expected in the online lane, and how much time it gets between two steps of other work."""

from tasks.worker.online_first import QUIET_AFTER_S, OnlineCheck, RecentWork

STEP_S = 0.08


def test_more_is_expected_for_a_while_after_the_last_arrival() -> None:
    now = [100.0]
    arrivals = RecentWork(lambda: now[0])
    expected = [arrivals.expected]
    for passed_s in (QUIET_AFTER_S - 1, QUIET_AFTER_S - 1, QUIET_AFTER_S):
        arrivals.seen()
        now[0] += passed_s
        expected.append(arrivals.expected)
    assert expected == [False, True, True, False]


def online_part(claim_s: float, *, times: int, steps: int = 400) -> float:
    """Of a stream's time, with so long claims of the online lane, of which there is always another one."""
    now = [0.0]

    def serve() -> bool:
        now[0] += claim_s
        return True

    check = OnlineCheck(serve, lambda: False, times=times, clock=lambda: now[0])
    for _ in range(steps):
        now[0] += STEP_S
        check()
    return check.spent_s / now[0]


def test_the_online_lane_gets_so_many_times_the_duration_of_the_steps() -> None:
    for claim_s in (STEP_S / 8, STEP_S, 30 * STEP_S):
        assert 0.86 <= online_part(claim_s, times=7) <= 0.89, "a long claim is made up for"
    assert 0.74 <= online_part(STEP_S / 8, times=3) <= 0.77
