"""When suspects have their turn in a process, and for how long."""

import threading

from stack.testing import PATIENCE_S
from tasks.drain.suspects import PAUSE_S, SHARE, TURN_S, Suspects
from tasks.gate import Gate

EACH_S = 0.04


class Process:
    """Suspects of a process in which encoding one takes a while."""

    def __init__(self, *, waiting: int = 1000) -> None:
        self.now_s = 0.0
        self.done = 0
        self.waiting = waiting
        self.gate = Gate(single=False)
        self.suspects = Suspects(self.gate, lambda: self.now_s)

    def do_one(self) -> bool:
        if not self.waiting:
            return False
        self.waiting -= 1
        self.done += 1
        self.now_s += EACH_S
        return True

    def turn(self, *, idle: bool = False) -> bool:
        return self.suspects.turn(self.do_one, idle=idle)


def test_beside_other_work_they_have_a_share_of_the_time() -> None:
    process, others_s = Process(), 0.01
    while process.now_s < 1000 * TURN_S:
        process.turn()
        process.now_s += others_s
    spent_s = process.done * EACH_S
    assert 0.9 / SHARE < spent_s / process.now_s <= 1 / SHARE


def test_a_turn_is_short() -> None:
    process = Process()
    assert process.turn()
    assert TURN_S <= process.now_s < TURN_S + EACH_S


def test_without_other_work_one_turn_follows_another() -> None:
    process = Process(waiting=40)
    while process.waiting:
        assert process.turn(idle=True)
    assert process.done == 40


def test_after_a_turn_in_which_none_could_be_done_there_is_a_pause() -> None:
    process = Process(waiting=0)
    assert not process.turn(idle=True)
    process.waiting = 1
    assert not process.turn(idle=True)
    process.now_s += PAUSE_S
    assert process.turn(idle=True)


def test_nobody_else_touches_a_text_meanwhile() -> None:
    process, entered = Process(), []

    def do_one() -> bool:
        other = threading.Thread(target=enter)
        other.start()
        other.join(0.2)
        assert other.is_alive()
        waiting.append(other)
        return False

    def enter() -> None:
        with process.gate.beside_others():
            entered.append(True)

    waiting: list[threading.Thread] = []
    process.suspects.turn(do_one, idle=True)
    waiting[0].join(PATIENCE_S)
    assert entered == [True]


def test_one_stream_at_a_time_is_at_it() -> None:
    process, others = Process(), []

    def do_one() -> bool:
        with_another = threading.Thread(target=lambda: others.append(process.turn(idle=True)))
        with_another.start()
        with_another.join(PATIENCE_S)
        return False

    process.suspects.turn(do_one, idle=True)
    assert others == [False]
