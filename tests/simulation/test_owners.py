"""Owners who are revoked or purged."""

from tests.simulation.building import drain, sized
from tests.simulation.thin_client import Ledger, NewTask


def mark(ledger: Ledger, name: str, number: int = 1) -> None:
    """As a record of the owner's key counts in his account."""
    ledger.set_sums("owner:o", **ledger.account("o") | {name: number})


def test_purged_ends_what_is_open_when_it_is_met_and_nothing_follows(ledger: Ledger) -> None:
    ledger.submit(NewTask("a", listed=True), NewTask("b", listed=True), NewTask("c", owner="p"))
    claim = ledger.claim("w/0", "w/0/1", max_pieces=1)
    mark(ledger, "purged")
    assert ledger.bring(NewTask("new")) == [b"revoked"]
    assert ledger.finish(claim).codes == [0]
    assert drain(ledger, 9, 100) == [("c", "p", 10)]
    assert {ledger.known(name).state for name in "ab"} == {"cancelled"}
    assert ledger.counts["ended_online_cancelled"] == 2
    ledger.give_back("w/0/1")
    assert ledger.redis.zcard("eq:q:m:leases") == 0
    ledger.advance(60_000)
    ledger.watch()
    assert ledger.account("o") == {"purged": 1}


def life_ms(ledger: Ledger) -> int:
    """Of the owner's account; -1: it stays."""
    return int(ledger.redis.pttl("eq:owner:o"))


def test_an_account_goes_when_its_buckets_are_full_again(ledger: Ledger) -> None:
    ledger.take_request("o", per_s=0.01)
    assert 99_000 < life_ms(ledger) <= 100_000
    ledger.submit(NewTask("a", pieces=sized(40), tokens_per_minute=100))
    assert life_ms(ledger) == -1, "he has a task"
    ledger.advance(24_000)
    ledger.cancel("a", forget=True)
    assert set(ledger.account("o")) == {"requests"}, "24 s brought 40 tokens back"
    assert 75_000 < life_ms(ledger) <= 76_000
    ledger.submit(NewTask("b"))
    ledger.advance(76_000)
    ledger.cancel("b", forget=True)
    assert not ledger.redis.exists("eq:owner:o")


def test_a_debt_is_forgiven_to_who_has_nothing_for_a_minute(ledger: Ledger) -> None:
    ledger.submit(NewTask("a"))
    ledger.finish(ledger.claim("w/0", "w/0/1"), spent=5)
    assert life_ms(ledger) == -1, "he has a result"
    ledger.cancel("a", forget=True)
    assert ledger.account("o") == {"debt:m": 5}
    assert 59_000 < life_ms(ledger) <= 60_000
    mark(ledger, "revoked")
    ledger.take_request("o", per_s=1)
    assert life_ms(ledger) == -1, "a mark stays"
