"""How much time the online lane gets between two steps of other work."""

from tasks.worker.encode_claim import OnlineTurn

STEP_S = 0.08


def online_part(claim_s: float, steps: int = 400) -> float:
    """Of a stream's time, with so long claims of the online lane, of which there is always another one."""
    now = [0.0]

    def serve() -> bool:
        now[0] += claim_s
        return True

    turn = OnlineTurn(serve, lambda: now[0])
    for _ in range(steps):
        now[0] += STEP_S
        turn()
    return turn.spent_s / now[0]


def test_the_online_lane_gets_seven_times_the_duration_of_the_steps() -> None:
    for claim_s in (STEP_S / 8, STEP_S, 30 * STEP_S):
        assert 0.86 <= online_part(claim_s) <= 0.89, "a long claim is made up for"
