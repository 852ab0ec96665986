"""What the web tier and metrics read of queues and owners."""

import pytest

from tasks.errors import SchemaMismatch
from tasks.ledger.heartbeat import LoadingWorker, beat, join, loading, stop
from tasks.ledger.overview import Queue, overview, read_account, took_counts
from tasks.ledger.read import check_schema
from tasks.ledger.redis_keys import SCHEMA
from tasks.ledger.task import Lane
from tests.integration.ledger.driver import Driver, failed, succeeded
from tests.ledger_builders import a_model, a_worker

ONLINE, BULK = Lane.ONLINE, Lane.BULK
TTL_MS = 5000


def figures(driver: Driver) -> Queue:
    return driver.run(overview("m"))["m"]


def test_a_queue_has_its_model_and_those_who_serve_it(driver: Driver) -> None:
    driver.run(loading("m", LoadingWorker("v", "org/model", "the hub", 1.5), TTL_MS))
    assert ([one.source for one in figures(driver).loading], figures(driver).workers) == (["the hub"], ())
    driver.run(join("m", a_worker("v", 100), a_model(), TTL_MS))
    driver.run(join("m", a_worker("w", 50), a_model(), TTL_MS))
    seen = figures(driver)
    assert (seen.model, seen.rate, seen.speed, seen.max_tokens) == (a_model(), 150, 150, a_model().max_tokens)
    assert ({worker.id for worker in seen.workers}, seen.loading, seen.absent_ms) == ({"v", "w"}, (), None)
    driver.run(stop("m", "v"))
    driver.advance(TTL_MS)
    driver.watch()
    gone = figures(driver)
    assert (gone.workers, gone.rate, gone.model) == ((), 50, a_model())
    assert gone.absent_ms is not None
    assert 0 <= driver.now_ms - gone.absent_ms <= TTL_MS


def test_what_waits_is_counted_by_lane_and_owner(driver: Driver) -> None:
    driver.submit((1, 10), (1, 5), owner="ann")
    driver.advance(1500)
    for _ in range(2):
        driver.submit((2, 7), owner="bob", lane=BULK)
    driver.advance(500)
    seen = figures(driver)
    assert (seen.backlog_cost, seen.backlog_tasks, seen.owners) == (
        {ONLINE: 15, BULK: 14},
        {ONLINE: 1, BULK: 2},
        {ONLINE: 1, BULK: 1},
    )
    assert (seen.oldest_waiting_s, seen.leases) == ({ONLINE: 2.0, BULK: 0.5}, 0)
    bob = driver.run(read_account("bob"))
    assert (bob.cost("m", BULK), bob.tasks("m", BULK), bob.cost("m", ONLINE)) == (14, 2, 0)
    driver.work_off()
    assert figures(driver).backlog_tasks == {ONLINE: 0, BULK: 0}


def test_ends_are_counted(driver: Driver) -> None:
    driver.submit((1, 10), lane=BULK)
    cancelled, bad, _ = (driver.submit(lane=BULK).task_id for _ in range(3))
    driver.submit(lane=BULK, deadline_in_ms=1000)
    driver.cancel(cancelled)
    driver.advance(1000)
    driver.watch()
    held = driver.claim()
    outcomes = [failed(piece) if piece.task_id == bad else succeeded(piece) for piece in held.pieces]
    driver.commit(held, outcomes)
    ends = {"ended_bulk_failed": 1, "ended_bulk_cancelled": 1, "ended_bulk_expired": 1}
    ends |= {"items_bulk_failed": 1, "items_bulk_completed": 2, "failed_items": 1, "committed_items": 2}
    assert ends.items() <= figures(driver).counters.items()
    counts = {"claims": 3, **took_counts([(BULK, 5)])}
    for _ in range(2):
        driver.run(beat("m", a_worker(), None, TTL_MS, counts=counts))
    assert figures(driver).counters["claims"] == 6
    took, sum_s = figures(driver).took(BULK)
    assert (sum(took), sum_s) == (2, 0.01)


def test_an_empty_redis_is_claimed_for_this_version(driver: Driver) -> None:
    assert [driver.ledger.run(check_schema()) for _ in range(2)] == [True, False], "it was empty"
    driver.client.set(SCHEMA, 1)
    with pytest.raises(SchemaMismatch):
        driver.run(check_schema())
    driver.client.delete(SCHEMA)
