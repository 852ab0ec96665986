"""Wake-up: ready work always has a bell on its way or a lingering worker told, and rings do not pile up."""

from collections.abc import Callable, Iterator

import pytest
import redis

from tasks.ledger import Alias, Lane, operations
from tests.integration.ledger.driver import LEASE_MS, Driver
from tests.integration.ledger.listener import Listener

LINGER_MS = 800
SLACK_MS = 250
"""A registration outlasts the wait by this."""

Linger = Callable[[str], Listener]


@pytest.fixture
def linger(driver: Driver, redis_client: redis.Redis) -> Iterator[Linger]:
    """Makes a worker that subscribes and then finds nothing to do."""
    listeners: list[Listener] = []

    def start(worker: str) -> Listener:
        listener = Listener.of_worker(redis_client, worker)
        listeners.append(listener)
        claim = driver.claim(worker, rang=True, linger_ms=LINGER_MS)
        assert (claim.units, claim.wait_ms) == ((), LINGER_MS)
        return listener

    yield start
    for listener in listeners:
        listener.close()


def leave(driver: Driver, worker: str, *, warm: bool) -> bool:
    return driver.run(operations.leave("m", worker, warm=warm))


def test_the_first_submit_rings_and_the_following_ones_do_not(driver: Driver) -> None:
    assert [driver.submit().bell_due for _ in range(20)] == [True] + [False] * 19


def test_a_submit_wakes_a_lingering_worker_instead_of_ringing(driver: Driver, linger: Linger) -> None:
    listener = linger("w")
    assert not driver.submit(lane=Lane.BULK).bell_due
    assert listener.messages() == [b"work"]


def test_one_submit_wakes_one_worker(driver: Driver, linger: Linger) -> None:
    listeners = [linger("w1"), linger("w2"), linger("w3")]
    driver.submit()
    assert sorted(len(listener.messages()) for listener in listeners) == [0, 0, 1]
    driver.submit()
    assert sum(len(listener.messages()) for listener in listeners) == 1


def test_a_dead_lingering_worker_is_passed_over(driver: Driver, linger: Linger) -> None:
    dead, alive = linger("dead"), linger("alive")
    driver.advance(1)
    driver.claim("dead", linger_ms=LINGER_MS)  # the latest to linger would be the first to be woken
    dead.close()
    assert not driver.submit().bell_due
    assert alive.messages() == [b"work"]


def test_the_bell_rings_when_all_lingering_workers_are_dead(driver: Driver, linger: Linger) -> None:
    linger("w1").close()
    linger("w2").close()
    assert driver.submit().bell_due


def test_a_registration_ends_a_little_after_the_wait(driver: Driver, linger: Linger) -> None:
    listener = linger("w")
    driver.advance(LINGER_MS + SLACK_MS - 1)
    assert not driver.submit(lane=Lane.BULK).bell_due
    assert listener.messages() == [b"work"]
    driver.work_off()
    again = linger("w2")
    driver.advance(LINGER_MS + SLACK_MS)
    assert driver.submit().bell_due
    assert again.messages() == []


def test_a_claim_that_finds_work_does_not_linger(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim(linger_ms=LINGER_MS)
    assert claim.units
    assert claim.wait_ms == 0


def test_a_claim_of_the_online_lane_alone_does_not_linger(driver: Driver) -> None:
    assert driver.claim(linger_ms=LINGER_MS, online_only=True).wait_ms == 0
    driver.submit(lane=Lane.BULK)
    assert driver.claim(online_only=True).units == ()


def test_a_look_at_the_online_lane_rings_for_work_that_it_returned(driver: Driver) -> None:
    driver.submit(lane=Lane.BULK)
    driver.claim("dead", rang=True)
    driver.advance(LEASE_MS)
    looked = driver.claim("busy", online_only=True)
    assert (looked.units, looked.more, looked.bell_due) == ((), True, True)


def test_a_worker_waits_no_longer_than_the_next_lease_runs(driver: Driver) -> None:
    driver.submit()
    driver.claim("busy", lease_ms=300)
    assert driver.claim("idle", linger_ms=LINGER_MS).wait_ms == 300


def test_a_claim_that_leaves_work_wakes_another_worker(driver: Driver, linger: Linger) -> None:
    listeners = [linger("w1"), linger("w2")]
    driver.submit((1, 10), (1, 10))
    woken = next(i for i, listener in enumerate(listeners) if listener.messages())
    claim = driver.claim(f"w{woken + 1}", max_units=1)
    assert (claim.more, claim.bell_due) == (True, False)
    assert listeners[1 - woken].messages() == [b"work"]


def test_a_claim_that_leaves_work_rings_when_nobody_lingers(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 3)
    assert driver.claim("w1", rang=True, max_units=1).bell_due
    assert not driver.claim("w1", max_units=1).bell_due  # that message is still on its way
    assert not driver.claim("w1", max_units=1).more


def test_a_busy_worker_does_not_make_messages_pile_up(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 101)
    rings = int(driver.claim("w", rang=True, max_units=1).bell_due)
    for _ in range(99):
        driver.advance(250)
        rings += driver.claim("w", max_units=1).bell_due + driver.submit().bell_due + driver.watch().bell_due
    assert rings == 1


def test_only_the_first_claim_of_a_drain_clears_the_bell(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 3)
    driver.claim("w1", max_units=1)
    assert not driver.submit().bell_due
    driver.claim("w1", rang=True, max_units=9)
    assert driver.submit().bell_due


def test_looking_for_urgent_work_beside_bulk_work_writes_nothing(driver: Driver, redis_client: redis.Redis) -> None:
    def written() -> int:
        changes: int = redis_client.info("persistence")["rdb_changes_since_last_save"]
        return changes

    driver.submit((1, 10), (1, 10), lane=Lane.BULK)
    driver.claim("w", rang=True, max_units=1)  # leaves one, and rings for it
    before = written()
    for _ in range(9):
        driver.stand_still(50)
        assert driver.claim("w", online_only=True).units == ()
    assert written() == before
    driver.stand_still(50)
    driver.claim("w", online_only=True)  # the bell must not grow old: the worker is there
    assert written() > before


def test_a_bell_that_nobody_hears_is_rung_again_at_doubling_ages(driver: Driver) -> None:
    assert driver.submit().bell_due
    rung_after: list[int] = []
    waited_ms = 0
    while len(rung_after) < 8:
        driver.advance(500)
        waited_ms += 500
        if driver.watch().bell_due:
            rung_after.append(waited_ms)
            waited_ms = 0
    assert rung_after == [1000, 2000, 4000, 8000, 16_000, 32_000, 32_000, 32_000]


def test_hearing_the_bell_makes_it_young_again(driver: Driver) -> None:
    driver.submit((1, 10), (1, 10))
    for _ in range(10):
        driver.advance(32_000)
        driver.watch()
    driver.claim(rang=True, max_units=1)
    driver.advance(1000)
    assert driver.watch().bell_due


def test_a_clock_that_went_back_does_not_silence_the_bell(driver: Driver) -> None:
    driver.submit()
    driver.advance(-60_000)
    assert driver.submit().bell_due


def test_watch_rings_for_ready_work_even_after_it_told_somebody(driver: Driver, linger: Linger) -> None:
    listener = linger("w")
    driver.submit(lane=Lane.BULK)
    assert listener.messages() == [b"work"]  # and now it dies
    assert driver.watch().bell_due
    assert not driver.watch().bell_due


def test_watch_is_silent_without_work(driver: Driver) -> None:
    assert not driver.watch().bell_due
    driver.submit()
    driver.claim(rang=True)
    driver.advance(5000)
    assert not driver.watch().bell_due


def test_watch_rings_for_an_expired_lease(driver: Driver) -> None:
    driver.submit()
    driver.claim(rang=True)
    driver.advance(LEASE_MS)
    seen = driver.watch()
    assert (seen.bell_due, seen.ready, seen.leases) == (True, 1, 0)


@pytest.mark.parametrize("how", ["release", "abandon"])
def test_work_that_is_given_back_wakes_somebody(driver: Driver, linger: Linger, how: str) -> None:
    driver.submit()
    claim = driver.claim("w", rang=True)
    listener = linger("other")
    give_back = operations.release("m", claim.token) if how == "release" else operations.abandon("m", "w")
    assert not driver.run(give_back)
    assert listener.messages() == [b"work"]


@pytest.mark.parametrize("how", ["release", "abandon"])
def test_work_that_is_given_back_rings_when_nobody_lingers(driver: Driver, how: str) -> None:
    driver.submit()
    claim = driver.claim("w", rang=True)
    give_back = operations.release("m", claim.token) if how == "release" else operations.abandon("m", "w")
    assert driver.run(give_back)


def test_a_drain_that_worked_rings_once_more_so_that_a_trickle_finds_it_warm(driver: Driver, linger: Linger) -> None:
    linger("w")
    assert leave(driver, "w", warm=True)
    assert not driver.submit().bell_due  # its message is on the way, and it lingers no more


def test_a_drain_that_only_lingered_lets_go(driver: Driver, linger: Linger) -> None:
    listener = linger("w")
    assert not leave(driver, "w", warm=False)
    assert driver.submit().bell_due
    assert listener.messages() == []


def test_a_drain_that_leaves_work_behind_rings(driver: Driver) -> None:
    driver.submit()
    driver.claim("w", rang=True)
    driver.submit(*[(1, 1)] * 2)
    driver.claim("w", rang=True, max_units=1)
    driver.advance(1000)
    assert leave(driver, "w", warm=False)


def test_joining_a_waiting_task_repairs_a_lost_bell(driver: Driver) -> None:
    alias = Alias("a" * 32, "d" * 32, join=True)
    assert driver.submit(alias=alias, deadline_in_ms=60_000).bell_due
    driver.advance(1000)
    assert driver.submit(alias=alias, deadline_in_ms=60_000).bell_due


def test_a_retired_worker_is_not_woken(driver: Driver, linger: Linger) -> None:
    listener = linger("w")
    driver.run(operations.retire("m", "w"))
    assert driver.submit().bell_due
    assert listener.messages() == []


def test_a_message_lost_behind_a_busy_worker_is_noticed_a_second_after_its_slice(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 20)
    assert driver.claim("w", rang=True, max_units=1).bell_due  # and this message is lost
    for _ in range(8):
        driver.advance(250)
        driver.claim("w", max_units=1)
    assert not leave(driver, "w", warm=True), "the ledger cannot know yet"
    driver.advance(999)
    assert not driver.watch().bell_due
    driver.advance(1)
    assert driver.watch().bell_due
