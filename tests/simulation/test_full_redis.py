"""A Redis that is full refuses what is new and nothing else."""

from typing import Any

from tests.simulation.building import drain, sized, tasks
from tests.simulation.thin_client import Finished, Ledger, NewTask

SYNC: dict[str, Any] = {"alias": "s", "digest": "s", "joins": True, "deadline_in_ms": 20_000}


def filled(ledger: Ledger) -> None:
    """Each script is known to Redis before it is full, as EVAL itself would be refused."""
    for script in ("submit", "claim", "commit", "give_back", "cancel", "heartbeat", "request_rate"):
        ledger.redis.script_load(ledger.scripts.source(script))
    ledger.redis.config_set("maxmemory", 1)


def test_new_work_is_refused_and_nothing_of_it_is_left(ledger: Ledger) -> None:
    ledger.submit(NewTask("sync", **SYNC))
    filled(ledger)
    keys = set(ledger.redis.keys("*"))
    assert ledger.bring(NewTask("new"))[0] == b"memory"
    assert set(ledger.redis.keys("*")) == keys


def test_a_call_with_new_and_known_tasks_refuses_the_new_ones_alone(ledger: Ledger) -> None:
    ledger.submit(NewTask("sync", **SYNC), NewTask("same"))
    filled(ledger)
    replies, _ = ledger.submit(NewTask("again", **SYNC), NewTask("same"), NewTask("new"))
    assert [reply[0] for reply in replies] == [b"joined", b"ok", b"memory"]
    assert ledger.read("new") is None
    assert ledger.submit(NewTask("again", **SYNC), NewTask("same"))[0] == [[b"joined", b"sync"], [b"ok", b"same"]]


def test_work_goes_on_to_its_end(ledger: Ledger) -> None:
    ledger.submit(NewTask("sync", **SYNC), *tasks("t", 5, pieces=sized(10, number=2), listed=True))
    held = ledger.claim("w/0", "w/0/0", max_pieces=3)
    filled(ledger)
    assert ledger.finish(held, b"v" * 5000).codes == [1, 1, 1]
    assert len(ledger.claim("w/0", "w/0/1", linger_ms=100).pieces) == 8
    ledger.give_back("w/0/1")
    claim = ledger.claim("w/0", "w/0/2", max_pieces=2)
    assert ledger.commit("w/0/2", [Finished(p, b"v") for p in claim.pieces]).codes == [1, 1]
    assert ledger.heartbeat("join", "w").accepted
    assert ledger.heartbeat("beat", "w").accepted
    assert ledger.heartbeat("loading", "v").accepted
    assert ledger.call("request_rate", "o7", 5)[0] == 0
    ledger.cancel("t0004")
    ledger.want("sync", 30_000)
    drain(ledger, 50, 10**6)
    assert not [n for n in range(5) if ledger.known(f"t000{n}").is_open]
    ledger.advance(10**6)
    while ledger.watch().more:
        pass
    assert not ledger.redis.keys("eq:task:*")
