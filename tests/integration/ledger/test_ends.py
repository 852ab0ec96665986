"""The other ends of a task: cancelled, expired, forgotten, and the interest that keeps a synchronous one alive."""

import pytest
import redis

from tasks.ledger import Alias, CommitOutcome, Lane, State, operations
from tasks.ledger.keys import queue_key
from tests.integration.ledger.driver import LEASE_MS, TTL_MS, Driver, finished, unchanging
from tests.integration.ledger.snapshot import Snapshot


def test_a_cancelled_task_never_starts(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    assert driver.cancel(task_id) == "cancelled"
    assert driver.claim().units == ()
    assert driver.task(task_id).state is State.CANCELLED
    assert driver.watch().ready == 0


def test_cancelling_again_and_after_other_ends(driver: Driver) -> None:
    cancelled, completed = driver.submit().task_id, driver.submit().task_id
    driver.cancel(cancelled)
    driver.work_off()
    before = unchanging(driver.task(cancelled))
    assert driver.cancel(cancelled) == "was_cancelled"
    assert driver.cancel(completed) == "ended"
    assert driver.cancel("task_unknown") == "unknown"
    assert unchanging(driver.task(cancelled)) == before


def test_vectors_that_were_finished_stay_readable_after_a_cancel(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0], mark=3)])
    driver.cancel(task_id)
    result = driver.result(task_id)
    assert result.vectors[0].tolist() == [0, 3]
    assert {index: error.code for index, error in result.errors.items()} == {1: "cancelled"}


@pytest.mark.parametrize("end", ["cancel", "expire", "forget"])
def test_a_commit_after_the_end_changes_nothing_and_recreates_no_key(
    driver: Driver, redis_client: redis.Redis, end: str
) -> None:
    task_id = driver.submit((2, 10), (1, 10), metadata=b"{}", deadline_in_ms=100).task_id
    claim = driver.claim()
    if end == "expire":
        driver.advance(100)
        driver.watch()
    else:
        getattr(driver, end)(task_id)
    before = Snapshot.take(redis_client).named("eq:")
    assert driver.commit(claim) == [CommitOutcome.STALE] * 2
    after = Snapshot.take(redis_client).named("eq:")
    for name in before.keys() - after.keys():
        assert name.startswith(("q:m:claim:", "q:m:leases"))
    state = "q:m:state"
    assert {k: v for k, v in after.items() if k != state} == {k: before[k] for k in after if k != state}


@pytest.mark.parametrize("end", ["cancel", "forget"])
def test_what_an_ended_task_leaves_leased_vanishes_with_the_lease(
    driver: Driver, redis_client: redis.Redis, end: str
) -> None:
    task_id = driver.submit((2, 10)).task_id
    driver.claim()
    getattr(driver, end)(task_id)
    driver.advance(LEASE_MS)
    assert driver.watch().leases == 0
    assert not Snapshot.take(redis_client).named("eq:q:m:claim:")
    assert driver.claim().units == ()


def test_ended_tasks_no_longer_count_as_backlog(driver: Driver) -> None:
    for lane in Lane:
        ids = [driver.submit((2, 10), (1, 5), lane=lane, deadline_in_ms=100 if n else None).task_id for n in range(3)]
        claim = driver.claim(max_units=1)
        driver.commit(claim)
        driver.cancel(ids[0])
        driver.forget(ids[1])
        driver.advance(100)
        driver.watch()
    overview = driver.run(operations.overview("m"))["m"]
    assert set(overview.backlog_cost.values()) == set(overview.backlog_tasks.values()) == {0}
    assert overview.backlog_bytes == 0


def test_deadlines_end_tasks_without_any_worker(driver: Driver) -> None:
    task_id = driver.submit(deadline_in_ms=1000).task_id
    driver.advance(999)
    assert driver.watch().expired == 0
    driver.advance(1)
    assert driver.watch().expired == 1
    assert driver.task(task_id).state is State.EXPIRED
    assert driver.result(task_id).errors[0].code == "expired"


def test_a_claim_skips_what_nobody_wants_any_more(driver: Driver) -> None:
    dead = [driver.submit(deadline_in_ms=1000).task_id for _ in range(3)]
    driver.advance(1000)
    alive = driver.submit().task_id
    assert [u.task_id for u in driver.claim().units] == [alive]
    assert {driver.task(task_id).state for task_id in dead} == {State.EXPIRED}


def test_many_expired_tasks_do_not_make_one_claim_long(driver: Driver) -> None:
    for _ in range(150):
        driver.submit(deadline_in_ms=10)
    driver.advance(10)
    alive = driver.submit().task_id
    claims = []
    while not (claim := driver.claim()).units:
        assert claim.more, "ready work was not reported"
        claims.append(claim)
    assert len(claims) == 2  # 64 each
    assert [u.task_id for u in claim.units] == [alive]


def test_watch_ends_expired_tasks_in_parts(driver: Driver) -> None:
    for _ in range(100):
        driver.submit(deadline_in_ms=10)
    driver.advance(10)
    seen = [driver.watch() for _ in range(3)]
    assert [(watched.expired, watched.more) for watched in seen] == [(64, True), (36, False), (0, False)]


def test_deadlines_of_tasks_that_are_gone_do_not_hide_the_others(driver: Driver) -> None:
    deadlines = queue_key(driver.model, "deadlines", driver.ledger.root)
    driver.ledger.client.zadd(deadlines, {f"gone{n}": 1 for n in range(64)})
    driver.submit(deadline_in_ms=10)
    driver.advance(10)
    seen = [driver.watch() for _ in range(2)]
    assert [(watched.expired, watched.more) for watched in seen] == [(0, True), (1, False)]


def test_a_task_in_progress_expires_too(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10), deadline_in_ms=1000).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0])])
    driver.advance(1000)
    driver.watch()
    assert driver.commit(claim, [finished(claim.units[1])]) == [CommitOutcome.STALE]
    result = driver.result(task_id)
    assert (result.task.state, result.task.completed) == (State.EXPIRED, 1)
    assert set(result.errors) == {1}


def test_a_disconnect_shortens_the_interest_and_a_new_waiter_prolongs_it(driver: Driver) -> None:
    task_id = driver.submit(deadline_in_ms=60_000).task_id
    want = operations.want
    assert driver.run(want("m", task_id, 10_000, shorten=True))
    assert driver.task(task_id).deadline_ms == driver.now_ms + 10_000
    assert driver.run(want("m", task_id, 20_000, shorten=True))
    assert driver.task(task_id).deadline_ms == driver.now_ms + 10_000
    assert driver.run(want("m", task_id, 5_000, shorten=False))
    assert driver.task(task_id).deadline_ms == driver.now_ms + 10_000
    assert driver.run(want("m", task_id, 30_000, shorten=False))
    driver.advance(29_999)
    assert driver.watch().expired == 0
    driver.advance(1)
    assert driver.watch().expired == 1


def test_nobody_can_want_what_has_ended_or_has_no_deadline(driver: Driver) -> None:
    ended, for_ever = driver.submit(deadline_in_ms=1000).task_id, driver.submit().task_id
    driver.cancel(ended)
    for task_id in (ended, for_ever, "task_unknown"):
        assert not driver.run(operations.want("m", task_id, 10_000, shorten=False))
    assert driver.task(for_ever).deadline_ms is None
    driver.advance(10_000)
    assert driver.watch().expired == 0


def test_forgetting_leaves_no_key(driver: Driver, redis_client: redis.Redis) -> None:
    driver.submit()
    driver.work_off()
    before = set(Snapshot.take(redis_client).keys)
    alias = Alias("a" * 32, "d" * 32, join=False)
    ids = [
        driver.submit((1, 10), (1, 10), metadata=b"{}", deadline_in_ms=1000, alias=alias if n == 0 else None).task_id
        for n in range(3)
    ]
    first = driver.claim(max_units=1)
    driver.commit(first)
    driver.release(driver.claim(max_units=1))
    for task_id in ids:
        assert driver.forget(task_id)
        assert not driver.forget(task_id)
        assert driver.run(operations.read_task(task_id)) is None
    assert set(Snapshot.take(redis_client).keys) == before


@pytest.mark.parametrize("end", ["complete", "cancel", "expire"])
def test_every_key_of_an_ended_task_expires(driver: Driver, redis_client: redis.Redis, end: str) -> None:
    alias = Alias("a" * 32, "d" * 32, join=True)
    task_id = driver.submit((2, 10), (1, 10), metadata=b"{}", alias=alias, deadline_in_ms=1000).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0])])
    if end == "complete":
        driver.commit(claim, [finished(claim.units[1])])
    elif end == "cancel":
        driver.cancel(task_id)
    else:
        driver.advance(1000)
        driver.watch()
    keys = Snapshot.take(redis_client).keys
    mine = {name: key.ttl_ms for name, key in keys.items() if task_id in name or ":alias:" in name}
    assert set(mine) == {f"eq:{kind}:{task_id}" for kind in ("task", "result", "meta")} | {
        "eq:alias:anonymous:" + "a" * 32
    }
    assert all(0 < ttl <= TTL_MS + (1000 if ":alias:" in name else 0) for name, ttl in mine.items())


def test_a_task_of_another_model_is_unknown(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = driver.submit((1, 10), deadline_in_ms=1000).task_id
    before = Snapshot.take(redis_client).values
    other = "another-model"
    assert driver.run(operations.cancel(other, task_id)) == "unknown"
    assert driver.run(operations.forget(other, task_id)) is False
    assert driver.run(operations.want(other, task_id, 5000, shorten=False)) is False
    assert Snapshot.take(redis_client).values == before


def test_a_forgotten_task_that_comes_again_is_not_disturbed_by_old_claims(driver: Driver) -> None:
    driver.submit(task_id="again")
    old = driver.claim("old")
    driver.forget("again")
    driver.submit(task_id="again")
    assert driver.claim("old", token=old.token).units == (), "a unit of another claim was handed out"
    driver.advance(1000)
    new = driver.claim("new")
    driver.advance(LEASE_MS - 1000)
    driver.watch()
    assert driver.commit(old) == [CommitOutcome.STALE]
    assert driver.commit(new) == [CommitOutcome.COMMITTED]
