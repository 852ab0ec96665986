"""Tasks that end, are joined, are forgotten, and what is told of them; owners who go; a Redis that is full."""

from typing import Any

from tasks.ledger.read import list_tasks, results_in
from tasks.ledger.scripts import source
from tests.integration.ledger.listener import Listener
from tests.simulation.thin_client import Finished, Ledger, NewTask, sized, tasks

SYNC: dict[str, Any] = {"alias": "s", "digest": "s", "joins": True, "deadline_in_ms": 20_000, "answer_to": "p"}
ERROR = b'{"errors":[[1,"e","m"]],"truncated":[]}'


def test_a_key_of_idempotency_gives_the_same_task_until_it_is_forgotten(ledger: Ledger) -> None:
    def bring(name: str, digest: str) -> list[Any]:
        return ledger.bring(NewTask(name, alias="k", digest=digest, listed=True))

    assert [bring(*each) for each in (("a", "d1"), ("b", "d1"), ("c", "d2"))] == [
        [b"ok", b"a"],
        [b"joined", b"a"],
        [b"conflict"],
    ]
    ledger.submit(NewTask("x", alias="x"), NewTask("y", alias="y", listed=True, deadline_in_ms=20_000))
    # They live as long as their tasks.
    assert [ledger.redis.ttl(f"eq:alias:o:{name}") for name in "kxy"] == [-1, -1, -1]
    ledger.drain()
    assert bring("d", "d1") == [b"joined", b"a"]
    ledger.advance(60_000)
    ledger.watch()
    assert not ledger.redis.keys("eq:alias:*")
    assert bring("e", "d1") == [b"ok", b"e"]
    assert ledger.bring(NewTask("f", owner="other", alias="k", digest="d1")) == [b"ok", b"f"]
    ledger.cancel("e")
    ledger.redis.set("eq:alias:o:k", "g d")  # a later task took it over
    ledger.cancel("e", forget=True)
    assert ledger.redis.get("eq:alias:o:k") == b"g d"


def test_equal_calls_join_while_one_is_open_or_its_result_lives_on(ledger: Ledger) -> None:
    both = [NewTask(name, **SYNC | {"answer_to": process}) for name, process in (("x", "p1"), ("y", "p2"))]
    assert ledger.submit(*both)[0] == [[b"ok", b"x"], [b"joined", b"x"]]
    assert ledger.known("x")["answer"] == ""  # both processes are told
    ledger.want("x", 10_000, gone=True)
    assert ledger.known("x")["deadline"] == ledger.now + 20_000, "one who goes takes nothing from the other"
    assert ledger.bring(NewTask("z", **SYNC | {"digest": "other"})) == [b"ok", b"z"]
    assert ledger.bring(NewTask("u", **SYNC | {"digest": "other"})) == [b"joined", b"z"]
    assert ledger.known("z")["answer"] == "p"
    ledger.drain(1, 100)
    ledger.advance(55_000)
    assert ledger.bring(NewTask("w", **SYNC | {"digest": "other"})) == [b"joined", b"z"]
    ledger.advance(1)  # its result must not vanish before the caller reads it
    assert ledger.bring(NewTask("v", **SYNC | {"digest": "other"})) == [b"ok", b"v"]
    ledger.cancel("v", forget=True)
    again = ledger.submit(*[NewTask(name, **SYNC | {"digest": "other"}) for name in ("v", "t")])[0]
    assert [reply[:2] for reply in again] == [[b"ok", b"v"], [b"joined", b"v"]], "one that comes again under its name"


def test_a_failed_or_cancelled_call_is_not_joined(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", **SYNC))
    claim = ledger.claim("w/0", "w/0/1")
    ledger.commit("w/0/1", [Finished(claim.pieces[0], b"", failed=1, extra=b"{}")])
    assert ledger.bring(NewTask("b", **SYNC)) == [b"ok", b"b"]
    assert ledger.cancel("none", "b") == ["", "queued"]
    assert ledger.bring(NewTask("c", pieces=sized(2, 3), **SYNC)) == [b"ok", b"c"]
    claim = ledger.claim("w/0", "w/0/2")
    ledger.commit("w/0/2", [Finished(claim.pieces[0], b"vv", failed=1, extra=b"{}")])
    assert ledger.known("c").state == "completed"
    assert ledger.bring(NewTask("d", **SYNC)) == [b"ok", b"d"]


def test_who_joins_prolongs_the_deadline_and_never_shortens_it(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", **SYNC), NewTask("e", **SYNC | {"alias": "e", "deadline_in_ms": 0}))
    assert ledger.bring(NewTask("f", **SYNC | {"alias": "e"})) == [b"joined", b"e"]
    assert ledger.known("e")["deadline"] == 0, "who joins a task without one gives it none"
    ledger.advance(5000)
    ledger.want("a", 1000, gone=True)
    assert ledger.known("a")["unwanted"] == 1
    ledger.submit(NewTask("b", **SYNC))
    ends = ledger.now + 20_000
    assert (ledger.known("a")["deadline"], ledger.known("a")["unwanted"]) == (ends, 0)
    assert ledger.redis.pttl("eq:alias:o:s") > 79_000
    ledger.redis.pexpire("eq:alias:o:s", 1000)
    ledger.submit(NewTask("c", **SYNC | {"deadline_in_ms": 1000}))
    assert ledger.known("a")["deadline"] == ends
    ledger.submit(NewTask("d", **SYNC | {"deadline_in_ms": 21_000}))
    assert ledger.redis.pttl("eq:alias:o:s") > 79_000


def test_how_long_a_task_is_wanted(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", deadline_in_ms=20_000, answer_to="p"), NewTask("b"))
    for ms, gone, ends, unwanted in (
        (30_000, False, 30_000, 0),
        (10_000, False, 30_000, 0),  # another one waits longer
        (10_000, True, 10_000, 1),
        (15_000, False, 15_000, 0),
    ):
        assert ledger.want("a", ms, gone=gone)
        assert (ledger.known("a")["deadline"], ledger.known("a")["unwanted"]) == (ledger.now + ends, unwanted)
        assert (ledger.state["cost_online"], ledger.state["open_online"]) == (20 - 10 * unwanted, 2)
        assert ledger.redis.zscore("eq:due", "task:a") == ledger.now + ends
    assert not ledger.want("b", 10_000)  # nobody waits for it, so it has no end
    assert not ledger.want("none", 10_000)


def test_a_text_that_fails_at_its_deadline_keeps_its_result(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", deadline_in_ms=5000))
    for n in range(3):
        ledger.claim("w/0", f"w/0/{n}")
        ledger.give_back(f"w/0/{n}", blame=True)
    ledger.claim("w/0", "w/0/last", lease_ms=5000)
    ledger.advance(5000)
    ledger.watch()  # the lease and the task end in one look
    assert (ledger.known("a").state, list(ledger.known("a").errors)) == ("failed", [0])
    ledger.advance(60_000)
    ledger.watch()
    assert ledger.read("a") is None


def test_housekeeping_and_a_claim_end_a_bounded_number_and_say_that_there_is_more(ledger: Ledger) -> None:
    ledger.tampered = True
    ledger.submit(*tasks("q", 200, deadline_in_ms=10), NewTask("r"))
    ledger.advance(10)
    claim = ledger.claim("w/0", "w/0/1")
    assert (claim.pieces, claim.more) == ([], True)
    assert ledger.watch()[4:6] == (64, True)
    assert ledger.watch()[4:6] == (64, True)
    assert ledger.watch()[4:6] == (8, False)
    ledger.submit(*tasks("s", 70, deadline_in_ms=10))
    ledger.redis.delete(*[f"eq:task:s{n:04d}" for n in range(64)])
    ledger.advance(10)
    ledger.watch()
    ledger.watch()
    assert ledger.known("s0069").state == "expired", "what is gone does not hide what is due behind it"
    ledger.call("overview", "m")
    assert ["r"] in [ledger.claim("w/0", f"w/0/gone{n}").tasks for n in range(3)], "nor what is ready"
    before = ledger.redis.zcard("eq:due")
    ledger.redis.zadd("eq:due", {"file:none": ledger.now})
    ledger.watch()
    assert ledger.redis.zcard("eq:due") == before


# ---- what is told


def test_a_result_comes_with_the_news_if_it_is_small_and_whole_and_somebody_hears_it(ledger: Ledger) -> None:
    with Listener(ledger.redis, "eq:answers:p", "eq:ended", "eq:jobs") as news:
        ledger.submit(NewTask("q", answer_to="p", meta="{}"), NewTask("other"))
        ledger.drain(1, 1000)
        answered, ended = news.messages()
        [told] = results_in(answered)
        assert (told.task.id, told.task.state, told.task.completed, told.pieces[0].data) == ("q", "completed", 1, b"v")
        assert ended == b"other"
        ledger.submit(NewTask("large", answer_to="p"), NewTask("deaf", answer_to="nobody"))
        ledger.finish(ledger.claim("w/0", "w/0/1", max_pieces=1), b"v" * 16_385)
        ledger.finish(ledger.claim("w/0", "w/0/2"))
        assert news.messages() == [b"large", b"deaf"]
        ledger.submit(NewTask("parts", answer_to="p", pieces=sized(10, number=2)))
        ledger.drain(9, 10)
        assert news.messages() == [b"parts"]  # not all of it was in the last commit
        ledger.submit(*tasks("many", 20, answer_to="p"))
        ledger.finish(ledger.claim("w/0", "w/0/3"), b"v" * 16_384)
        answered, ended = news.messages()
        assert (len([*results_in(answered)]), len(ended.split())) == (16, 4)
        ledger.submit(NewTask("wakes", wakes=True))
        ledger.drain()
        assert news.messages() == [b"wakes", b"job"], "who advances the job is woken"


def test_a_task_has_its_times_its_errors_and_its_counts(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", pieces=sized(10, 3, 2), meta='{"k":"v"}', trace="t"), NewTask("b"), NewTask("c"))
    ledger.advance(100)
    claim = ledger.claim("w/0", "w/0/1", max_pieces=3)
    one, b, c = claim.pieces
    assert [one.task, b.task, c.task] == ["a", "b", "c"]
    done = [Finished(one, b"vvv", 1, ERROR, 7), Finished(b, b"", 1, ERROR, 2), Finished(c, b"v")]
    assert ledger.commit("w/0/1", done).took == [b"online", 100]
    ledger.advance(100)
    assert ledger.finish(ledger.claim("w/0", "w/0/2")).took == [b"online", 200]
    task = ledger.known("a")
    assert [task[name] - ledger.now for name in ("created", "started", "finished")] == [-200, -100, 0]
    assert (task.meta, task["trace"], task["tokens"]) == (b'{"k":"v"}', "t", 10)
    assert (task.state, task["completed"], task["failed"]) == ("completed", 5, 1)
    assert task["kept"] == len(task.meta) + 6 + len(ERROR)
    assert ledger.known("b").state == "failed"


def test_a_list_gives_the_newest_first_page_by_page_and_by_state(ledger: Ledger) -> None:
    def found(owner: str, **how: Any) -> tuple[list[str], str, bool]:
        operation = list_tasks(owner, **{"limit": 20} | how)
        listed, until, more = operation.read(ledger.call("list", *operation.arguments))
        return [task.id for task in listed], until, more

    ledger.submit(*tasks("q", 9, listed=True, meta="{}"), *tasks("r", 3, owner="p", listed=True), NewTask("s"))
    ledger.cancel("q0003", "q0005")
    assert ledger.call("list", "o", "", 1, 1, "")[2][2] == b"{}"
    assert found("o", limit=4) == (["q0008", "q0007", "q0006", "q0005"], "q0005", True)
    assert found("o", after="q0005") == ([f"q{n:04d}" for n in range(4, -1, -1)], "q0000", False)
    assert found("o", states=("cancelled", "failed")) == (["q0005", "q0003"], "q0000", False)
    assert ledger.call("list", "o", "", 20, 2, "")[:2] == [b"q0007", 1], "it looks at so many"
    assert found("nobody") == ([], "", False)


# ---- owners who are revoked or purged, and what is kept of them


def test_purged_ends_what_is_open_when_it_is_met_and_nothing_follows(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", listed=True), NewTask("b", listed=True), NewTask("c", owner="p"))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1)
    ledger.set_sums("owner:o", **ledger.account("o") | {"purged": 1})
    assert ledger.bring(NewTask("new")) == [b"revoked"]
    assert ledger.finish(claim).codes == [0]
    assert [piece.task for piece in ledger.drain(9, 100)] == ["c"]
    assert {ledger.known(name).state for name in "ab"} == {"cancelled"}
    assert ledger.counts["ended_online_cancelled"] == 2
    ledger.give_back("w/0/1")
    assert ledger.redis.zcard("eq:q:m:leases") == 0
    ledger.advance(60_000)
    ledger.watch()
    assert ledger.account("o") == {"purged": 1}


def test_an_account_goes_when_its_buckets_are_full_again_and_a_debt_in_a_minute(ledger: Ledger) -> None:
    def life_ms() -> int:
        return int(ledger.redis.pttl("eq:owner:o"))

    ledger.call("request_rate", "o", 0.01)
    assert 99_000 < life_ms() <= 100_000
    ledger.submit(NewTask("a", pieces=sized(40), tokens_per_minute=100))
    assert life_ms() == -1, "he has a task"
    ledger.advance(24_000)
    ledger.cancel("a", forget=True)
    assert set(ledger.account("o")) == {"requests"}, "24 s brought 40 tokens back"
    assert 75_000 < life_ms() <= 76_000
    ledger.submit(NewTask("b"))
    ledger.advance(76_000)
    ledger.cancel("b", forget=True)
    assert not ledger.redis.exists("eq:owner:o")
    ledger.submit(NewTask("c"))
    ledger.finish(ledger.claim("w/0", "w/0/1"), spent=5)
    assert life_ms() == -1, "he has a result"
    ledger.cancel("c", forget=True)
    assert ledger.account("o") == {"debt:m": 5}
    assert 59_000 < life_ms() <= 60_000
    ledger.set_sums("owner:o", **ledger.account("o") | {"revoked": 1})
    ledger.call("request_rate", "o", 1)
    assert life_ms() == -1, "a mark stays"


# ---- a Redis that is full refuses what is new and nothing else


def filled(ledger: Ledger) -> None:
    """Each script is known to Redis before it is full, as EVAL itself would be refused."""
    for script in ("submit", "claim", "commit", "give_back", "cancel", "heartbeat", "request_rate"):
        ledger.redis.script_load(source(script, ledger.folder))
    ledger.redis.config_set("maxmemory", 1)


def test_a_full_redis_refuses_new_tasks_alone_and_nothing_of_them_is_left(ledger: Ledger) -> None:
    ledger.submit(NewTask("sync", **SYNC), NewTask("same"))
    filled(ledger)
    keys = set(ledger.redis.keys("*"))
    replies, _ = ledger.submit(NewTask("again", **SYNC), NewTask("same"), NewTask("new"))
    assert [reply[0] for reply in replies] == [b"joined", b"ok", b"memory"]
    assert set(ledger.redis.keys("*")) == keys
    assert ledger.submit(NewTask("again", **SYNC), NewTask("same"))[0] == [[b"joined", b"sync"], [b"ok", b"same"]]


def test_work_goes_on_to_its_end_in_a_full_redis(ledger: Ledger) -> None:
    ledger.submit(NewTask("sync", **SYNC), *tasks("t", 5, pieces=sized(10, number=2), listed=True))
    ledger.submit(NewTask("wanted", lane="bulk", deadline_in_ms=20_000))
    held = ledger.claim("w/0", "w/0/0", max_pieces=3)
    filled(ledger)
    assert ledger.finish(held, b"v" * 5000).codes == [1, 1, 1]
    assert len(ledger.claim("w/0", "w/0/1", linger_ms=100).pieces) == 8
    ledger.give_back("w/0/1")
    first, second = ledger.claim("w/0", "w/0/2", max_pieces=2).pieces
    assert ledger.commit("w/0/2", [Finished(first, b"v")]).codes == [1]
    assert ledger.claim("w/0", "w/0/2").tasks == [second.task]
    assert ledger.commit("w/0/2", [Finished(second, b"v")]).codes == [1]
    assert ledger.heartbeat("join", "w").accepted
    assert ledger.heartbeat("beat", "w").accepted
    assert ledger.heartbeat("loading", "v").accepted
    assert ledger.call("request_rate", "o7", 5)[0] == 0
    ledger.cancel("t0004")
    assert ledger.want("wanted", 30_000)
    ledger.drain()
    assert not [n for n in range(5) if ledger.known(f"t000{n}").is_open]
    ledger.advance(10**6)
    while ledger.watch().more:
        pass
    assert not ledger.redis.keys("eq:task:*")
