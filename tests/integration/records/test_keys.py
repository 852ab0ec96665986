"""API keys in Redis: found by their names, one to an owner, with marks that stay."""

import time
from collections.abc import Iterator

import pytest
import redis

from tasks.records import store
from tasks.records.api_keys import GONE, KINDS, PURGE, Key, Mark, Scope, anonymous_owner, make_key, make_mark
from tasks.records.store import ALL, AnyRecord, ReadRecord, Standing, new_change
from tests.integration.ledger.driver import Driver
from tests.raises_code import raises_code


def key(name: str = "one", owner: str = "owner_1") -> Key:
    return Key(name=name, owner=owner, digests=(), scopes=frozenset({Scope.READ}), created=1)


def made(driver: Driver, one: Key) -> bool:
    return driver.run(make_key(one, new_change()))


def marked(driver: Driver, owner: str = "owner_1", at_s: float = 6.0) -> str:
    return driver.run(make_mark(Mark(name="one", owner=owner, purged=at_s)))


def stored(driver: Driver, owner: str = "owner_1") -> ReadRecord[Key]:
    [found] = driver.run(store.read(Key, [owner]))
    assert found is not None
    return found


def listed(driver: Driver, of: str, kind: str = "key") -> list[str]:
    return driver.run(store.listed_ids(kind, of, limit=100))[0]


def change(driver: Driver, after: Key) -> bool:
    return driver.run(store.change(stored(driver, after.owner), after))


@pytest.fixture
def full(redis_client: redis.Redis) -> Iterator[None]:
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1)
    yield
    redis_client.config_set("maxmemory", limit)


def test_a_process_learns_of_each_change(driver: Driver) -> None:
    news = driver.run(store.news(*KINDS))
    assert news.changes == ("", "")
    assert abs(news.now_s - time.time()) < 60
    seen: set[tuple[str, ...]] = {news.changes}
    made(driver, key())
    for _ in range(2):
        seen.add(driver.run(store.news(*KINDS)).changes)
        change(driver, key())  # the same again is a change as well
    driver.run(store.remove(Key, "owner_1"))
    seen.add(driver.run(store.news(*KINDS)).changes)
    marked(driver)
    seen.add(driver.run(store.news(*KINDS)).changes)
    assert len(seen) == 5
    assert driver.run(store.news("key")).changes != ("",), "a service that has had a key stays closed"


def test_a_name_and_an_owner_are_given_once(driver: Driver) -> None:
    call = make_key(key(), "this")
    assert driver.run(call)
    assert driver.run(call), "this very call, again"
    assert not made(driver, key(owner="owner_2"))
    assert not made(driver, key(name="two"))
    assert made(driver, key("two", "owner_2"))
    assert sorted(listed(driver, ALL)) == ["owner_1", "owner_2"]
    assert [stored(driver, owner).alias for owner in ("owner_1", "owner_2")] == ["@all:one", "@all:two"]


def test_a_mark_outlives_its_key(driver: Driver) -> None:
    class Thing(AnyRecord):
        KIND = "thing"
        owner: str = "owner_1"

        @property
        def record_id(self) -> str:
            return "t"

        def standing(self) -> Standing:
            return Standing(self.owner)

    made(driver, key())
    assert change(driver, key().revoke(5.0))
    assert marked(driver) == "owner_1"
    driver.run(store.remove(Key, "owner_1"))
    assert (listed(driver, ALL), listed(driver, PURGE, "mark")) == ([], ["owner_1"]), "it is still to be swept"
    assert made(driver, key(owner="owner_2")), "the name is free"
    [mark] = driver.run(store.listed(Mark, ALL)).records
    assert mark.record is not None
    assert driver.run(store.change(mark, mark.record.model_copy(update={"swept": 8.0})))
    assert [listed(driver, of, "mark") for of in (PURGE, GONE)] == [[], ["owner_1"]]
    assert not made(driver, key("three", "owner_1"))
    with raises_code("invalid_api_key"):
        driver.run(store.create(Thing()))
    assert driver.run(store.create(Thing(owner="owner_2"))) == "t"


def test_an_owner_has_one_mark_which_stays_as_it_is(driver: Driver) -> None:
    owners = [anonymous_owner(0), anonymous_owner(1)]
    for owner, at_s in ((owners[0], 1.0), (owners[0], 2.0), (owners[1], 3.0)):
        assert marked(driver, owner, at_s) == owner
    marks = driver.run(store.listed(Mark, ALL, order=store.Order.ASC)).records
    assert [(one.id, one.record.purged) for one in marks if one.record] == [(owners[0], 1.0), (owners[1], 3.0)]
    assert listed(driver, ALL) == []


@pytest.mark.usefixtures("full")
def test_a_full_redis_lets_keys_be_made_and_revoked(driver: Driver) -> None:
    assert made(driver, key())
    assert change(driver, key().revoke(5.0))
    assert stored(driver).record == key().revoke(5.0)
    assert marked(driver) == "owner_1"
    assert driver.run(store.remove(Key, "owner_1")) is not None
