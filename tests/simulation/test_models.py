"""Workers that join, live, load and stop; models that change; figures of queues."""

from typing import Any

from redis.exceptions import ResponseError

from tests.simulation.thin_client import MODEL, Finished, Ledger, NewTask, sized


def figures(ledger: Ledger, *names: str) -> dict[str, list[Any]]:
    """Rows of OVERVIEW by queue."""
    _, *rows = ledger.call("overview", *names)
    return {name.decode(): row for name, *row in rows}


def workers(ledger: Ledger, *names: str) -> list[Any]:
    """Those that serve, those that load, and since when nobody serves."""
    return figures(ledger, *names)[MODEL][5:8]


def linger(ledger: Ledger, *streams: str) -> None:
    ledger.redis.zadd("eq:q:m:lingering", dict.fromkeys(streams, ledger.now + 5000))


def lingering(ledger: Ledger) -> list[bytes]:
    found: list[bytes] = ledger.redis.zrange("eq:q:m:lingering", 0, -1)
    return found


def test_a_worker_lives_until_it_is_silent(ledger: Ledger) -> None:
    ledger.redis.flushall()
    assert ledger.heartbeat("join", "w", entry='{"id":"w"}', model='{"id":"m"}', rate=100).accepted
    ledger.heartbeat("join", "v", entry='{"id":"v"}', rate=50)
    ledger.advance(8000)
    ledger.heartbeat("beat", "v", entry='{"id":"v"}', rate=60, counts={"items_online_completed": 2})
    assert ledger.state["rate"] == 160
    assert workers(ledger) == [[b'{"id":"w"}', b'{"id":"v"}'], [], 0]
    ledger.advance(1000)
    ledger.watch()
    assert ledger.state["rate"] == 60
    linger(ledger, "v/0")
    ledger.set_sums("q:m:state", **ledger.state | {"lone:v": "v/0/1"})
    ledger.advance(9000)
    assert workers(ledger) == [[], [], ledger.now - 1000]
    ledger.watch()
    assert ledger.state["rate"] == 60  # the last known one
    assert workers(ledger) == [[], [], ledger.now - 1000]
    assert not ledger.redis.exists("eq:q:m:workers", "eq:q:m:entries", "eq:q:m:lingering")
    assert "lone:v" not in ledger.state
    ledger.heartbeat("beat", "v", model="", rate=60)
    assert ledger.redis.hgetall("eq:models") == {b"m": b"{}"}
    ledger.advance(20_000)
    ledger.watch()
    assert workers(ledger)[2] == ledger.now - 11_000
    assert ledger.counts == {"model_loads": 2, "items_online_completed": 2}


def test_a_worker_that_died_lives_no_longer_because_the_clock_went_back(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w", rate=100)
    ledger.heartbeat("join", "v", rate=50)
    ledger.heartbeat("loading", "u", entry="{}")
    ledger.advance(-3_600_000)
    ledger.watch()
    for _ in range(10):  # v and u have died
        ledger.heartbeat("beat", "w", rate=100)
        ledger.advance(3000)
    ledger.watch()
    assert workers(ledger)[:2] == [[b"{}"], []]
    assert ledger.state["rate"] == 100
    ledger.advance(9000)
    assert ledger.heartbeat("join", "x", stamp="another").accepted


def test_figures_of_a_redis_that_takes_no_writes_are_refused(ledger: Ledger) -> None:
    ledger.redis.config_set("min-replicas-to-write", 1)
    refused = ""
    try:
        figures(ledger)
    except ResponseError as error:  # a mutant does not raise it
        refused = str(error)
    finally:
        ledger.redis.config_set("min-replicas-to-write", 0)
    assert "NOREPLICAS" in refused


def test_a_worker_that_loads_is_shown_and_does_not_serve(ledger: Ledger) -> None:
    assert ledger.heartbeat("loading", "w", entry='{"step":1}').accepted
    assert workers(ledger, MODEL)[:2] == [[], [b'{"step":1}']]
    ledger.advance(9000)
    assert workers(ledger, MODEL)[1] == []
    ledger.watch()
    assert not ledger.redis.exists("eq:q:m:loading")
    ledger.heartbeat("loading", "w", entry="{}")
    for _ in range(2):  # two looks at one moment are no clock that went back
        ledger.watch()
    assert workers(ledger, MODEL)[1] == [b"{}"]
    ledger.heartbeat("stop", "w")
    assert workers(ledger, MODEL)[1] == []
    ledger.heartbeat("loading", "w", entry="{}")
    ledger.heartbeat("join", "w", entry="{}")
    assert workers(ledger)[:2] == [[b"{}"], []]


def test_what_a_worker_held_that_died_comes_back_as_soon_as_its_successor_loads(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("q"))
    ledger.claim("w/0", "w/0/1")
    linger(ledger, "w/1", "v/1")
    ledger.heartbeat("loading", "w", entry='{"id":"w"}')
    assert workers(ledger) == [[], [b'{"id":"w"}'], ledger.now]
    assert ledger.known("q")["deaths"] == 1
    assert lingering(ledger) == [b"v/1"]
    assert ledger.claim("v/0", "v/0/1").pieces[0].deaths == 1
    for what in ("join", "stop"):
        linger(ledger, "w/0", "w/1", "x/1")
        ledger.heartbeat(what, "w")
        assert lingering(ledger) == [b"v/1", b"x/1"], "who joins or stops lingers no more"


def test_a_task_without_a_vector_is_any_models(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("a", pieces=sized(10, number=2)))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1)
    ledger.commit("w/0/1", [Finished(claim.pieces[0], b"", 1, b"{}")])
    ledger.heartbeat("stop", "w")
    ledger.heartbeat("join", "v", stamp="g")
    ledger.drain(stream="v/0", stamp="g")
    assert (ledger.known("a")["completed"], ledger.known("a")["failed"]) == (1, 1)


def test_a_bell_of_before_is_not_believed_when_a_worker_joins(ledger: Ledger) -> None:
    for _ in range(6):
        ledger.submit(NewTask(f"q{ledger.now}"))
        ledger.advance(40_000)
    ledger.submit(NewTask("q"))
    assert ledger.heartbeat("join", "w").bell == 1


def test_who_comes_or_goes_wakes_for_what_waits_between_two_looks_of_housekeeping(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("a"))
    ledger.claim("w/0", "w/0/1")
    ledger.submit(NewTask("b"))
    ledger.advance(2000)
    assert ledger.watch().bell == 0, "who holds a lease asks for more by itself"
    assert ledger.heartbeat("join", "v").bell == 1
    assert ledger.claim("v/0", "v/0/1", rang=True).tasks == ["b"]
    ledger.advance(4000)
    assert ledger.watch().bell == 0, "nothing waits"
    assert ledger.heartbeat("stop", "v").bell == 1


def test_housekeeping_runs_with_beats_once_a_second(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("a", deadline_in_ms=500))
    ledger.advance(999)
    assert ledger.heartbeat("beat", "w").ended == 0
    ledger.advance(1)
    assert ledger.heartbeat("beat", "w").ended == 1
    ledger.submit(NewTask("b", deadline_in_ms=500))
    ledger.advance(500)
    assert ledger.watch().ended == 1


def test_another_model_comes_when_nobody_serves_the_one_before(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("half", pieces=sized(10, number=3)))
    good, bad = ledger.claim("w/0", "w/0/1", max_pieces=2).pieces
    ledger.commit("w/0/1", [Finished(good, b"v"), Finished(bad, b"", 1, b'{"errors":[],"truncated":[]}')])
    ledger.submit(NewTask("new", owner="p", pieces=sized(1)))
    assert not ledger.heartbeat("join", "v", stamp="g").accepted
    late = ledger.claim("w/0", "w/0/late", max_pieces=1)
    assert late.tasks == ["new"]
    ledger.heartbeat("beat", "w", ttl_ms=0)
    assert not ledger.heartbeat("beat", "v", stamp="g").accepted
    assert ledger.heartbeat("join", "v", stamp="g").accepted
    assert ledger.claim("w/0", "w/0/2").changed
    assert ledger.finish(late).codes == [0]
    assert not ledger.heartbeat("beat", "w").accepted
    assert [piece.task for piece in ledger.drain(stream="v/0", stamp="g")] == ["new"]
    half = ledger.known("half")
    assert (half.state, half["completed"], half["failed"], list(half.errors)) == ("completed", 1, 2, [1])
    assert (half.pieces, half.payloads) == ({}, {})
    assert ledger.known("new")["deaths"] == 0
    assert (ledger.counts["ended_online_model_changed"], ledger.counts["items_online_failed"]) == (1, 2)
    linger(ledger, "x/1")
    assert ledger.heartbeat("join", "v", stamp="h", model='{"id":"h"}').accepted, "the same worker may come with it"
    assert ledger.redis.hgetall("eq:models") == {b"m": b'{"id":"h"}'}
    assert lingering(ledger) == []


def test_an_emptied_redis_learns_the_model_from_the_first_claim_or_beat(ledger: Ledger) -> None:
    ledger.redis.flushall()
    assert not ledger.claim("w/0", "w/0/1", stamp="g").changed
    assert ledger.claim("v/0", "v/0/1", stamp="f").changed
    ledger.redis.flushall()
    assert ledger.heartbeat("beat", "w", model='{"id":"m"}').accepted
    assert ledger.redis.hgetall("eq:models") == {b"m": b'{"id":"m"}'}
    assert not ledger.heartbeat("join", "v", stamp="g").accepted


def test_a_model_that_nobody_served_for_a_week_is_unknown_again(ledger: Ledger) -> None:
    ledger.watch()
    assert "absent" not in ledger.state, "a queue that nobody ever served misses nobody"
    ledger.redis.hset("eq:models", "m", "{}")  # known from before
    ledger.watch()
    assert ledger.state["absent"] == ledger.now
    ledger.heartbeat("join", "w")
    ledger.submit(NewTask("a"))
    for days in (3, 5):
        ledger.advance(days * 86_400_000)
        ledger.watch()
    assert ledger.redis.hexists("eq:models", "m")  # work waits for it
    ledger.submit(NewTask("b", lane="bulk"))
    ledger.watch()
    ledger.cancel("a")
    ledger.watch()
    assert ledger.redis.hexists("eq:models", "m")
    ledger.cancel("b")
    ledger.watch()
    assert not ledger.redis.exists("eq:models", "eq:q:m:state", "eq:q:m:counts")


def test_figures_of_a_queue(ledger: Ledger) -> None:
    ledger.heartbeat("join", "w", model='{"id":"m"}')
    ledger.submit(NewTask("a"), NewTask("b", lane="bulk"))
    ledger.advance(500)
    ledger.submit(NewTask("c"))
    ledger.claim("w/0", "w/0/1", max_pieces=1)
    ledger.watch()
    found = figures(ledger, "other")
    model, state, counts, leases, oldest, *_ = found["m"]
    assert (model, leases, oldest, bool(state), counts) == (b'{"id":"m"}', 1, [0, 500], True, [b"model_loads", b"1"])
    assert found["other"] == [b"", b"", [], 0, [-1, -1], [], [], 0]
    ledger.redis.zadd("eq:index:batch:@open", {"b1": 0, "b2": 0})
    used, *others = ledger.call("overview")[0]
    assert used > 10**5
    assert others == [0, 2, 0]


def test_the_limit_of_memory_is_seen_and_what_other_queues_reserve_counts(ledger: Ledger) -> None:
    ledger.tampered = True
    ledger.redis.config_set("maxmemory", 10**9)
    ledger.redis.hset("eq:models", mapping={"m": "", "other": ""})
    ledger.set_sums("q:other:state", reserved=10**9)
    for reserved in (1, 2):
        ledger.watch()
        memory = ledger.sums("memory")
        assert (ledger.state["limit"], memory["limit"]) == (10**9, 10**9)
        assert 10**9 < ledger.state["used"] < 11 * 10**8
        assert reserved * 10**9 < memory["used"] < reserved * 10**9 + 10**8
        ledger.set_sums("q:m:state", **ledger.state | {"reserved": 10**9})
