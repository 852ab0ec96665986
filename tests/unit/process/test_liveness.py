"""What a stream tells the heartbeat: when leases are renewed, and when work hangs."""

from tasks.process.liveness import Progress


def test_a_lease_is_renewed_while_the_stream_moves_or_is_outside() -> None:
    progress = Progress()
    progress.hold("claim")
    assert progress.to_renew() == ("claim",)
    assert progress.to_renew() == ()
    with progress.outside():
        assert progress.to_renew() == ("claim",)
        assert progress.to_renew() == ("claim",)
    assert progress.to_renew() == ("claim",)
    assert progress.to_renew() == ()


def test_work_hangs_when_a_claim_is_in_hand_and_nothing_moves() -> None:
    now = 0.0
    progress = Progress()
    hangs = progress.hang_watch(10, outside_s=10, clock=lambda: now)

    def after(seconds: int) -> bool:
        nonlocal now
        seen = False
        for _ in range(seconds):
            now += 1
            seen = hangs()
        return seen

    assert not after(100)  # nothing in hand
    progress.hold("claim")
    assert not after(10)
    assert after(1)
    progress.step()
    assert not after(10)
    progress.drop("claim")
    assert not after(100)


def test_what_is_outside_has_a_patience_of_its_own() -> None:
    seconds = iter(range(0, 100, 4))
    progress = Progress()
    hangs = progress.hang_watch(1000, outside_s=20, clock=lambda: next(seconds) / 2)  # each watch looks
    progress.hold("claim")
    with progress.outside():
        seen = [hangs() for _ in range(6)]
    assert seen == [False] * 5 + [True]


def test_a_process_that_was_stopped_does_not_hang() -> None:
    now = 0.0
    progress = Progress()
    hangs = progress.hang_watch(10, outside_s=10, clock=lambda: now)
    progress.hold("claim")
    assert not hangs()
    now = 3600  # nobody looked meanwhile: everything stood still
    assert not hangs()
    progress.step()
    now += 9
    assert not hangs()
