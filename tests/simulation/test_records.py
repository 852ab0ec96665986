"""Records: guarded changes, what they stand for in their owner's account, and their ends."""

from typing import Any

from tests.simulation.listening import listening
from tests.simulation.thin_client import Ledger

FILE: dict[str, Any] = {
    "owner": "o",
    "expires": 0,
    "listed": True,
    "open": False,
    "counts": {"stored": 600, "files": 1},
}
LIMITS = {"stored": 1000, "files": 5, "bytes": 50_000}


def test_a_record_counts_in_its_owners_account_until_it_goes(ledger: Ledger) -> None:
    for _ in range(2):  # the reply of the first was lost
        assert ledger.create("file", "f1", FILE, limits=LIMITS) == [b"ok", b"f1"]
        assert ledger.account("o")["stored"] == 600
    assert ledger.create("upload", "u1", FILE, limits=LIMITS) == [b"full", b"stored", 1000, 600]
    wide = FILE | {"counts": {}, "metadata": "x" * 60_000}
    assert ledger.create("batch", "b1", wide, limits=LIMITS)[:3] == [b"full", b"bytes", 50_000]
    assert ledger.call("record_remove", "file", "f1") == 1
    assert ledger.call("record_remove", "file", "f1") == 0
    assert ledger.account("o") == {}
    assert ledger.list_ids("file", "o")[2] == []


def test_a_change_needs_the_name_of_the_last_one(ledger: Ledger) -> None:
    ledger.create("file", "f1", FILE)
    smaller = FILE | {"counts": {"stored": 500, "files": 1}}
    for _ in range(2):
        assert ledger.change("file", "f1", ("c0", "c1"), smaller) == [b"ok"]
        assert ledger.account("o")["stored"] == 500
    assert ledger.change("file", "f1", ("c0", "c2"), FILE) == [b"conflict", b"c1"]
    assert ledger.record("file", "f1")[:2] == (smaller, "c1")
    assert ledger.change("file", "none", ("c0", "c2"), FILE) == [b"conflict", b""]
    assert not ledger.redis.exists("eq:file:none")


def test_fields_beside_the_record_are_set_deleted_and_counted(ledger: Ledger) -> None:
    bare = FILE | {"counts": {}}
    ledger.create("file", "f1", bare)
    size = ledger.account("o")["bytes"]
    ledger.change("file", "f1", ("c0", "c1"), bare, sets={"page:1": b"x" * 100, "page:2": b"y"})
    assert ledger.account("o")["bytes"] == size + 100 + 1 + 2 * len("page:1")
    ledger.change("file", "f1", ("c1", "c2"), bare, sets={"page:1": b"z"}, dels=["page:2", "page:3"])
    assert ledger.account("o")["bytes"] == size + 1 + len("page:1")
    _, _, fields = ledger.record("file", "f1")
    assert fields == {"bytes": str(ledger.account("o")["bytes"]).encode(), "page:1": b"z"}


def test_lists_open_ones_and_ends_follow_the_record(ledger: Ledger) -> None:
    ledger.create("file", "f1", FILE | {"open": True, "expires": ledger.now + 1000})
    ledger.create("file", "f2", FILE)
    assert ledger.list_ids("file", "o")[2] == ["f2", "f1"]
    assert ledger.redis.smembers("eq:open:file") == {b"f1"}
    ledger.advance(999)
    ledger.watch()
    assert ledger.redis.exists("eq:file:f1")
    ledger.advance(1)
    ledger.watch()
    assert ledger.list_ids("file", "o")[2] == ["f2"]
    assert not ledger.redis.exists("eq:file:f1", "eq:open:file", "eq:due")
    ledger.change("file", "f2", ("c0", "c1"), FILE | {"listed": False, "expires": ledger.now + 1})
    assert ledger.list_ids("file", "o")[2] == []
    ledger.change("file", "f2", ("c1", "c2"), FILE)
    assert ledger.list_ids("file", "o")[2] == ["f2"]
    assert not ledger.redis.exists("eq:due")


def test_an_alias_finds_the_record_that_was_made_with_it(ledger: Ledger) -> None:
    def create(name: str, digest: str, kind: str = "batch") -> list[Any]:
        return ledger.create(kind, name, FILE, alias="k", digest=digest)

    assert create("b1", "d1") == [b"ok", b"b1"]
    assert create("b2", "d1") == [b"joined", b"b1"]
    assert create("b3", "d2") == [b"conflict"]
    assert create("f1", "d2", "file") == [b"ok", b"f1"]
    ledger.call("record_remove", "batch", "b1")
    assert create("b4", "d2") == [b"ok", b"b4"]


def test_changes_are_told(ledger: Ledger) -> None:
    with listening(ledger.redis, "eq:changed", "eq:steps") as news:
        ledger.create("file", "f1", FILE)
        ledger.change("file", "f1", ("c0", "c1"), FILE | {"open": True})
        ledger.call("record_remove", "file", "f1")
        assert news.messages() == [b"|f1", b"|f1", b"step", b"|f1", b"step"]
    assert ledger.redis.hgetall("eq:changes") == {b"file": b"3"}


def test_a_record_is_refused_where_memory_is_short(ledger: Ledger) -> None:
    ledger.set_sums("memory", used=700_000, limit=1000_000)
    assert ledger.create("file", "f1", FILE) == [b"memory"]
    assert ledger.create("file", "f1", FILE, max_memory=80) == [b"ok", b"f1"]
    assert ledger.change("file", "f1", ("c0", "c1"), FILE) == [b"ok"]
