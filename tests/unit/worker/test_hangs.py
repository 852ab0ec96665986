"""What parent and child tell one another, which leases are renewed, and who hangs."""

from tasks.worker.process.hangs import LEAST_CHECKS, HangWatch, Progress
from tasks.worker.process.stop import SharedPage

PATIENCE_S = 120.0


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_work_hangs_when_a_claim_is_in_hand_and_nothing_moves() -> None:
    clock, progress = Clock(), Progress()
    hangs = HangWatch(progress.reading, 10, clock)

    def after(seconds: int) -> bool:
        seen = False
        for _ in range(seconds):
            clock.now += 1
            seen = hangs()
        return seen

    assert not after(100), "nothing in hand"
    with progress.holding("claim", ["task"]):
        assert not after(10)
        assert after(1)
        progress.step()
        assert not after(10)
    assert not after(100)


def test_a_part_hangs_when_its_count_stands_still() -> None:
    clock, shared = Clock(), SharedPage.make()
    hangs = HangWatch(lambda: shared.turns, PATIENCE_S, clock)
    shared.turns += 1
    assert not hangs()
    for _ in range(LEAST_CHECKS - 1):
        clock.now += PATIENCE_S / LEAST_CHECKS
        assert not hangs()
    clock.now += PATIENCE_S / LEAST_CHECKS
    assert hangs()
    shared.turns += 1
    assert not hangs()


def test_a_child_that_loads_its_model_does_not_hang() -> None:
    clock, shared = Clock(), SharedPage.make()
    frozen = HangWatch(lambda: shared.beats or None, PATIENCE_S, clock)
    for _ in range(3 * LEAST_CHECKS):
        clock.now += PATIENCE_S
        assert not frozen()
    shared.beats += 1
    assert not frozen()
    for _ in range(LEAST_CHECKS):
        clock.now += PATIENCE_S / LEAST_CHECKS
        last = frozen()
    assert last
    shared.forget_child()
    assert not frozen(), "the next child loads its model"


def test_a_pause_of_both_processes_is_no_hanging() -> None:
    clock, shared = Clock(), SharedPage.make()
    frozen = HangWatch(lambda: shared.beats or None, PATIENCE_S, clock)
    for _ in range(3 * LEAST_CHECKS):
        shared.beats += 1
        assert not frozen()
        clock.now += 10 * PATIENCE_S
        assert not frozen(), "the child had no time to beat"


def test_a_stream_that_waits_for_the_storage_does_not_hang() -> None:
    progress, clock = Progress(), Clock()
    hangs = HangWatch(progress.reading, PATIENCE_S, clock)
    with progress.holding("a", ["task_1"]):
        with progress.outside():
            for _ in range(3 * LEAST_CHECKS):
                clock.now += PATIENCE_S
                assert not hangs()
            assert progress.tokens() == ("a",)
        for _ in range(LEAST_CHECKS + 1):
            clock.now += PATIENCE_S / LEAST_CHECKS
            last = hangs()
        assert last


def test_more_ids_than_there_is_room_for_are_left_out_whole() -> None:
    shared = SharedPage.make()
    ids = [f"task_{number:026}" for number in range(1000)]
    shared.work_on(0, ids)
    assert 0 < len(shared.in_hand()) < len(ids)
    assert set(shared.in_hand()) < set(ids)
