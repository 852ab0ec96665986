"""Aliases: a repeated request finds its task, by `Idempotency-Key` or because it is the same synchronous request."""

from typing import Literal

import pytest
import redis

from tasks.ledger import Alias, State
from tests.integration.ledger.driver import TTL_MS, Driver, failed
from tests.raises_code import raises_code

NAME, DIGEST, OTHER_DIGEST = "a" * 32, "d" * 32, "e" * 32
KEY = Alias(NAME, DIGEST, join=False)
SAME = Alias(NAME, DIGEST, join=True)

Ending = Literal["queued", "in_progress", "completed", "failed", "cancelled", "expired"]
ENDINGS: tuple[Ending, ...] = ("queued", "in_progress", "completed", "failed", "cancelled", "expired")


def brought_to(driver: Driver, ending: Ending, alias: Alias) -> str:
    """A task with this alias, in the state that was asked for."""
    task_id = driver.submit(alias=alias, deadline_in_ms=1000).task_id
    if ending in {"in_progress", "completed", "failed"}:
        claim = driver.claim()
        if ending != "in_progress":
            driver.commit(claim, [failed(claim.units[0])] if ending == "failed" else None)
    elif ending == "cancelled":
        driver.cancel(task_id)
    elif ending == "expired":
        driver.advance(1000)
        driver.watch()
    assert driver.task(task_id).state == ending
    return task_id


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_idempotency_key_gets_the_same_task_whatever_its_state(driver: Driver, ending: Ending) -> None:
    task_id = brought_to(driver, ending, KEY)
    again = driver.submit(alias=KEY)
    assert (again.task_id, again.joined) == (task_id, True)
    assert driver.task(task_id).state == ending


@pytest.mark.parametrize("ending", ["queued", "completed"])
def test_an_idempotency_key_with_another_body_is_refused(driver: Driver, ending: Ending) -> None:
    brought_to(driver, ending, KEY)
    with raises_code("idempotency_key_reused"):
        driver.submit(alias=Alias(NAME, OTHER_DIGEST, join=False))


def test_aliases_of_different_owners_are_apart(driver: Driver) -> None:
    first = driver.submit(alias=KEY, owner="one")
    second = driver.submit(alias=Alias(NAME, OTHER_DIGEST, join=False), owner="two")
    assert not second.joined
    assert second.task_id != first.task_id


@pytest.mark.parametrize("ending", ["queued", "in_progress", "completed"])
def test_the_same_request_joins_a_task_that_is_open_or_completed(driver: Driver, ending: Ending) -> None:
    task_id = brought_to(driver, ending, SAME)
    again = driver.submit(alias=SAME, deadline_in_ms=1000)
    assert (again.task_id, again.joined) == (task_id, True)


@pytest.mark.parametrize("ending", ["failed", "cancelled", "expired"])
def test_the_same_request_replaces_a_task_that_ended_otherwise(driver: Driver, ending: Ending) -> None:
    task_id = brought_to(driver, ending, SAME)
    again = driver.submit(alias=SAME, deadline_in_ms=1000)
    assert not again.joined
    assert again.task_id != task_id
    assert driver.submit(alias=SAME, deadline_in_ms=1000).task_id == again.task_id


def test_joining_prolongs_the_interest_and_never_shortens_it(driver: Driver) -> None:
    task_id = driver.submit(alias=SAME, deadline_in_ms=1000).task_id
    driver.advance(900)
    driver.submit(alias=SAME, deadline_in_ms=1000)
    assert driver.task(task_id).deadline_ms == driver.now_ms + 1000
    driver.submit(alias=SAME, deadline_in_ms=10)
    assert driver.task(task_id).deadline_ms == driver.now_ms + 1000
    driver.advance(999)
    assert driver.watch().expired == 0
    driver.advance(1)
    assert driver.watch().expired == 1


def test_joining_a_completed_task_does_not_keep_it_for_longer(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = brought_to(driver, "completed", SAME)
    redis_client.pexpire(f"eq:task:{task_id}", 60_000)
    assert driver.submit(alias=SAME, deadline_in_ms=1000).task_id == task_id
    assert redis_client.pttl(f"eq:task:{task_id}") <= 60_000


def test_a_result_about_to_vanish_is_not_joined(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = brought_to(driver, "completed", SAME)
    redis_client.pexpire(f"eq:task:{task_id}", 4_000)
    again = driver.submit(alias=SAME, deadline_in_ms=1000)
    assert (again.joined, again.task_id == task_id) == (False, False)
    driver.work_off()
    assert driver.task(again.task_id).state is State.COMPLETED


def test_an_alias_lives_as_long_as_its_task(driver: Driver, redis_client: redis.Redis) -> None:
    alias_key = f"eq:alias:anonymous:{NAME}"
    task_id = driver.submit(alias=KEY).task_id
    assert redis_client.pttl(alias_key) == -1
    driver.cancel(task_id)
    assert 0 < redis_client.pttl(alias_key) <= TTL_MS


def test_the_alias_of_a_task_with_a_caller_outlives_it_from_the_start(
    driver: Driver, redis_client: redis.Redis
) -> None:
    """It saves work and promises nothing, so the end of the task need not look at it."""
    alias_key = f"eq:alias:anonymous:{NAME}"
    driver.submit(alias=SAME, deadline_in_ms=1000)
    assert TTL_MS < redis_client.pttl(alias_key) <= TTL_MS + 1000
    driver.submit(alias=SAME, deadline_in_ms=50_000)
    assert TTL_MS + 1000 < redis_client.pttl(alias_key) <= TTL_MS + 50_000
    driver.work_off()
    assert redis_client.pttl(alias_key) > TTL_MS


def test_an_idempotency_key_lives_as_long_as_its_task_also_with_a_deadline(
    driver: Driver, redis_client: redis.Redis
) -> None:
    alias_key = f"eq:alias:anonymous:{NAME}"
    driver.submit(alias=KEY, deadline_in_ms=1000, listed=True)
    assert redis_client.pttl(alias_key) == -1
    driver.work_off()
    assert 0 < redis_client.pttl(alias_key) <= TTL_MS


@pytest.mark.parametrize("how", ["forget", "end"])
def test_a_replaced_task_does_not_take_the_alias_with_it(driver: Driver, redis_client: redis.Redis, how: str) -> None:
    old = driver.submit(alias=SAME, deadline_in_ms=1000).task_id
    if how == "forget":
        driver.cancel(old)
        new = driver.submit(alias=SAME, deadline_in_ms=5000).task_id
        driver.forget(old)
    else:  # another request under the same name
        new = driver.submit(alias=Alias(NAME, OTHER_DIGEST, join=True), deadline_in_ms=5000).task_id
        driver.cancel(old)
    assert redis_client.pttl(f"eq:alias:anonymous:{NAME}") > TTL_MS, "the new task's alias is gone or will go"
    digest = DIGEST if how == "forget" else OTHER_DIGEST
    assert driver.submit(alias=Alias(NAME, digest, join=True), deadline_in_ms=5000).task_id == new


def test_an_alias_whose_task_is_gone_is_free_again(driver: Driver, redis_client: redis.Redis) -> None:
    old = brought_to(driver, "completed", KEY)
    redis_client.delete(f"eq:task:{old}")
    assert not driver.submit(alias=Alias(NAME, OTHER_DIGEST, join=False)).joined


def test_a_retry_storm_costs_one_round_of_work(driver: Driver) -> None:
    for _ in range(20):
        driver.submit((2, 20), alias=SAME, deadline_in_ms=1000)
    assert len(driver.work_off()) == 1
    for _ in range(20):
        driver.submit((2, 20), alias=SAME, deadline_in_ms=1000)
    assert driver.work_off() == []
