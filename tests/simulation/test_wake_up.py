"""Bells, lingering streams, and what a call costs Redis: few commands and writes, which do not grow with what waits."""

from collections.abc import Callable
from itertools import pairwise

from tests.integration.ledger.driver import commands
from tests.integration.ledger.listener import Listener
from tests.simulation.thin_client import Ledger, NewTask, sized, tasks

OF_LONE_QUERY = 48
OF_CROWD = 13
QUEUED_BYTES = 1500


def test_a_bell_is_believed_ever_longer_and_cleared_when_it_is_heard(ledger: Ledger) -> None:
    rung = []
    for _ in range(40):
        if ledger.submit(NewTask(f"q{ledger.now}"))[1]:
            rung.append(ledger.now)
        ledger.advance(1000)
    assert [b - a for a, b in pairwise(rung)] == [1000, 2000, 4000, 8000, 16_000]
    ledger.drain(rang=True)
    assert ledger.submit(NewTask("z"))[1] == ["m"]
    ledger.advance(-3600_000)
    assert ledger.submit(NewTask("y"))[1] == ["m"]  # one of the future is not believed
    sync = NewTask("a", alias="s", digest="s", joins=True, deadline_in_ms=20_000)
    for task in (NewTask("x"), sync):  # a repeated submission wakes again, and joining a waiting task
        ledger.drain(rang=True)
        assert ledger.submit(task)[1] == ["m"]
        assert ledger.submit(task)[1] == []
        ledger.advance(1001)
        assert ledger.submit(task)[1] == ["m"]
    assert ledger.submit(NewTask("b", queue="n"), NewTask("c", queue="n"))[1] == ["n"], "each queue has its own"


def test_a_busy_stream_makes_an_old_bell_young_but_not_with_each_claim(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 9))
    ledger.advance(500)
    ledger.claim("w/0", "w/0/1", max_pieces=1)
    assert ledger.state["bell"] == ledger.now
    ledger.advance(100)
    ledger.claim("w/0", "w/0/2", max_pieces=1)
    assert ledger.state["bell"] == ledger.now - 100


def test_as_many_lingering_streams_are_woken_as_tasks_have_come_and_dead_ones_passed_over(ledger: Ledger) -> None:
    with Listener(ledger.redis, *[f"eq:q:m:wake:w/{n}" for n in range(3)]) as wakes:
        for n in range(3):
            assert ledger.claim(f"w/{n}", f"w/{n}/1", linger_ms=1000).wait_ms == 1000
        assert ledger.claim("dead/0", "dead/0/1", linger_ms=2000).wait_ms == 2000  # its socket is gone
        assert ledger.submit(*tasks("q", 2))[1] == []
        assert wakes.messages() == [b"work"] * 2
        assert ledger.submit(*tasks("r", 2))[1] == ["m"]
        assert wakes.messages() == [b"work"]
        assert ledger.submit(NewTask("b"))[1] == []  # each is woken once
        assert wakes.messages() == []


def test_work_that_a_claim_leaves_is_told(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 2))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
    assert (claim.bell, claim.more) == (1, True)
    assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms == 0
    assert not ledger.redis.exists("eq:q:m:lingering")
    claim = ledger.claim("w/0", "w/0/2", linger_ms=1000)
    assert (claim.wait_ms, ledger.redis.exists("eq:q:m:lingering")) == (0, 0)
    assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms == 1000, "nothing is ready"
    assert ledger.redis.zrange("eq:q:m:lingering", 0, -1, withscores=True) == [(b"w/0", ledger.now + 1250)]
    with Listener(ledger.redis, "eq:q:m:wake:v/0") as wakes:
        ledger.claim("v/0", "v/0/1", linger_ms=1000)
        ledger.submit(*tasks("r", 2))
        assert wakes.messages() == [b"work"]
        ledger.claim("v/0", "v/0/2")
        ledger.claim("v/0", "v/0/3", linger_ms=1000)
        assert ledger.redis.zscore("eq:q:m:lingering", "v/0") == ledger.now + 1250
        ledger.give_back("v/0/2")
        assert wakes.messages() == [b"work"]
        assert "lost_leases" not in ledger.counts
        ledger.redis.zadd("eq:q:m:lingering", {"v/0": ledger.now + 5000})
        ledger.watch()
        assert wakes.messages() == [b"work"], "housekeeping wakes who lingers beside ready work"


def test_housekeeping_rings_for_work_that_nobody_is_at(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(*tasks("q", 2), NewTask("b", lane="bulk"))
    ledger.advance(1001)
    assert ledger.watch()[1:3] == (1, 3)
    assert ledger.watch().bell == 0
    ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
    ledger.advance(1001)
    assert ledger.watch().bell == 0  # who holds a lease asks for more by itself
    ledger.heartbeat("join", "v")
    ledger.redis.delete("eq:q:m:lingering")
    ledger.claim("v/0", "v/0/1", max_pieces=0, rang=True)
    assert ledger.watch().bell == 0  # CLAIM has rung for what it left
    ledger.advance(1001)
    assert ledger.watch().bell == 1
    ledger.claim("v/0", "v/0/2", max_pieces=0, rang=True)
    ledger.advance(1001)
    assert ledger.give_back("none") == 1


def test_a_look_and_a_refusal_write_nothing_and_an_empty_claim_where_it_lingers(ledger: Ledger) -> None:
    ledger.claim("w/0", "w/0/1")
    assert not ledger.written(lambda: ledger.claim("w/0", "w/0/2"))
    assert ledger.written(lambda: ledger.claim("w/0", "w/0/3", linger_ms=100)) == 1
    ledger.claim("w/0", "w/0/4")
    assert not ledger.redis.exists("eq:q:m:lingering")
    ledger.submit(NewTask("bulk", owner="b", pieces=sized(100, number=5), lane="bulk"), NewTask("q"))
    for n in range(2):
        ledger.claim("w/0", f"w/0/a{n}", max_pieces=1)
    assert not ledger.written(lambda: [ledger.claim("w/0", f"w/0/look{n}", online_only=True) for n in range(5)])
    assert not ledger.written(lambda: ledger.submit(NewTask("r", pieces=sized(10**9), max_backlog_s=1)))


# ---- commands


def effort(ledger: Ledger, call: Callable[[], object]) -> int:
    return sum(commands(ledger.redis, call).values())


def query(number: int) -> NewTask:
    """What somebody waits for: it may be joined, ends with its caller's patience, and its vector needs room."""
    digest = f"{number:032x}"
    how = {"alias": digest, "digest": digest, "joins": True, "deadline_in_ms": 20_000, "answer_to": "p"}
    return NewTask(f"q{number}", vector_bytes=1536, **how)  # type: ignore[arg-type]


def test_a_lone_query_costs_few_commands(ledger: Ledger) -> None:
    def served(number: int) -> None:
        ledger.submit(query(number))
        claim = ledger.claim("w/0", f"w/0/{number}")
        assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms

    def together(first: int) -> None:
        for n in range(first, first + 64, 8):
            ledger.submit(*map(query, range(n, n + 8)))
        for n in range(2):
            ledger.finish(ledger.claim("w/0", f"w/0/{first}.{n}", budget=10**6, max_pieces=32))

    with Listener(ledger.redis, "eq:answers:p", "eq:q:m:wake:w/0"):
        ledger.claim("w/0", "w/0/first", linger_ms=1000)
        served(0)
        assert effort(ledger, lambda: served(1)) <= OF_LONE_QUERY
        assert effort(ledger, lambda: together(100)) <= 64 * OF_CROWD
    ledger.submit(*tasks("a", 20))
    claim = ledger.claim("w/0", "w/0/last")
    assert commands(ledger.redis, lambda: ledger.finish(claim))["hincrby"] == 1, "each total is written once"


def test_the_work_of_a_script_does_not_grow_with_the_backlog(ledger: Ledger) -> None:
    def one_round(name: str) -> list[int]:
        held = []
        return [
            effort(ledger, lambda: ledger.submit(NewTask(name, owner="o0", pieces=sized(10, number=3)))),
            effort(ledger, lambda: held.append(ledger.claim("w/0", f"w/0/{name}", max_pieces=2))),
            effort(ledger, lambda: ledger.finish(held[0])),
            effort(ledger, lambda: ledger.give_back("none")),
            effort(ledger, lambda: ledger.call("list", "o0", "", 20, 21, "")),
            effort(ledger, lambda: ledger.cancel(name)),
            effort(ledger, ledger.watch),
            effort(ledger, lambda: ledger.heartbeat("beat", "w")),
        ]

    def used() -> int:
        return int(ledger.redis.info("memory")["used_memory"])

    def more(prefix: str, number: int) -> None:
        pieces = [(1, 10, b"x" * 60)]
        ledger.submit(*[NewTask(f"{prefix}{n}", owner=f"o{n % 20}", pieces=pieces, listed=True) for n in range(number)])

    more("b", 500)
    ledger.heartbeat("join", "w")
    one_round("first")
    before, had = one_round("a"), used()
    for k in range(10):
        more(f"c{k}.", 100)
    assert (used() - had) / 1000 <= QUEUED_BYTES, "a queued text takes little memory"
    after = one_round("b")
    assert all(now <= was + 3 for was, now in zip(before, after, strict=True)), (before, after)


def test_the_end_of_a_task_that_nobody_began_does_not_grow_with_its_pieces(ledger: Ledger) -> None:
    def ended(number: int) -> int:
        ledger.submit(NewTask(f"t{number}", pieces=sized(1, number=number), meta='{"a": "b"}', deadline_in_ms=1000))
        ledger.advance(2000)
        return effort(ledger, ledger.watch)

    few, many = ended(10), ended(9000)
    assert many <= few
    assert set(ledger.redis.hkeys("eq:task:t9000")) == {b"s", b"m"}


def test_one_look_ends_few_tasks_of_many_pieces(ledger: Ledger) -> None:
    ledger.submit(*tasks("t", 20, pieces=sized(1, number=1000), deadline_in_ms=1000))
    ledger.drain(20, 1, max_pieces=1)
    ledger.advance(2000)
    looks = 0
    while ledger.watch().more:
        looks += 1
    assert looks >= 4
    assert not any(ledger.known(f"t{n:04d}").is_open for n in range(20))


def test_a_look_without_lists_reads_no_list(ledger: Ledger) -> None:
    ledger.submit(*[NewTask(f"l{n}", pieces=[(8, 800, b"x" * 10_000)]) for n in range(30)])
    ledger.redis.config_set("slowlog-log-slower-than", -1)
    read = []
    with ledger.redis.monitor() as monitor:
        assert not ledger.claim("w/0", "w/0/a", online_budget=100, no_lists=True).pieces
        ledger.redis.ping()
        for command in monitor.listen():
            if "PING" in command["command"]:
                break
            read.append(command["command"])
    assert not [command for command in read if " d0" in command.replace('"', "")]
