"""Bells, lingering streams, and that a look costs no write."""

from itertools import pairwise

from tests.simulation.building import drain, sized, tasks, written
from tests.simulation.listening import listening
from tests.simulation.thin_client import Ledger, NewTask


def test_one_bell_for_many_tasks_while_nobody_lingers(ledger: Ledger) -> None:
    assert sum(len(ledger.submit(task)[1]) for task in tasks("q", 50)) == 1


def test_a_bell_is_believed_ever_longer_and_cleared_when_it_is_heard(ledger: Ledger) -> None:
    rung = []
    for _ in range(40):
        if ledger.submit(NewTask(f"q{ledger.now}"))[1]:
            rung.append(ledger.now)
        ledger.advance(1000)
    assert [b - a for a, b in pairwise(rung)] == [1000, 2000, 4000, 8000, 16_000]
    drain(ledger, 9, 10**6, rang=True)
    assert ledger.submit(NewTask("z"))[1] == ["m"]
    ledger.advance(-3600_000)
    assert ledger.submit(NewTask("y"))[1] == ["m"]  # one of the future is not believed


def test_a_busy_stream_makes_an_old_bell_young_but_not_with_each_claim(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 9))
    ledger.advance(500)
    ledger.claim("w/0", "w/0/1", max_pieces=1)
    assert ledger.state["bell"] == ledger.now
    ledger.advance(100)
    ledger.claim("w/0", "w/0/2", max_pieces=1)
    assert ledger.state["bell"] == ledger.now - 100


def test_a_lingering_stream_is_woken_and_a_dead_one_passed_over(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:q:m:wake:w/0") as wakes:
        assert ledger.claim("w/0", "w/0/1", linger_ms=1000).wait_ms == 1000
        assert ledger.claim("dead/0", "dead/0/1", linger_ms=2000).wait_ms == 2000  # its socket is gone
        assert ledger.submit(NewTask("a"))[1] == []
        assert wakes.messages() == [b"work"]
        assert ledger.submit(NewTask("b"))[1] == ["m"]  # it is woken once
        assert wakes.messages() == []


def test_work_that_a_claim_leaves_is_told(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 2))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
    assert (claim.bell, claim.more) == (1, True)
    drain(ledger, 1, 10**6)
    with listening(ledger.redis, "eq:q:m:wake:v/0") as wakes:
        ledger.claim("v/0", "v/0/1", linger_ms=1000)
        ledger.submit(*tasks("r", 2))
        assert wakes.messages() == [b"work"]
        ledger.claim("v/0", "v/0/2")
        ledger.claim("v/0", "v/0/3", linger_ms=1000)
        ledger.give_back("v/0/2")
        assert wakes.messages() == [b"work"]


def test_a_stream_lingers_after_a_commit_where_nothing_is_ready(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 2))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
    assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms == 0
    assert not ledger.redis.exists("eq:q:m:lingering")
    claim = ledger.claim("w/0", "w/0/2")
    assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms == 1000
    assert ledger.redis.zrange("eq:q:m:lingering", 0, -1, withscores=True) == [(b"w/0", ledger.now + 1250)]


def test_work_of_both_lanes_is_ready(ledger: Ledger) -> None:
    ledger.submit(NewTask("a"), NewTask("b", lane="bulk"))
    ledger.claim("w/0", "w/0/1", max_pieces=0, rang=True)
    ledger.advance(1001)
    assert (ledger.give_back("none"), ledger.watch().ready) == (1, 2)


def test_housekeeping_rings_for_work_that_nobody_is_at(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(*tasks("q", 3))
    ledger.advance(1001)
    assert ledger.watch().bell == 1
    assert ledger.watch().bell == 0
    ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
    ledger.advance(1001)
    assert ledger.watch().bell == 0  # who holds a lease asks for more by itself
    ledger.heartbeat("join", "v")
    ledger.redis.delete("eq:q:m:lingering")
    ledger.claim("v/0", "v/0/1", max_pieces=0, rang=True)
    assert ledger.watch().bell == 1 - 1  # CLAIM has rung for what it left
    ledger.advance(1001)
    assert ledger.watch().bell == 1


def test_a_repeated_submission_wakes_again(ledger: Ledger) -> None:
    ledger.submit(NewTask("a"))
    ledger.advance(1001)
    assert ledger.submit(NewTask("a")) == ([[b"ok", b"a"]], ["m"])


def test_a_look_writes_nothing(ledger: Ledger) -> None:
    bulk = NewTask("bulk", owner="b", pieces=sized(100, number=5), lane="bulk")
    ledger.submit(bulk, NewTask("q"))
    for n in range(2):
        ledger.claim("w/0", f"w/0/{n}", max_pieces=1)
    assert not written(ledger, lambda: [ledger.claim("w/0", f"w/0/look{n}", online_only=True) for n in range(5)])


def test_an_empty_claim_writes_nothing_beside_where_it_lingers(ledger: Ledger) -> None:
    ledger.claim("w/0", "w/0/1")
    assert not written(ledger, lambda: ledger.claim("w/0", "w/0/2"))
    assert written(ledger, lambda: ledger.claim("w/0", "w/0/3", linger_ms=100)) == 1


def test_joining_a_waiting_task_repairs_a_lost_bell(ledger: Ledger) -> None:
    sync = NewTask("a", alias="s", digest="s", joins=True, deadline_in_ms=20_000)
    ledger.submit(sync)
    ledger.advance(1001)
    assert ledger.submit(sync)[1] == ["m"]


def test_as_many_streams_are_woken_as_tasks_have_come(ledger: Ledger) -> None:
    with listening(ledger.redis, *[f"eq:q:m:wake:w/{n}" for n in range(3)]) as wakes:
        for n in range(3):
            ledger.claim(f"w/{n}", f"w/{n}/1", linger_ms=1000)
        assert ledger.submit(*tasks("q", 2))[1] == []
        assert wakes.messages() == [b"work"] * 2
        assert ledger.submit(*tasks("r", 2))[1] == ["m"]
        assert wakes.messages() == [b"work"]


def test_each_queue_has_its_own_bell(ledger: Ledger) -> None:
    assert ledger.submit(NewTask("a"), NewTask("b", queue="n"), NewTask("c", queue="n"))[1] == ["m", "n"]


def test_housekeeping_wakes_who_lingers_beside_ready_work(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:q:m:wake:w/0") as wakes:
        ledger.submit(NewTask("q"))
        ledger.redis.zadd("eq:q:m:lingering", {"w/0": ledger.now + 5000})
        ledger.watch()
        assert wakes.messages() == [b"work"]
