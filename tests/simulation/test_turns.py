"""Whose work is next: owners and their tasks, lanes, and callers that have gone."""

from collections import Counter

from tests.integration.ledger.listener import Listener
from tests.simulation.thin_client import RATE, Claim, Finished, Ledger, NewTask, Piece, sized, tasks


def names(served: list[Piece]) -> list[str]:
    return [piece.task for piece in served]


def lanes(ledger: Ledger, number: int) -> list[str]:
    """Of so many claims, one behind the other."""
    found = []
    for n in range(number):
        claim = ledger.claim("w/0", f"w/0/{ledger.now}.{n}.{len(ledger.counts)}", budget=100)
        found.append(claim.lane)
        ledger.finish(claim)
    ledger.advance(1)
    return found


def test_owners_share_a_lane_by_cost_whatever_the_number_of_their_tasks(ledger: Ledger) -> None:
    ledger.submit(*[NewTask(name, owner="b", pieces=sized(160, number=50)) for name in ("b0", "b1")])
    ledger.submit(*tasks("a", 600, owner="a", pieces=sized(10)))
    served = Counter[str]()
    for piece in ledger.drain(20, 400):
        served[piece.owner] += piece.cost
    assert 0.35 <= served["a"] / served.total() <= 0.65, served


def test_debt_is_paid_where_it_was_made_and_once(ledger: Ledger) -> None:
    jobs = Ledger(ledger.redis, queue="@documents", folder=ledger.folder)
    for lane in ("a", "b"):
        jobs.submit(*[NewTask(f"{o}{lane}", owner=o, queue="@documents", lane="bulk", pieces=sized(1)) for o in "ab"])
        if lane == "a":
            jobs.finish(jobs.claim("d/0", "d/0/a"), spent=300)
            assert [jobs.account(owner).get("debt:@documents", 0) for owner in "ab"] == [300, 0]
    ledger.submit(NewTask("slow", owner="a", pieces=sized(1)))
    assert jobs.claim("d/0", "d/0/b", max_pieces=1).tasks == ["bb"]
    ledger.finish(ledger.claim("w/0", "w/0/1"), spent=100)  # it is remembered while he has nothing
    ledger.submit(NewTask("a", owner="a", pieces=sized(1)), NewTask("b", owner="b", pieces=sized(50)))
    assert names(ledger.drain(2, 1)) == ["b", "a"]
    assert f"debt:{ledger.queue}" not in ledger.account("a"), "once"


def test_bulk_work_gets_an_eighth_beside_online_work(ledger: Ledger) -> None:
    bulk = NewTask("bulk", owner="b", pieces=sized(100, number=60), lane="bulk")
    ledger.submit(*tasks("q", 50, owner="a", pieces=sized(10)))
    assert lanes(ledger, 5) == ["online"] * 5
    ledger.submit(bulk)
    assert lanes(ledger, 10) == ["bulk"] * 10, "alone it saves up no share and owes none"
    ledger.submit(*tasks("r", 400, owner="a", pieces=sized(10)))
    assert lanes(ledger, 17) == [*["online"] * 7, "bulk"] * 2 + ["online"]
    ledger.cancel("bulk")
    ledger.submit(NewTask("large", owner="b", pieces=sized(200, number=9), lane="bulk"))
    assert lanes(ledger, 20).count("bulk") == 1, "what it takes beyond its share it owes"
    ledger.cancel("large")
    ledger.drain()
    ledger.submit(*tasks("s", 100, owner="a", pieces=sized(10)))
    assert lanes(ledger, 9) == ["online"] * 9
    ledger.submit(NewTask("bulk2", owner="b", pieces=sized(100), lane="bulk"))
    assert lanes(ledger, 1) == ["online"], "online work alone gives bulk work no credit"


def test_the_share_that_bulk_work_saves_up_is_bounded(ledger: Ledger) -> None:
    ledger.submit(NewTask("b", lane="bulk"), *tasks("q", 40, pieces=sized(100)))
    for n in range(30):
        assert ledger.claim(f"w{n}/0", f"w{n}/0/1", online_budget=100, max_pieces=1, online_only=True).lane == "online"
    assert ledger.state["credit"] == 2 * 7 * 100


def test_a_lane_of_nothing_but_overdue_tasks_leaves_the_claim_to_the_other(ledger: Ledger) -> None:
    for lane, other in (("online", "bulk"), ("bulk", "online")):
        ledger.submit(NewTask(f"late {lane}", lane=lane, deadline_in_ms=10), NewTask(f"good {other}", lane=other))
        ledger.advance(10)
        claim = ledger.claim("w/0", f"w/0/{lane}")
        assert (claim.tasks, claim.lane) == ([f"good {other}"], other)
        assert ledger.claim("w/0", f"w/0/{lane}2").pieces == []


def test_work_left_in_either_lane_is_told(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 2), NewTask("b", lane="bulk"))
    assert [ledger.claim("w/0", f"w/0/{n}", max_pieces=1).more for n in range(3)] == [True, True, False]


def test_who_cannot_be_answered_in_time_goes_behind(ledger: Ledger) -> None:
    for deadline_ms, patient_ms in ((20_000, 9500), (11_000, 750), (10_400, 300)):
        old, new = f"old{deadline_ms}", f"new{deadline_ms}"
        ledger.submit(NewTask(old, deadline_in_ms=deadline_ms), NewTask(new, deadline_in_ms=60_000))
        ledger.advance(patient_ms - 1)
        assert ledger.claim("w/0", f"w/0/{old}1", max_pieces=1).tasks == [old]
        ledger.give_back(f"w/0/{old}1")
        ledger.advance(1)
        first, second = (ledger.claim("w/0", f"w/0/{old}{n}", max_pieces=1) for n in (2, 3))
        assert (first.tasks, second.tasks) == ([new], [old])
        assert (first.more, second.more) == (True, False)


def test_a_claim_puts_so_many_aside_and_no_more(ledger: Ledger) -> None:
    ledger.submit(*tasks("old", 40, pieces=sized(10), deadline_in_ms=20_000))
    ledger.advance(9900)
    ledger.submit(NewTask("new", pieces=sized(10), deadline_in_ms=20_000))
    assert [ledger.claim("w/0", f"w/0/{n}", max_pieces=1).tasks for n in range(2)] == [["old0032"], ["new"]]
    assert len(ledger.drain()) == 39


def test_a_claim_stays_within_its_budget_and_its_number_of_pieces(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 20, pieces=sized(30)), *tasks("b", 20, lane="bulk", pieces=sized(30)))
    assert len(ledger.claim("w/0", "w/0/1", budget=300, online_budget=90).pieces) == 3
    assert len(ledger.claim("w/0", "w/0/2", budget=1000, max_pieces=5).pieces) == 5
    ledger.submit(NewTask("huge", owner="h", pieces=sized(5000)))
    claims = [ledger.claim("w/0", f"w/0/{n}", budget=100) for n in range(3, 9)]
    huge = next(claim for claim in claims if "huge" in claim.tasks)
    assert len(huge.pieces) == 1  # larger than any budget, so it has a claim for itself
    ledger.drain(online_only=True)
    assert len(ledger.claim("w/0", "w/0/9", budget=300, online_budget=90).pieces) == 10


def test_a_claim_ends_with_the_payload_that_fills_it(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 4, pieces=[(1, 1, b"x" * 2**23)]))
    assert len(ledger.claim("w/0", "w/0/1").pieces) == 2


def test_a_slow_stream_takes_its_part_of_what_waits(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 40, pieces=sized(10)))
    assert ledger.claim("w/0", "w/0/1", rate=1000).cost == 100  # a quarter of the speed, so a quarter of the work
    ledger.submit(*tasks("b", 40, lane="bulk", pieces=sized(10)))
    ledger.drain(online_only=True)
    assert ledger.claim("w/0", "w/0/2", rate=1000).cost == 50  # of bulk work half of that
    assert ledger.claim("w/0", "w/0/3", rate=RATE).cost == 350  # one that is all of the speed takes all


def test_an_owner_that_comes_late_is_neither_repaid_nor_made_to_wait(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", owner="a", pieces=sized(10, number=50)))
    ledger.drain(20, 10)
    ledger.submit(NewTask("b", owner="b", pieces=sized(10, number=50)))
    served = [piece.owner for piece in ledger.drain(20, 10)]
    assert 9 <= served.count("b") <= 11
    assert "b" in served[:2]


def test_a_piece_that_did_not_fit_keeps_its_turn(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", owner="a", pieces=sized(10)))
    ledger.submit(NewTask("large", owner="b", pieces=sized(90)))
    claim = ledger.claim("w/0", "w/0/0", budget=80)
    assert (claim.tasks, claim.more) == (["a"], True)
    ledger.give_back("w/0/0")
    ledger.submit(*tasks("c", 20, owner="c", pieces=sized(60)))
    assert ledger.claim("w/0", "w/0/1", budget=80).tasks == ["a", "c0000"]
    assert ledger.claim("w/0", "w/0/2", budget=80).tasks == ["large"]


def test_more_payloads_than_a_script_may_unpack_are_removed_where_a_result_stays(ledger: Ledger) -> None:
    ledger.submit(NewTask("large", pieces=sized(1, number=9000), lane="bulk"))
    ledger.finish(ledger.claim("w/0", "w/0/1", budget=1, max_pieces=1))
    claim = ledger.claim("w/0", "w/0/2", budget=1, max_pieces=1)
    ledger.commit(claim.token, [Finished(claim.pieces[0], b"", 1, b"{}")])
    ledger.cancel("large")
    large = ledger.known("large")
    assert (large.state, large.pieces, large.payloads, len(large.outcomes)) == ("cancelled", {}, {}, 1)


def test_a_look_without_lists_takes_lone_texts_whatever_they_cost_and_lists_below_the_size(ledger: Ledger) -> None:
    ledger.submit(NewTask("list", pieces=[(2, 100, b"x")]), NewTask("small", pieces=[(2, 99, b"x")]))
    ledger.submit(NewTask("long", pieces=[(1, 500, b"x")]))
    taken = [ledger.claim("w/0", f"w/0/{n}", online_budget=100, max_pieces=1, no_lists=True).tasks for n in range(3)]
    assert sorted(taken) == [[], ["long"], ["small"]]


# ---- an owner whose work is passed over


def test_an_owner_that_is_passed_over_keeps_its_turns(ledger: Ledger) -> None:
    for lane in ("online", "bulk"):
        ledger.submit(*tasks(f"a_{lane}", 3, owner="a", lane=lane), NewTask(f"b_{lane}", owner="b", lane=lane))
    ledger.submit(NewTask("late", owner="a", deadline_in_ms=1))
    ledger.advance(1)
    claim = ledger.claim("w/0", "w/0/1", passes="a", rang=True)
    assert (claim.tasks, claim.bell, claim.more) == (["b_online"], 1, True), "what is passed over is told"
    ledger.finish(claim)
    assert names(ledger.drain(9, 10, passes="a")) == ["b_bulk"]
    assert ledger.known("late").state == "expired"
    for linger_ms, online_only in ((0, False), (1000, True)):  # who is about to sleep lingers not
        spare = ledger.claim("w/0", "w/0/2", passes="a", linger_ms=linger_ms, online_only=online_only)
        assert spare == Claim("w/0/2", bell=spare.bell, pieces=[])
    assert not ledger.redis.exists("eq:q:m:lingering")
    assert sorted(names(ledger.drain(9, 10))) == [f"a_{lane}{n:04d}" for lane in ("bulk", "online") for n in range(3)]


def test_who_has_work_of_nobody_else_lingers_and_wakes_nobody(ledger: Ledger) -> None:
    with Listener(ledger.redis, "eq:q:m:wake:w/1", "eq:q:m:wake:v/0") as wakes:
        ledger.submit(*tasks("a", 2, owner="a"))
        ledger.claim("w/0", "w/0/1", max_pieces=1, rang=True)
        ledger.redis.zadd("eq:q:m:lingering", {"v/0": ledger.now + 750})
        spare = ledger.claim("w/1", "w/1/1", linger_ms=1000, rang=True, passes="a")
        assert (spare.pieces, spare.wait_ms, spare.more) == ([], 1000, False)
        assert spare.bell == 1, "a process that sleeps may take it"
        assert wakes.messages() == []
        assert ledger.claim("w/1", "w/1/2", linger_ms=1000, passes="a").bell == 0, "one is out"
        ledger.submit(NewTask("b", owner="b"))
        assert wakes.messages() == [b"work"]
        assert names(ledger.drain(9, 10, stream="w/1", passes="a")) == ["b"]


def test_a_claim_passes_over_so_many_and_no_more(ledger: Ledger) -> None:
    ledger.submit(*tasks("a", 65, owner="a"))
    ledger.redis.zadd("eq:q:m:online", {f"a{n:04d}": -1 for n in range(65)})
    ledger.submit(NewTask("b", owner="b"))
    assert ledger.claim("w/0", "w/0/1", linger_ms=1000, passes="a").wait_ms == 1000
    ledger.cancel("a0000", "a0001")
    assert ledger.claim("w/0", "w/0/2", passes="a").tasks == ["b"]


def test_a_marked_piece_of_an_owner_that_is_passed_over_holds_up_nobody(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", owner="a"))
    ledger.claim("w/0", "w/0/1")
    ledger.give_back("w/0/1", blame=True)
    ledger.submit(NewTask("a2", owner="a"), NewTask("b", owner="b"))
    ledger.redis.zadd("eq:q:m:online", {"a2": -1})
    assert ledger.claim("w/0", "w/0/2", max_pieces=1).tasks == ["a2"]
    assert ledger.claim("w/1", "w/1/1", passes="a").tasks == ["b"]
