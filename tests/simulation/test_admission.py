"""Who is let in, who is refused, and when he is told to come back."""

from typing import Any

from tests.simulation.thin_client import MODEL, RATE, STAMP, Ledger, NewTask, sized

Told = list[bytes | float]


def told(reply: list[Any]) -> Told:
    """Of a refusal: its kind and its numbers."""
    return [reply[0], *(round(float(number), 3) for number in reply[1:])]


def measured(ledger: Ledger, limit: int, used: int) -> None:
    """So much of the memory is full."""
    ledger.set_sums(f"q:{MODEL}:state", **ledger.state | {"rate": RATE, "serves": STAMP, "limit": limit, "used": used})


def test_who_is_refused_by_the_backlog_is_let_in_at_the_told_second(ledger: Ledger) -> None:
    ledger.set_sums(f"q:{MODEL}:state", rate=1000, serves=STAMP)
    number = refused = 0

    def bring(owner: str) -> list[Any]:
        return ledger.bring(NewTask(f"{owner}{number}", owner=owner, pieces=sized(100), max_backlog_s=5))

    for owner in "ab":
        while bring(owner)[0] == b"ok":
            number += 1
    assert 70 <= number <= 80  # a had the lane for itself and took 50; b gets its own half of 50
    for _ in range(30):
        number += 1
        reply = bring("a")
        if reply[0] == b"full":
            refused += 1
            ledger.drain(1, max(100, int(float(reply[1]) * 1000)))  # so much work is done meanwhile
            assert bring("a")[0] == b"ok"
    assert refused > 9


def test_a_lane_that_is_twice_full_takes_no_large_task_and_tells_when_there_is_room(ledger: Ledger) -> None:
    how: dict[str, Any] = {"max_backlog_s": 5}
    for owner in "ab":
        ledger.submit(NewTask(owner, owner=owner, pieces=sized(12 * RATE), **how))
    assert ledger.bring(NewTask("a2", owner="a", pieces=sized(RATE + 1), **how))[0] == b"full"
    assert ledger.bring(NewTask("a3", owner="a", pieces=sized(RATE), **how))[0] == b"ok"
    ledger.cancel("a", "b", "a3")
    ledger.submit(
        NewTask("b2", owner="b", pieces=sized(14 * RATE)),
        NewTask("a4", owner="a", pieces=sized(5 * RATE // 2)),
    )
    # Twice the owner's work and this, less the limit: 1 s of work, of which this task is three fifths.
    refused = NewTask("a5", owner="a", pieces=sized(3 * RATE // 2), max_backlog_s=7)
    assert told(ledger.bring(refused)) == [b"full", 1.667, 4.5]


def test_the_told_time_is_that_of_the_work_before_a_task(ledger: Ledger) -> None:
    ledger.set_sums(f"q:{MODEL}:state", serves=STAMP)  # no worker has told its speed
    ledger.submit(NewTask("a1", owner="a", pieces=sized(1000)), NewTask("a2", owner="a", pieces=sized(1000)))
    refused = NewTask("a3", owner="a", pieces=sized(500), max_backlog_s=0.1)
    for name, seconds in (("b1", [0.75, 0.5]), ("b2", [1.0, 0.625])):
        ledger.submit(NewTask(name, owner="b", pieces=sized(1000 if name == "b1" else 2000)))
        assert told(ledger.bring(refused)) == [b"full", *seconds]


def test_work_that_nobody_waits_for_keeps_nobody_out(ledger: Ledger) -> None:
    ledger.submit(NewTask("gone", pieces=sized(4 * RATE), deadline_in_ms=30_000, answer_to="p"))
    refused = NewTask("next", pieces=sized(2 * RATE), max_backlog_s=3)
    assert told(ledger.bring(refused)) == [b"full", 2.0, 2.0]
    ledger.want("gone", 10_000, gone=True)
    assert ledger.bring(refused)[0] == b"ok"


def test_an_owner_with_nothing_may_fill_the_bytes_and_one_above_his_share_is_told_the_time(ledger: Ledger) -> None:
    def bring(owner: str, name: str, size: int) -> list[Any]:
        lane = "bulk" if name == "1" else "online"
        task = NewTask(f"{owner}{name}", owner=owner, pieces=[(1, 3 * RATE, b"x" * size)], lane=lane)
        return ledger.bring(task, max_bytes=10_000, share=1)

    assert bring("c", "1", 20_000)[0] == b"ok", "where nothing waits any one task may"
    ledger.cancel("c1", forget=True)
    assert bring("b", "1", 1000)[0] == b"ok"
    assert bring("a", "1", 8500)[0] == b"ok"
    ledger.cancel("a1", forget=True)
    assert bring("a", "2", 4000)[0] == bring("b", "2", 1000)[0] == b"ok"
    # With 5,024 he would have 3,024 more than is left free, and half of it must go: of 6,000 that 9 s of work have.
    assert told(bring("a", "3", 1000)) == [b"full", 2.268, 9.0]


def test_bytes_that_are_full_without_shares_have_a_time(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", pieces=[(1, 4 * RATE, b"x" * 900)]), max_bytes=1000)
    refused = NewTask("b", pieces=[(1, 10, b"x" * 550)])
    assert told(ledger.bring(refused, max_bytes=1000)) == [b"full", 2.0, 4.0]  # half of what waits must go


def test_memory_that_is_full_is_told_with_the_next_end_of_results(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", ttl_ms=30_000, vector_bytes=100_000))
    ledger.finish(ledger.claim("w/0", "w/0/1"), b"v" * 100_000)
    measured(ledger, 1_000_000, 780_000)
    assert told(ledger.bring(NewTask("b", vector_bytes=50_000))) == [b"memory", 30.0]
    assert told(ledger.bring(NewTask("b", vector_bytes=500_000))) == [b"memory", 1e6]  # no time is known
    measured(ledger, 1_000_000, 400_000)
    assert ledger.bring(NewTask("b", vector_bytes=50_000))[0] == b"ok"


def test_a_share_of_the_memory_is_free_when_results_of_its_owner_have_ended(ledger: Ledger) -> None:
    for name, owner, ttl_ms in (("b", "b", 10_000), ("a1", "a", 20_000), ("a2", "a", 30_000), ("a3", "a", 40_000)):
        ledger.submit(NewTask(name, owner=owner, ttl_ms=ttl_ms))
        ledger.finish(ledger.claim("w/0", f"w/0/{name}"), b"v" * 100)
    ledger.submit(NewTask("open", owner="a", deadline_in_ms=5000))
    measured(ledger, 100_000, 74_000)
    assert told(ledger.bring(NewTask("a4", owner="a"), share=0.5)) == [b"share", 30.0]


def test_vectors_and_payloads_need_room(ledger: Ledger) -> None:
    measured(ledger, 1_000_000, 0)
    assert ledger.bring(NewTask("a", vector_bytes=700_000))[0] == b"ok"
    assert ledger.bring(NewTask("b", vector_bytes=200_000))[0] == b"memory"
    ledger.finish(ledger.claim("w/0", "w/0/1"))
    assert ledger.bring(NewTask("b", vector_bytes=200_000))[0] == b"ok"
    ledger.finish(ledger.claim("w/0", "w/0/2"))
    measured(ledger, 1_000_000, 600_000)
    large = [ledger.bring(NewTask(name, pieces=[(1, 10, b"x" * 90_000)]))[0] for name in "cde"]
    assert large == [b"ok", b"ok", b"memory"], "they add up between two looks"
    assert ledger.state["used"] == 600_000 + 2 * (1024 + 90_000)


def test_an_owner_who_fills_the_memory_shuts_nobody_out(ledger: Ledger) -> None:
    measured(ledger, 1_000_000, 0)
    number = 0
    while ledger.bring(NewTask(f"a{number}", owner="a", vector_bytes=10_000), share=4)[0] == b"ok":
        number += 1
    assert ledger.bring(NewTask("a", owner="a", vector_bytes=10_000), share=4)[0] == b"share"
    assert ledger.bring(NewTask("b", owner="b", vector_bytes=10_000), share=4)[0] == b"ok"


def test_tokens_of_a_minute(ledger: Ledger) -> None:
    def bring(name: str, cost: int = 40, **how: Any) -> list[Any]:
        return ledger.bring(NewTask(name, pieces=sized(cost), tokens_per_minute=100, **how))

    ledger.submit(NewTask("before", pieces=sized(10 * RATE)))
    assert bring("refused", max_backlog_s=0.001)[0] == b"full", "which takes none"
    both = [NewTask(f"t{n}", pieces=sized(40), tokens_per_minute=100) for n in range(2)]
    assert ledger.submit(*both)[0] == [[b"ok", b"t0", [100, 60, b"24"]], [b"ok", b"t1", [100, 20, b"48"]]]
    last = bring("t2")
    assert last[:4] == [b"key", b"tokens_per_minute", 100, 40]
    ledger.advance(int(float(last[4]) * 1000) + 1)
    assert bring("t9")[0] == b"ok"
    assert bring("t10", 101)[4] == b"-1"  # never
    ledger.advance(-600_000)
    assert float(bring("t11")[4]) <= 60  # a clock that went back locks nobody out
    costs = (120_000, 1)  # of which the second takes half a millisecond
    replies = [ledger.bring(NewTask(f"{n}", owner="p", pieces=sized(n), tokens_per_minute=120_000)) for n in costs]
    assert [reply[0] for reply in replies] == [b"ok", b"key"], "a bucket that is empty lets in nothing however small"


def test_queued_tokens_and_open_jobs(ledger: Ledger) -> None:
    def queued(name: str, cost: int) -> list[Any]:
        return ledger.bring(NewTask(name, owner="p", pieces=sized(cost), queued_tokens=60))

    both = NewTask("both", pieces=sized(10), tokens_per_minute=100, queued_tokens=95)
    assert ledger.bring(both)[2] == [95, 85, b"0.0025"], "what is tighter is told"
    ledger.cancel("both")
    assert queued("q", 40) == [b"ok", b"q", [60, 20, b"0.01"]]
    kind, limit, most, has, wait_s = queued("q2", 40)
    assert (kind, limit, most, has, float(wait_s)) == (b"key", b"queued_tokens", 60, 40, 20 / RATE)
    assert float(queued("q3", 60)[4]) == 40 / RATE
    assert queued("q3", 61)[4] == b"-1"
    ledger.drain(1, 100)
    assert queued("q4", 60)[0] == b"ok"

    def job(name: str, *, listed: bool = True, lane: str = "online") -> list[Any]:
        task = NewTask(name, owner="z", listed=listed, open_jobs=1, pieces=sized(RATE), lane=lane)
        return ledger.bring(task)

    assert job("j")[0] == b"ok"
    assert job("j2") == [b"key", b"open_jobs", 1, 1, b"2"], "two owners take turns"
    assert job("j2", lane="bulk") == [b"key", b"open_jobs", 1, 1, b"60"], "nothing of this lane tells a time"
    assert job("j3", listed=False)[0] == b"ok"
    ledger.cancel("j")
    assert job("j4")[0] == b"ok"


def test_requests_of_a_second(ledger: Ledger) -> None:
    assert [ledger.call("request_rate", "o", 2) for _ in range(3)] == [[0, 1, 500], [0, 0, 1000], [500, 0, 1000]]
    ledger.advance(500)
    assert ledger.call("request_rate", "o", 2) == [0, 0, 1000]
    assert ledger.call("request_rate", "p", 0.5) == [0, 0, 2000]
