"""The store: what two writers do to records, in any order, is what a dictionary and a sum would be."""

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import redis

from tasks.errors import EmbedqError, StorageFull
from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.scripts import Operation
from tasks.records import store
from tasks.records.store import OPEN, AnyRecord, Left, Order, ReadRecord, Room, Standing, left_of, new_change
from tests.integration.ledger.driver import Driver
from tests.thorough import some

RECORD_BYTES = 1024
OWNERS = ("ann", "bob")


class Thing(AnyRecord):
    KIND: ClassVar[str] = "thing"

    id: str
    owner: str = "ann"
    size: int = 0
    seen: bool = True
    busy: bool = False
    name: str = ""
    note: str = ""

    @property
    def record_id(self) -> str:
        return self.id

    def standing(self) -> Standing:
        lists = [of for of, there in ((self.owner, self.seen), (OPEN, self.busy)) if there]
        alias = f"{self.owner}:{self.name}" if self.name else ""
        return Standing(self.owner, {"stored": self.size, "files": 1}, lists, alias, f"things/{self.id}")


@dataclass
class World:
    """Records as they must be, and two writers who have read some of them at some time."""

    driver: Driver
    rng: random.Random
    there: dict[str, tuple[Thing, str, int]] = field(default_factory=dict)
    """AnyRecord, name of its last change, end of its life (0: none)."""
    litter: set[str] = field(default_factory=set)
    read: list[dict[str, ReadRecord[Thing]]] = field(default_factory=lambda: [{}, {}])
    calls: list[tuple[Operation[Any], object]] = field(default_factory=list)
    """The last call and its reply, which may get lost."""
    digests: dict[str, str] = field(default_factory=dict)

    def step(self) -> None:
        action = self.rng.choice([self.create, self.create, self.change, self.change, self.change, self.remove,
                                  self.look, self.look, self.time, self.again])  # fmt: skip
        action(self.rng.randrange(2))
        self.check()

    def thing(self, record_id: str, owner: str) -> Thing:
        values = {"size": self.rng.randrange(5) * 100, "seen": self.rng.random() < 0.8, "busy": self.rng.random() < 0.3}
        note = "x" * self.rng.randrange(40)
        return Thing(id=record_id, owner=owner, note=note, **values)

    def create(self, _writer: int) -> None:
        record = self.thing(f"r{self.rng.randrange(8)}", self.rng.choice(OWNERS))
        if self.rng.random() < 0.5:
            record = record.model_copy(update={"name": f"n{self.rng.randrange(3)}"})
        life, change, most = self.rng.choice([0, 1000]), new_change(), self.rng.choice([300, 900])
        digest = self.rng.choice("xy") * 4
        call = store.create(record, Room({"stored": most}), for_ms=life, digest=digest, change=change)
        by_name = [i for i, (one, _, _) in self.there.items() if record.name and one.name == record.name
                   and one.owner == record.owner]  # fmt: skip
        held = sum(one.size for one, _, _ in self.there.values() if one.owner == record.owner)
        expected: object
        if by_name:
            same = self.digests.get(by_name[0]) == digest
            expected = by_name[0] if same else "idempotency_key_reused"
        elif record.id in self.there:
            expected = record.id
        elif held + record.size > most:
            expected = "quota_exceeded"
        else:
            expected = record.id
            self.there[record.id] = (record, change, self.driver.now_ms + life if life else 0)
            self.digests[record.id] = digest
        self.call(call, expected)

    def change(self, writer: int) -> None:
        if not self.read[writer]:
            return
        last = self.rng.choice(list(self.read[writer].values()))
        assert last.record is not None
        record = self.thing(last.id, last.record.owner)
        if self.rng.random() < 0.7:
            record = record.model_copy(update={"name": last.record.name})
        life, change, most = self.rng.choice([store.AS_BEFORE, store.FOR_EVER, 500]), new_change(), 900
        held = sum(one.size for i, (one, _, _) in self.there.items() if one.owner == record.owner and i != last.id)
        before = self.there.get(last.id)
        expected: object
        if before is None or before[1] != last.change:
            expected = False
        elif held + record.size > most:
            expected = "quota_exceeded"
        else:
            expected = True
            ends = {store.AS_BEFORE: before[2], store.FOR_EVER: 0}.get(life, self.driver.now_ms + life)
            self.there[last.id] = (record, change, ends)
        self.call(store.change(last, record, Room({"stored": most}), for_ms=life, name=change), expected)

    def remove(self, _writer: int) -> None:
        record_id = f"r{self.rng.randrange(8)}"
        record, _, _ = self.there.get(record_id, (None, "", 0))
        self.forget(record_id)
        self.call(store.remove(Thing, record_id), record)

    def look(self, writer: int) -> None:
        ids = sorted(self.there)
        found = self.driver.run(store.read(Thing, ids))
        self.read[writer] |= {one.id: one for one in found if one is not None and self.rng.random() < 0.7}

    def time(self, _writer: int) -> None:
        self.driver.advance(self.rng.choice([1, 400, 1000]))
        self.driver.run(watch(DOCUMENTS))
        self.calls = []
        for record_id, (_, _, ends) in list(self.there.items()):
            if 0 < ends <= self.driver.now_ms:
                self.forget(record_id)

    def again(self, _writer: int) -> None:
        """The answer was lost: the same call, before anybody has made another, says the same and changes nothing."""
        if self.calls:
            call, expected = self.calls[-1]
            if isinstance(expected, Thing):
                expected = None  # a removal tells what it has removed, once
            self.call(call, expected)

    def call(self, call: Operation[Any], expected: object) -> None:
        try:
            reply: object = self.driver.run(call)
        except EmbedqError as error:
            reply = error.code
        assert reply == expected
        self.calls = [(call, expected)]

    def forget(self, record_id: str) -> None:
        if record_id in self.there:
            self.there.pop(record_id)
            self.litter.add(f"things/{record_id}")

    def check(self) -> None:
        client: Any = self.driver.client
        found = self.driver.run(store.read(Thing, sorted(self.there)))
        assert {one.id: (one.record, one.change) for one in found if one} == {
            i: (record, change) for i, (record, change, _) in self.there.items()
        }
        for owner in OWNERS:
            own = [record for record, _, _ in self.there.values() if record.owner == owner]
            sizes = sum(RECORD_BYTES + len(record.to_json()) for record in own)
            assert self.driver.run(left_of(owner)) == Left(0, len(own), sum(record.size for record in own), sizes)
            listed = self.driver.run(store.listed(Thing, owner, order=Order.ASC))
            assert [one.id for one in listed.records] == sorted(record.id for record in own if record.seen)
        busy = sorted(record.id for record, _, _ in self.there.values() if record.busy)
        assert self.driver.run(store.listed_ids("thing", OPEN, limit=100, order=Order.ASC)) == (busy, False)
        ends = {f"thing:{i}".encode(): ends for i, (_, _, ends) in self.there.items() if ends}
        assert dict(client.zrange("eq:ends", 0, -1, withscores=True)) == ends
        aliases = {
            f"eq:record-alias:thing:{record.owner}:{record.name}" for record, _, _ in self.there.values() if record.name
        }
        assert {name.decode() for name in client.keys("eq:record-alias:*")} == aliases
        assert {entry.decode() for entry in client.zrange("eq:litter", 0, -1)} == self.litter


@pytest.mark.parametrize("seed", some(range(12), 0, 1))
def test_two_writers_and_time_keep_records_lists_and_accounts_as_a_dictionary_would(driver: Driver, seed: int) -> None:
    world = World(driver, random.Random(seed))  # noqa: S311 - no secret
    for _ in range(250):
        world.step()
    for record_id in list(world.there):
        driver.run(store.remove(Thing, record_id))
    client: Any = driver.client
    names = {name.decode() for name in client.keys("eq:*")}
    assert {name for name in names if not name.startswith(("eq:q:", "eq:memory"))} == {"eq:changes", "eq:litter"}


def test_one_owner_cannot_fill_redis_with_records(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory", 200 * 2**20)
    try:
        driver.run(watch(DOCUMENTS))
        room, note = Room(max_memory_percent=3), "x" * 100_000
        used = int(redis_client.info("memory")["used_memory"])

        def fill() -> None:
            for n in range((6 * 2**20 - used) // 100_000 + 5):
                driver.run(store.create(Thing(id=f"t{n}", note=note), room))
                driver.run(watch(DOCUMENTS))

        with pytest.raises(StorageFull, match="share"):
            fill()
        assert driver.run(store.create(Thing(id="b", owner="bob", note=note), room)) == "b"
    finally:
        redis_client.config_set("maxmemory", 0)
