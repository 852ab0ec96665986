"""What a call costs Redis: few commands, which do not grow with what waits."""

from collections.abc import Callable

from tests.simulation.building import drain, sized, tasks
from tests.simulation.listening import listening
from tests.simulation.thin_client import Ledger, NewTask

OF_LONE_QUERY = 48
OF_CROWD = 13
QUEUED_BYTES = 1500


def commands(ledger: Ledger, call: Callable[[], object]) -> int:
    """How many Redis ran, those inside of scripts too."""
    ledger.redis.config_resetstat()
    call()
    return sum(of["calls"] for name, of in ledger.redis.info("commandstats").items() if "config" not in name)


def query(number: int) -> NewTask:
    """What somebody waits for: it may be joined, ends with its caller's patience, and its vector needs room."""
    digest = f"{number:032x}"
    return NewTask(
        f"q{number}",
        alias=digest,
        digest=digest,
        joins=True,
        deadline_in_ms=20_000,
        answer_to="p",
        vector_bytes=1536,
    )


def test_a_lone_query_costs_few_commands(ledger: Ledger) -> None:
    def served(number: int) -> None:
        ledger.submit(query(number))
        claim = ledger.claim("w/0", f"w/0/{number}")
        assert ledger.finish(claim, stream="w/0", linger_ms=1000).wait_ms

    with listening(ledger.redis, "eq:answers:p", "eq:q:m:wake:w/0"):
        ledger.claim("w/0", "w/0/first", linger_ms=1000)
        served(0)
        assert commands(ledger, lambda: served(1)) <= OF_LONE_QUERY


def test_queries_that_are_served_together_share_commands(ledger: Ledger) -> None:
    def served(first: int) -> None:
        for n in range(first, first + 64, 8):
            ledger.submit(*map(query, range(n, n + 8)))
        for n in range(2):
            ledger.finish(ledger.claim("w/0", f"w/0/{first}.{n}", budget=10**6, max_pieces=32))

    with listening(ledger.redis, "eq:answers:p"):
        served(0)
        assert commands(ledger, lambda: served(100)) <= 64 * OF_CROWD


def test_the_work_of_a_script_does_not_grow_with_the_backlog(ledger: Ledger) -> None:
    owners = 50

    def one_round(name: str) -> list[int]:
        held = []
        return [
            commands(ledger, lambda: ledger.submit(NewTask(name, owner="o0", pieces=sized(10, number=3)))),
            commands(ledger, lambda: held.append(ledger.claim("w/0", f"w/0/{name}", max_pieces=2))),
            commands(ledger, lambda: ledger.finish(held[0])),
            commands(ledger, lambda: ledger.give_back("none")),
            commands(ledger, lambda: ledger.cancel(name)),
            commands(ledger, ledger.watch),
            commands(ledger, lambda: ledger.heartbeat("beat", "w")),
        ]

    ledger.submit(*[NewTask(f"b{n}", owner=f"o{n % owners}") for n in range(100)])
    ledger.heartbeat("join", "w")
    one_round("first")
    before = one_round("a")
    for k in range(20):
        ledger.submit(*[NewTask(f"c{k}.{n}", owner=f"o{n % owners}") for n in range(100)])
    after = one_round("b")
    assert all(now <= was + 3 for was, now in zip(before, after, strict=True)), (before, after)


def test_a_queued_text_takes_little_memory(ledger: Ledger) -> None:
    def used() -> int:
        return int(ledger.redis.info("memory")["used_memory"])

    ledger.submit(*tasks("a", 20))
    before = used()
    for k in range(50):
        ledger.submit(*[NewTask(f"q{k}.{n}", pieces=[(1, 10, b"x" * 60)]) for n in range(20)])
    assert (used() - before) / 1000 <= QUEUED_BYTES


def test_a_script_writes_each_total_once_however_many_tasks_end(ledger: Ledger) -> None:
    ledger.submit(*tasks("q", 20))
    claim = ledger.claim("w/0", "w/0/1")
    ledger.redis.config_resetstat()
    ledger.finish(claim)
    assert ledger.redis.info("commandstats")["cmdstat_hincrby"]["calls"] == 1


def test_the_end_of_a_task_that_nobody_began_does_not_grow_with_its_pieces(ledger: Ledger) -> None:
    def ended(number: int) -> int:
        ledger.submit(NewTask(f"t{number}", pieces=sized(1, number=number), meta='{"a": "b"}', deadline_in_ms=1000))
        ledger.advance(2000)
        return commands(ledger, ledger.watch)

    few, many = ended(10), ended(9000)
    assert many <= few
    assert set(ledger.redis.hkeys("eq:task:t9000")) == {b"s", b"m"}


def test_one_look_ends_few_tasks_of_many_pieces(ledger: Ledger) -> None:
    ledger.submit(*tasks("t", 40, pieces=sized(1, number=1000), deadline_in_ms=1000))
    drain(ledger, 40, 1, max_pieces=1)
    ledger.advance(2000)
    looks = 0
    while ledger.watch().more:
        looks += 1
    assert looks >= 8
    assert not any(ledger.known(f"t{n:04d}").is_open for n in range(40))


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
