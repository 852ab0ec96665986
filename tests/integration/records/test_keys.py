"""API keys in Redis: read only after a change, changed only as they were read, whatever else is the matter."""

from collections.abc import Iterator

import pytest
import redis

from tasks.records.api_keys import Anonymous, Key, Scope, StoredKeys, read_keys, write_anonymous, write_key
from tests.integration.ledger.driver import Driver
from tests.raises_code import raises_code

ONE = Key(name="one", owner="of one", digests=(), scopes=frozenset({Scope.READ}), created=1).to_json()
OTHER = Key(name="one", owner="of one", digests=(), scopes=frozenset({Scope.BULK}), created=1).to_json()


def reading(driver: Driver, known: str | None = None) -> StoredKeys:
    return driver.ledger.run(read_keys(known))


@pytest.fixture
def full(redis_client: redis.Redis) -> Iterator[None]:
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1)
    yield
    redis_client.config_set("maxmemory", limit)


def test_what_is_written_is_read_once(driver: Driver) -> None:
    empty = reading(driver)
    assert (empty.now_s, empty.stamp, empty.records) == (driver.now_ms / 1000, "", {})
    assert reading(driver, "").records is None

    assert driver.ledger.run(write_key("one", b"", ONE))
    first = reading(driver, empty.stamp)
    assert first.records == {"one": ONE}
    assert reading(driver, first.stamp) == StoredKeys(first.now_s, first.stamp, None)

    assert driver.ledger.run(write_key("one", ONE, b""))
    last = reading(driver, first.stamp)
    assert last.records == {}
    assert len({empty.stamp, first.stamp, last.stamp}) == 3


def test_generations_of_what_is_made_without_keys_are_told_each_time_and_close_nothing(driver: Driver) -> None:
    first, second = Anonymous(1, 0, 5.0), Anonymous(1, 1, 5.0)
    assert driver.ledger.run(write_anonymous(b"", first))
    assert not driver.ledger.run(write_anonymous(b"", second))
    found = reading(driver, "")
    assert (found.stamp, found.records, Anonymous.from_text(found.anonymous)) == ("", None, first)
    assert driver.ledger.run(write_anonymous(found.anonymous, second))
    assert reading(driver).records == {}


def test_a_change_of_what_somebody_else_has_changed_is_refused(driver: Driver) -> None:
    driver.ledger.run(write_key("one", b"", ONE))
    stamp = reading(driver).stamp

    for before in (b"", OTHER):
        assert not driver.ledger.run(write_key("one", before, b'{"another": 1}'))

    assert reading(driver, stamp).records is None


def test_the_same_call_again_changes_nothing(driver: Driver) -> None:
    for before, after in ((b"", ONE), (ONE, OTHER), (OTHER, b"")):
        call = write_key("one", before, after)
        assert driver.ledger.run(call)
        stamp = reading(driver).stamp
        assert driver.ledger.run(call)
        assert reading(driver, stamp).records is None


def test_there_is_a_number_of_keys_that_is_enough(driver: Driver) -> None:
    for name in ("one", "two"):
        assert driver.ledger.run(write_key(name, b"", ONE, most=2))
    with raises_code("quota_exceeded"):
        driver.ledger.run(write_key("three", b"", ONE, most=2))
    assert driver.ledger.run(write_key("two", ONE, OTHER, most=2))


@pytest.mark.usefixtures("full")
def test_a_full_redis_lets_keys_be_made_and_revoked(driver: Driver) -> None:
    assert driver.ledger.run(write_key("one", b"", ONE))
    assert driver.ledger.run(write_key("one", ONE, OTHER))
    assert reading(driver).records == {"one": OTHER}
