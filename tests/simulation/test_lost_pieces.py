"""Workers that die: whose fault it was, and that nobody else pays for it."""

from tests.simulation.thin_client import Finished, Ledger, NewTask, sized, tasks


def blamed(ledger: Ledger, task: NewTask, stream: str = "w/0") -> None:
    """A task whose first worker died of it."""
    ledger.submit(task)
    ledger.claim(stream, f"{stream}/blamed", max_pieces=1)
    ledger.give_back(f"{stream}/blamed", blame=True)


def test_a_poison_among_1024_rows_costs_seven_deaths_and_no_neighbour(ledger: Ledger) -> None:
    ledger.submit(NewTask("job", owner="a", pieces=sized(640, 64, 16), lane="bulk"))
    poison, deaths, lonely = 234, 0, 0
    for n in range(31):
        claim = ledger.claim("w/0", f"w/0/{n}", budget=10**6)
        assert claim.pieces
        lonely += any(piece.deaths for piece in claim.pieces)
        if any(piece.first <= poison < piece.first + piece.items for piece in claim.pieces):
            deaths += 1
            ledger.heartbeat("join", "w")  # the next incarnation
        else:
            ledger.finish(claim)
    task = ledger.known("job")
    assert (task["completed"], task["failed"], deaths, lonely) == (1023, 1, 7, 30)
    ((at, code, _),) = task.errors[poison]["errors"]
    assert (at, code) == (poison, "worker_lost")
    assert (task["deaths"], task["died"]) == (7, ledger.now)
    assert ledger.counts["lost_leases"] == 7
    assert (ledger.counts["items_bulk_failed"], ledger.counts["items_bulk_completed"]) == (1, 1023)


def test_parts_of_a_lost_piece_are_all_of_it(ledger: Ledger) -> None:
    ledger.submit(NewTask("job", pieces=[(3, 30, b"first"), (10, 103, b"second")], vector_bytes=4))
    for stream in range(2):  # each alone in its claim
        ledger.claim(f"w/{stream}", f"w/{stream}/1", max_pieces=1)
    for stream in range(2):
        ledger.give_back(f"w/{stream}/1", blame=True)
    found = [(p.name, p.first, p.items, p.cost, p.offset, p.deaths, p.payload) for p in ledger.drain()]
    assert sorted(found) == [
        ("0a", 0, 1, 10, 0, 1, b"first"),
        ("0b", 1, 1, 10, 1, 1, b"first"),
        ("0c", 2, 1, 10, 2, 1, b"first"),
        ("1a", 3, 3, 33, 0, 1, b"second"),
        ("1b", 6, 3, 30, 3, 1, b"second"),
        ("1c", 9, 3, 30, 6, 1, b"second"),
        ("1d", 12, 1, 10, 9, 1, b"second"),
    ]
    assert ledger.known("job").state == "completed"
    assert ledger.state.get("bytes", 0) == 0


def test_only_a_text_that_died_alone_three_times_fails(ledger: Ledger) -> None:
    ledger.submit(NewTask("q"))
    for n in range(4):
        assert ledger.known("q").is_open
        assert ledger.claim("w/0", f"w/0/{n}").pieces[0].deaths == n
        ledger.give_back(f"w/0/{n}", blame=True)
    task = ledger.known("q")
    assert (task.state, task["failed"], task["deaths"], task.payloads) == ("failed", 1, 4, {})
    assert ledger.counts == {"lost_leases": 4, "items_online_failed": 1, "ended_online_failed": 1}


def test_after_a_death_new_queries_do_not_wait_for_its_suspects(ledger: Ledger) -> None:
    for prefix in "qn":
        ledger.submit(*[NewTask(f"{prefix}{n}", owner=f"o{n % 4}", pieces=sized(10)) for n in range(32)])
        if prefix == "q":
            ledger.claim("w/0", "w/0/1", budget=10**6)
            ledger.heartbeat("join", "w")
    served = ledger.drain(200, 200)
    assert (sum(piece.deaths > 0 for piece in served), len(served)) == (32, 64)
    assert max(at for at, piece in enumerate(served) if piece.task[0] == "n") < 48


def test_a_commit_again_is_told_so_and_counts_once(ledger: Ledger) -> None:
    ledger.submit(NewTask("q"), NewTask("r"))
    claim = ledger.claim("w/0", "w/0/1")
    twice = [Finished(claim.pieces[0], b"v"), Finished(claim.pieces[0], b"v"), Finished(claim.pieces[1], b"", 1, b"{}")]
    assert ledger.commit("w/0/1", twice).codes == [1, 2, 1]
    assert ledger.commit("w/0/1", twice).codes == [2, 2, 2]
    assert ledger.commit("w/0/1", [Finished(claim.pieces[0], b"other")]).codes == [0]
    assert ledger.commit("w/0/1", [Finished(claim.pieces[1], b"", 1, b"[]")]).codes == [0]
    assert (ledger.known("q")["completed"], ledger.known("r")["failed"], ledger.known("r").outcomes) == (1, 1, {})
    assert ledger.counts == {"items_online_completed": 1, "items_online_failed": 1, "ended_online_failed": 1}
    ledger.cancel("q", forget=True)
    assert ledger.commit("w/0/1", twice).codes == [0, 0, 2]


def test_a_claim_again_gives_what_it_still_holds(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", trace="t", options="o"), NewTask("b"), NewTask("c", pieces=sized(10, 3, 2)))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=3)
    assert (len(claim.pieces), claim.pieces[0].trace, claim.pieces[0].options) == (3, b"t", b"o")
    assert ledger.claim("w/0", "w/0/1") == claim
    ledger.cancel("b")
    assert ledger.claim("w/0", "w/0/1").tasks == ["a", "c"]
    ledger.advance(60_000)
    assert ledger.claim("w/0", "w/0/1", rang=True).bell == 1
    assert ledger.submit(NewTask("d"))[1] == []  # that bell is believed
    ledger.drain()
    assert not ledger.claim("w/0", "w/0/1").more
    ledger.cancel("a", "c")
    assert not ledger.claim("w/0", "w/0/1").pieces
    assert ledger.redis.zcard("eq:q:m:leases") == ledger.redis.hlen("eq:q:m:claims") == 0


def test_a_standstill_of_redis_ends_no_lease(ledger: Ledger) -> None:
    ledger.submit(NewTask("q"))
    ledger.claim("w/0", "w/0/1")
    ledger.watch()
    ledger.advance(60_000)
    ledger.watch()
    assert ledger.redis.zscore("eq:q:m:leases", "w/0/1") == ledger.now + 10_000, "of the minute 5 s have counted"
    ledger.advance(4999)
    ledger.watch()
    ledger.advance(5000)
    assert ledger.watch().leases == 1
    ledger.advance(600_000)
    ledger.heartbeat("beat", "w", tokens=["w/0/1"])
    assert ledger.redis.zscore("eq:q:m:leases", "w/0/1") == ledger.now + 15_000, "as long as others"
    for _ in range(3):
        ledger.advance(4999)
        ledger.watch()
    ledger.advance(3)
    assert ledger.watch().leases == 0


def test_a_clock_that_went_back_keeps_no_lease_for_long(ledger: Ledger) -> None:
    ledger.watch()
    ledger.submit(NewTask("q"))
    ledger.claim("w/0", "w/0/1")
    ledger.advance(-3_600_000)
    assert [ledger.watch().leases for _ in range(2)] == [1, 1]
    for _ in range(12):
        ledger.watch()
        ledger.advance(3000)
    assert ledger.redis.zcard("eq:q:m:leases") == 0


def test_nothing_but_marked_work_waits_beside_a_marked_text(ledger: Ledger) -> None:
    blamed(ledger, NewTask("suspect", owner="s", pieces=sized(1)))
    ledger.submit(NewTask("q", owner="a", pieces=sized(199)), NewTask("r", owner="b", pieces=sized(201)))
    first = ledger.claim("w/0", "w/0/2", max_pieces=1)
    assert first.tasks == ["q"], "a marked text is charged a twentieth of a second at least"
    ledger.finish(first)
    marked = ledger.claim("w/0", "w/0/3", max_pieces=1)
    assert marked.tasks == ["suspect"]
    beside = ledger.claim("w/1", "w/1/1")
    assert (beside.pieces, beside.wait_ms, beside.more) == ([], 50, False)
    ledger.claim("w/1", "w/1/rang", rang=True)
    assert "bell" not in ledger.state  # it was heard
    assert ledger.claim("v/0", "v/0/1").pieces
    ledger.finish(marked)
    ledger.submit(NewTask("next"))
    assert ledger.claim("w/1", "w/1/2").pieces
    assert "lone:w" not in ledger.state


def test_a_process_whose_beats_were_late_runs_nothing_beside_a_lone_text(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    blamed(ledger, NewTask("suspect", pieces=sized(10)), "v/0")
    assert ledger.claim("w/0", "w/0/a", lease_ms=60_000).pieces[0].deaths == 1
    ledger.submit(NewTask("innocent", pieces=sized(10)))
    ledger.advance(20_000)  # the worker counts as gone by now
    ledger.watch()
    claim = ledger.claim("w/1", "w/1/a")
    assert not claim.pieces
    assert claim.wait_ms


def test_nothing_runs_beside_a_marked_text_in_its_process(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 2, pieces=sized(10)))
    for n in range(2):
        ledger.claim(f"w/{n}", f"w/{n}/1", max_pieces=1)
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("x", pieces=sized(1)))
    first = ledger.claim("w/0", "w/0/2", max_pieces=1)  # marked ones are charged a whole claim
    other = ledger.claim("w/1", "w/1/2")
    assert (first.tasks, other.pieces, other.wait_ms) == (["x"], [], 50)
    ledger.finish(first)
    marked = ledger.claim("w/1", "w/1/3")
    assert [piece.deaths for piece in marked.pieces] == [1]
    beside = ledger.claim("w/0", "w/0/3")
    assert (beside.pieces, beside.wait_ms) == ([], 50)
    assert ledger.claim("v/0", "v/0/1").pieces[0].deaths == 1  # another process takes the other one
    ledger.finish(marked)
    ledger.submit(NewTask("y"))
    assert ledger.claim("w/0", "w/0/4").tasks == ["y"]
