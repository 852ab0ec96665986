"""What a stream tells the heartbeat: when leases are renewed, and when work hangs."""

from tasks.progress import Progress


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
    hangs = progress.hang_watch(10, lambda: now)
    assert not hangs()
    now = 100
    assert not hangs()  # nothing in hand
    progress.hold("claim")
    assert not hangs()
    now = 109
    assert not hangs()
    now = 111
    assert hangs()
    progress.step()
    assert not hangs()
    now = 200
    progress.drop("claim")
    assert not hangs()
