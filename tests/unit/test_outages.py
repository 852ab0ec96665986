"""How long a task is tried again, and that tasks which never come back are forgotten."""

from tasks.outages import FORGET_AFTER_S, Outages


class Clock:
    """Stands still unless told otherwise."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_patience_is_over_when_a_task_was_missed_for_so_long() -> None:
    clock = Clock()
    outages = Outages(10, clock)
    answers = []
    for now in (0, 5, 9.9, 10):
        clock.now = now
        answers.append(outages.missed("task"))
    assert answers == [False, False, False, True]


def test_a_task_that_was_worked_on_begins_anew() -> None:
    clock = Clock()
    outages = Outages(10, clock)
    outages.missed("task")
    outages.over("task")
    clock.now = 11
    assert not outages.missed("task")


def test_many_jobs_that_wait_take_turns_longer_than_their_patience() -> None:
    clock = Clock()
    outages = Outages(300, clock)
    answers = []
    for turn in range(2):
        for n in range(22):
            clock.now += 14
            answers.append((turn, outages.missed(f"task-{n}")))
    assert answers == [(0, False)] * 22 + [(1, True)] * 22


def test_tasks_that_never_come_back_are_forgotten() -> None:
    clock = Clock()
    outages = Outages(10, clock)
    for n in range(100):
        clock.now = n * FORGET_AFTER_S / 10
        outages.missed(f"task-{n}")
    assert len(outages) == 10
    clock.now += FORGET_AFTER_S
    assert not outages.missed("task-99"), "the outage of long ago is over"
    assert len(outages) == 1
