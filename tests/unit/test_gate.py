"""Who may be inside the gate at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tasks.gate import Gate

LONG_S = 30.0


class Visitors:
    """Threads that enter a gate and stay until they are told to leave."""

    def __init__(self, gate: Gate, pool: ThreadPoolExecutor) -> None:
        self._gate = gate
        self._pool = pool
        self.inside = threading.Semaphore(0)

    def enter(self, *, alone: bool) -> tuple[Callable[[], None], Future[None]]:
        leave = threading.Event()

        def visit() -> None:
            with self._gate.alone() if alone else self._gate.beside_others():
                self.inside.release()
                assert leave.wait(LONG_S)

        return leave.set, self._pool.submit(visit)

    def entered(self) -> bool:
        return self.inside.acquire(timeout=LONG_S)


@pytest.fixture
def visitors() -> Visitors:
    return Visitors(Gate(single=False), ThreadPoolExecutor(8))


def test_claims_go_beside_each_other(visitors: Visitors) -> None:
    leavers = [visitors.enter(alone=False) for _ in range(3)]
    assert all(visitors.entered() for _ in leavers)
    for leave, done in leavers:
        leave()
        done.result(LONG_S)


def test_who_is_alone_waits_for_those_inside_and_keeps_out_the_others(visitors: Visitors) -> None:
    leave_first, first = visitors.enter(alone=False)
    assert visitors.entered()
    leave_alone, alone = visitors.enter(alone=True)
    leave_late, late = visitors.enter(alone=False)
    assert not visitors.inside.acquire(timeout=0.05)  # the one waits for the first, the other one for both
    leave_first()
    first.result(LONG_S)
    assert visitors.entered()
    assert not alone.done()
    leave_alone()
    alone.result(LONG_S)
    leave_late()
    late.result(LONG_S)
    assert visitors.entered()


def test_two_that_want_to_be_alone_take_turns(visitors: Visitors) -> None:
    leavers = [visitors.enter(alone=True) for _ in range(2)]
    assert visitors.entered()
    assert not visitors.inside.acquire(timeout=0.05)
    for leave, _ in leavers:
        leave()
    for _, done in leavers:
        done.result(LONG_S)
    assert visitors.entered()


def test_an_error_inside_leaves_the_gate_open() -> None:
    gate = Gate(single=False)
    with pytest.raises(KeyError), gate.alone():
        raise KeyError
    with pytest.raises(KeyError), gate.beside_others():
        raise KeyError
    with gate.alone():
        pass


def test_who_waits_says_so() -> None:
    gate, said = Gate(single=False), threading.Event()
    with ThreadPoolExecutor() as pool, gate.alone():
        waits = pool.submit(lambda: enter(gate, said.set))
        assert said.wait(LONG_S), "its lease would end meanwhile"
        assert not waits.done()


def enter(gate: Gate, waiting: Callable[[], None]) -> None:
    with gate.beside_others(waiting):
        pass
