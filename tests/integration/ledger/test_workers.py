"""Workers and models: who lives, how fast they are, and which data this Redis holds."""

import pytest
import redis

from tasks.errors import SchemaMismatch
from tasks.ledger import Lane, operations
from tests.integration.ledger.driver import Driver
from tests.ledger_builders import model_entry, worker_entry

ENTRY = model_entry()


def test_nothing_is_known_of_an_empty_redis(driver: Driver) -> None:
    assert driver.run(operations.overview()) == {}
    unknown = driver.run(operations.overview("m"))["m"]
    assert (unknown.entry, unknown.rate, unknown.workers) == (None, None, ())


def test_a_registered_model_outlives_its_workers(driver: Driver) -> None:
    driver.run(operations.register("m", ENTRY))
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=1000))
    driver.run(operations.retire("m", "w"))
    seen = driver.run(operations.overview())["m"]
    assert (seen.entry, seen.workers, seen.rate) == (ENTRY, (), 100.0)
    assert seen.counters["model_loads"] == 1


def test_workers_live_as_long_as_they_beat(driver: Driver) -> None:
    driver.run(operations.register("m", ENTRY))
    for name, rate in (("a", 100.0), ("b", 50.5)):
        driver.run(operations.beat("m", worker_entry(name, rate), ttl_ms=10_000))
    seen = driver.run(operations.overview())["m"]
    assert sorted(w.id for w in seen.workers) == ["a", "b"]
    assert seen.rate == pytest.approx(150, abs=1)
    driver.advance(9_000)
    driver.run(operations.beat("m", worker_entry("a", 80.0), ttl_ms=10_000))
    driver.advance(1_000)
    seen = driver.run(operations.overview())["m"]
    assert [w.id for w in seen.workers] == ["a"]
    driver.watch()
    assert driver.run(operations.overview())["m"].rate == 80.0


def test_the_last_known_rate_is_kept(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=1000))
    driver.advance(1000)
    driver.watch()
    assert driver.run(operations.overview("m"))["m"].rate == 100.0


def test_workers_that_vanished_leave_nothing(driver: Driver, redis_client: redis.Redis) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=1000))
    driver.claim("w", linger_ms=500)
    driver.advance(1000)
    driver.watch()
    assert not redis_client.exists("eq:q:m:workers", "eq:q:m:rates", "eq:q:m:lingering")


def test_backlog_and_counters_are_told_apart_by_model_and_lane(driver: Driver, redis_client: redis.Redis) -> None:
    other = Driver(redis_client, model="other/model:v2")
    driver.submit((2, 20))
    driver.submit((1, 7), lane=Lane.BULK)
    other.submit((1, 5), task_id="task_other")
    other.work_off()
    seen = driver.run(operations.overview("m", other.model))
    assert seen["m"].backlog_cost == {Lane.ONLINE: 20, Lane.BULK: 7}
    assert seen["m"].backlog_tasks == {Lane.ONLINE: 1, Lane.BULK: 1}
    assert seen["m"].backlog_bytes > 0
    assert seen[other.model].backlog_tasks == {Lane.ONLINE: 0, Lane.BULK: 0}
    assert seen[other.model].backlog_bytes == 0
    counters = seen[other.model].counters
    assert (counters["claims"], counters["committed_items"], counters["tokens"]) == (1, 1, 10)
    driver.claim()
    assert (driver.run(operations.overview("m"))["m"].leases, driver.watch().leases) == (1, 1)


def test_memory_in_use_is_seen_by_watch(driver: Driver, redis_client: redis.Redis) -> None:
    assert driver.run(operations.overview("m"))["m"].memory_percent == 0
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    redis_client.config_set("maxmemory", redis_client.info("memory")["used_memory"] * 2)
    driver.watch()
    redis_client.config_set("maxmemory", limit)  # type: ignore[arg-type]
    assert 35 <= driver.run(operations.overview("m"))["m"].memory_percent <= 65


def test_an_empty_redis_is_claimed_for_this_version(driver: Driver) -> None:
    driver.run(operations.check_schema())
    driver.run(operations.check_schema())


def test_data_of_another_version_is_refused(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:schema", 99)
    with pytest.raises(SchemaMismatch, match="schema 99"):
        driver.run(operations.check_schema())
    assert redis_client.get("eq:schema") == b"99"


def test_a_revision_keeps_the_vectors_that_it_was_given_first(driver: Driver) -> None:
    first, other = bytes(range(256)), b"\x00\r\n" * 100
    assert driver.run(operations.reference("c9745ed1d9f2", first)) == first
    assert driver.run(operations.reference("c9745ed1d9f2", other)) == first
    assert driver.run(operations.reference("b5c9b60c7a7a", other)) == other
    assert driver.run(operations.reference("c9745ed1d9f2", first)) == first


def test_a_redis_that_lost_its_data_learns_the_model_from_a_beat(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000, entry=ENTRY))
    assert driver.run(operations.overview("m"))["m"].entry == ENTRY


def test_watch_sends_no_bell_while_every_worker_has_a_claim(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=60_000))
    driver.submit((1, 10), (1, 10))
    held = driver.claim(max_units=1)
    for _ in range(10):
        driver.advance(1500)
        driver.run(operations.renew("m", held.token, 60_000))
        assert not driver.run(operations.watch("m")).bell_due
    driver.run(operations.beat("m", worker_entry("v", 100.0), ttl_ms=60_000))
    assert driver.run(operations.watch("m")).bell_due


def test_a_worker_that_joins_is_not_silenced_by_bells_from_before(driver: Driver) -> None:
    driver.submit()
    for _ in range(200):  # nobody answers, so the ledger believes each bell longer
        driver.advance(1000)
        driver.run(operations.watch("m"))
    assert driver.run(operations.abandon("m", "w"))


def test_watch_rings_while_one_worker_holds_several_claims_and_another_none(driver: Driver) -> None:
    for name in ("busy", "idle"):
        driver.run(operations.beat("m", worker_entry(name, 100.0), ttl_ms=60_000))
    for _ in range(3):
        driver.submit()
    for stream in ("busy/0", "busy/1"):
        assert driver.claim(stream, max_units=1, rang=True).units
    driver.advance(5000)
    assert driver.watch().bell_due
    assert driver.claim("idle/0", max_units=1, rang=True).units
    driver.submit()
    driver.advance(5000)
    assert not driver.watch().bell_due


WEEK_MS = 7 * 86_400_000


def known(driver: Driver) -> bool:
    return "m" in driver.run(operations.overview())


def test_a_model_that_nobody_serves_or_wants_is_forgotten_after_a_week(
    driver: Driver, redis_client: redis.Redis
) -> None:
    driver.run(operations.register("m", ENTRY))
    driver.watch()
    driver.advance(WEEK_MS - 1)
    driver.watch()
    assert known(driver)
    driver.advance(1)
    driver.watch()
    assert not known(driver)
    assert not redis_client.exists("eq:q:m:state")
    driver.watch()  # another web tier still knows it
    assert not redis_client.exists("eq:q:m:state")


def test_a_model_is_known_while_somebody_serves_it(driver: Driver, redis_client: redis.Redis) -> None:
    driver.run(operations.register("m", ENTRY))
    driver.watch()
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=1000))
    driver.watch()
    assert not redis_client.hexists("eq:q:m:state", "idle"), "a write with each beat"
    for _ in range(3):
        driver.advance(WEEK_MS)
        driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=1000))
        driver.watch()
        driver.advance(1000)
        driver.watch()  # it has missed some beats
        assert known(driver)


def test_a_model_is_known_while_it_has_work(driver: Driver) -> None:
    driver.run(operations.register("m", ENTRY))
    task = driver.submit(lane=Lane.BULK).task_id
    driver.watch()
    for _ in range(3):
        driver.advance(WEEK_MS)
        driver.watch()
        assert known(driver)
    driver.cancel(task)
    driver.watch()
    driver.advance(WEEK_MS - 1)
    driver.watch()
    assert known(driver)


def test_the_week_begins_anew_when_the_clock_went_back(driver: Driver) -> None:
    driver.run(operations.register("m", ENTRY))
    driver.advance(100 * WEEK_MS)
    driver.watch()
    driver.advance(-100 * WEEK_MS)
    driver.watch()
    driver.advance(WEEK_MS)
    driver.watch()
    assert not known(driver)


def test_a_worker_of_a_forgotten_model_makes_it_known_again(driver: Driver) -> None:
    driver.run(operations.register("m", ENTRY))
    driver.watch()
    driver.advance(WEEK_MS)
    driver.watch()
    driver.run(operations.beat("m", worker_entry("w", 100.0), 1000, ENTRY))
    assert known(driver)
