"""Tasks that end, are joined, are forgotten, and what is told of them."""

from typing import Any

from tests.simulation.building import drain, sized, tasks
from tests.simulation.listening import listening
from tests.simulation.thin_client import Finished, Ledger, NewTask, answers

SYNC: dict[str, Any] = {"alias": "s", "digest": "s", "joins": True, "deadline_in_ms": 20_000, "answer_to": "p"}


def test_a_key_of_idempotency_gives_the_same_task_until_it_is_forgotten(ledger: Ledger) -> None:
    def bring(name: str, digest: str) -> list[Any]:
        return ledger.bring(NewTask(name, alias="k", digest=digest, listed=True))

    assert bring("a", "d1") == [b"ok", b"a"]
    assert bring("b", "d1") == [b"joined", b"a"]
    assert bring("c", "d2") == [b"conflict"]
    assert ledger.redis.ttl("eq:alias:o:k") == -1  # it lives as long as its task
    drain(ledger, 1, 100)
    assert bring("d", "d1") == [b"joined", b"a"]
    ledger.advance(60_000)
    ledger.watch()
    assert bring("e", "d1") == [b"ok", b"e"]
    assert ledger.bring(NewTask("f", owner="other", alias="k", digest="d1")) == [b"ok", b"f"]


def test_equal_calls_join_while_one_is_open_or_its_result_lives_on(ledger: Ledger) -> None:
    both = [NewTask(name, **SYNC | {"answer_to": process}) for name, process in (("x", "p1"), ("y", "p2"))]
    assert ledger.submit(*both)[0] == [[b"ok", b"x"], [b"joined", b"x"]]
    assert ledger.known("x")["answer"] == ""  # both processes are told
    assert ledger.bring(NewTask("z", **SYNC | {"digest": "other"})) == [b"ok", b"z"]
    drain(ledger, 1, 100)
    assert ledger.bring(NewTask("u", **SYNC | {"digest": "other"})) == [b"joined", b"z"]
    ledger.advance(55_000)
    assert ledger.bring(NewTask("w", **SYNC | {"digest": "other"})) == [b"joined", b"z"]
    ledger.advance(1)  # its result must not vanish before the caller reads it
    assert ledger.bring(NewTask("v", **SYNC | {"digest": "other"})) == [b"ok", b"v"]


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
    ledger.submit(NewTask("a", **SYNC))
    ledger.advance(5000)
    ledger.want("a", 1000, gone=True)
    assert ledger.known("a")["unwanted"] == 1
    ledger.submit(NewTask("b", **SYNC))
    ends = ledger.now + 20_000
    assert (ledger.known("a")["deadline"], ledger.known("a")["unwanted"]) == (ends, 0)
    assert ledger.redis.zscore("eq:due", "task:a") == ends
    assert ledger.redis.pttl("eq:alias:o:s") > 79_000
    ledger.redis.pexpire("eq:alias:o:s", 1000)
    ledger.submit(NewTask("c", **SYNC | {"deadline_in_ms": 1000}))
    assert ledger.known("a")["deadline"] == ends
    ledger.submit(NewTask("d", **SYNC | {"deadline_in_ms": 21_000}))
    assert ledger.redis.pttl("eq:alias:o:s") > 79_000


def test_who_joins_a_task_without_a_deadline_gives_it_none(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", **SYNC | {"deadline_in_ms": 0}))
    assert ledger.bring(NewTask("b", **SYNC)) == [b"joined", b"a"]
    assert ledger.known("a")["deadline"] == 0


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


def test_housekeeping_ends_a_bounded_number_and_says_that_there_is_more(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 70, deadline_in_ms=10))
    ledger.advance(10)
    assert ledger.watch()[4:6] == (64, True)
    assert ledger.watch()[4:6] == (6, False)


def test_how_long_a_task_is_wanted(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", deadline_in_ms=20_000, answer_to="p"), NewTask("b"))
    assert ledger.want("a", 30_000)
    assert ledger.known("a")["deadline"] == ledger.now + 30_000
    assert ledger.want("a", 10_000)  # another one waits longer
    assert ledger.known("a")["deadline"] == ledger.now + 30_000
    assert ledger.want("a", 10_000, gone=True)
    assert ledger.known("a")["deadline"] == ledger.now + 10_000
    assert (ledger.known("a")["unwanted"], ledger.state["cost_online"], ledger.state["open_online"]) == (1, 10, 2)
    assert ledger.redis.zscore("eq:due", "task:a") == ledger.now + 10_000
    assert ledger.want("a", 15_000)
    assert (ledger.known("a")["unwanted"], ledger.state["cost_online"], ledger.state["open_online"]) == (0, 20, 2)
    assert not ledger.want("b", 10_000)  # nobody waits for it, so it has no end
    assert not ledger.want("none", 10_000)


def test_an_alias_that_a_later_task_took_over_stays(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", alias="k", digest="d", ttl_ms=1000))
    ledger.cancel("a")
    ledger.redis.set("eq:alias:o:k", "b d")
    ledger.cancel("a", forget=True)
    assert ledger.redis.get("eq:alias:o:k") == b"b d"


def test_a_small_result_comes_with_the_news_and_others_hear_of_theirs(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:answers:p", "eq:ended") as news:
        ledger.submit(NewTask("q", answer_to="p", meta="{}"), NewTask("other"))
        drain(ledger, 1, 1000)
        answered, ended = news.messages()
    told = answers(ledger, answered)
    assert (told["q"].state, told["q"].outcomes, told["q"]["completed"]) == ("completed", {0: (1, b"v")}, 1)
    assert ended == b"other"


def test_a_large_result_and_one_that_nobody_hears_are_announced(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:answers:p", "eq:ended") as news:
        ledger.submit(NewTask("large", answer_to="p"), NewTask("deaf", answer_to="nobody"))
        ledger.finish(ledger.claim("w/0", "w/0/1", max_pieces=1), b"v" * 16_385)
        ledger.finish(ledger.claim("w/0", "w/0/2"))
        assert news.messages() == [b"large", b"deaf"]
        ledger.submit(NewTask("parts", answer_to="p", pieces=sized(10, number=2)))
        for n in range(3, 5):
            ledger.finish(ledger.claim("w/0", f"w/0/{n}", max_pieces=1))
        assert news.messages() == [b"parts"]  # not all of it was in the last commit


def test_answers_of_one_message_are_bounded(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:answers:p", "eq:ended") as news:
        ledger.submit(*tasks("q", 20, answer_to="p"))
        ledger.finish(ledger.claim("w/0", "w/0/1"), b"v" * 16_384)
        answered, ended = news.messages()
    assert len(answers(ledger, answered)) == 16
    assert len(ended.split()) == 4


def test_the_end_of_a_part_of_a_job_wakes_who_advances_it(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:jobs") as steps:
        ledger.submit(NewTask("a", wakes=True), NewTask("b"))
        ledger.finish(ledger.claim("w/0", "w/0/1", max_pieces=1))
        assert steps.messages() == [b"job"]
        ledger.finish(ledger.claim("w/0", "w/0/2", max_pieces=1))
        assert steps.messages() == []


def test_a_commit_says_how_long_completed_tasks_took(ledger: Ledger) -> None:
    ledger.submit(NewTask("a"), NewTask("b", pieces=sized(1, number=2)), NewTask("c"))
    ledger.advance(1234)
    claim = ledger.claim("w/0", "w/0/1", max_pieces=3)
    a, b, c = claim.pieces
    done = [Finished(a, b"v"), Finished(b, b"v"), Finished(c, b"", failed=1, extra=b"{}")]
    assert ledger.commit("w/0/1", done).took == [b"online", 1234]


def test_a_task_has_its_times(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", pieces=sized(1, number=2), meta='{"k":"v"}', trace="t"))
    ledger.advance(100)
    ledger.finish(ledger.claim("w/0", "w/0/1", max_pieces=1))
    ledger.advance(100)
    ledger.finish(ledger.claim("w/0", "w/0/2", max_pieces=1))
    task = ledger.known("a")
    assert [task[name] - ledger.now for name in ("created", "started", "finished")] == [-200, -100, 0]
    assert (task.meta, task["trace"], task["tokens"]) == (b'{"k":"v"}', "t", 2)


def test_a_list_gives_the_newest_first_page_by_page_and_by_state(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 9, listed=True), *tasks("r", 3, owner="p", listed=True), NewTask("s"))
    ledger.cancel("q0003", "q0005")
    until, more, found = ledger.list_ids("o", limit=4)
    assert (until, more, found) == ("q0005", True, ["q0008", "q0007", "q0006", "q0005"])
    assert ledger.list_ids("o", after=until) == ("q0000", False, [f"q{n:04d}" for n in range(4, -1, -1)])
    assert ledger.list_ids("o", states="cancelled failed") == ("q0000", False, ["q0005", "q0003"])
    assert ledger.list_ids("o", look=2) == ("q0007", True, ["q0008", "q0007"])
    assert ledger.list_ids("nobody") == ("", False, [])


def test_many_expired_tasks_do_not_make_one_claim_long(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 200, deadline_in_ms=1000), NewTask("r"))
    ledger.advance(1000)
    claim = ledger.claim("w/0", "w/0/1")
    assert (claim.pieces, claim.more) == ([], True)
    states = [ledger.known(f"q{n:04d}").state for n in range(200)]
    assert states.count("expired") == 64


def test_what_is_gone_does_not_hide_what_is_due_behind_it(ledger: Ledger) -> None:
    ledger.tampered = True
    ledger.submit(*tasks("q", 70, deadline_in_ms=10))
    ledger.redis.delete(*[f"eq:task:q{n:04d}" for n in range(64)])
    ledger.advance(10)
    ledger.watch()
    ledger.watch()
    assert ledger.known("q0069").state == "expired"
    ledger.redis.zadd("eq:due", {"file:none": ledger.now})
    ledger.watch()
    assert ledger.redis.zcard("eq:due") == 6


def test_a_task_with_some_errors_completes_and_one_with_errors_alone_fails(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", pieces=sized(10, 3)), NewTask("b"))
    claim = ledger.claim("w/0", "w/0/1")
    a, b = claim.pieces
    error = b'{"errors":[[1,"e","m"]],"truncated":[]}'
    ledger.commit("w/0/1", [Finished(a, b"vvv", 1, error, 7), Finished(b, b"", 1, error, 2)])
    assert [ledger.known(name).state for name in "ab"] == ["completed", "failed"]
    assert (ledger.known("a")["completed"], ledger.known("a")["failed"], ledger.known("a")["tokens"]) == (2, 1, 7)
    assert ledger.known("a")["kept"] == 3 + len(error)


def test_a_caller_who_goes_takes_nothing_from_another_who_waits_for_the_same(ledger: Ledger) -> None:
    for process in "pq":
        ledger.submit(
            NewTask(f"of_{process}", alias="x", digest="d", joins=True, deadline_in_ms=60_000, answer_to=process)
        )
    ledger.want("of_p", 10_000, gone=True)
    ledger.advance(11_000)
    ledger.watch()
    assert ledger.known("of_p").is_open


def test_an_alias_without_a_deadline_lives_as_long_as_its_task_in_a_list_or_not(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", alias="a"), NewTask("b", alias="b", listed=True, deadline_in_ms=20_000))
    assert [ledger.redis.ttl(f"eq:alias:o:{name}") for name in "ab"] == [-1, -1]
    drain(ledger, 2, 100)
    ledger.advance(60_000)
    ledger.watch()
    assert not ledger.redis.keys("eq:alias:*")
