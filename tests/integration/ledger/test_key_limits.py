"""Limits of one key, by Redis's clock: what is taken comes back in time, and a refusal takes and leaves nothing."""

import random

import pytest
import redis

from tasks.errors import EmbedqError, TooMany
from tasks.ledger import Admission, Alias, KeyAdmission, Lane, SubmitReply, operations
from tests.integration.ledger.driver import Driver, commands
from tests.integration.ledger.snapshot import Snapshot
from tests.ledger_builders import submission
from tests.raises_code import raises_code

RATE = 100.0
"""Tokens per second of the workers."""


def limited(**limits: int) -> Admission:
    return Admission(max_backlog_s=1e9, default_rate=RATE, key=KeyAdmission(**limits))


def left(reply: SubmitReply) -> int:
    assert reply.room is not None
    return reply.room.left


def earliest_s(driver: Driver, admission: Admission, cost: int = 10, **changed: object) -> int:
    """After how many seconds a task is accepted that is refused now. Nobody works meanwhile."""
    for seconds in range(1, 200):  # pragma: no branch
        driver.advance(1000)
        try:
            driver.submit((1, cost), admission=admission, **changed)
        except EmbedqError:
            continue
        return seconds
    raise AssertionError


# Requests per second


def test_requests_come_back_one_by_one(driver: Driver) -> None:
    def take() -> operations.Taken:
        return driver.run(operations.take_request("a", 4))

    assert [take().left for _ in range(4)] == [3, 2, 1, 0]
    refused = take()
    assert (refused.wait_s, refused.left, refused.reset_s) == (0.25, 0, 1.0)
    driver.advance(249)
    assert take().wait_s == pytest.approx(0.001)
    driver.advance(1)
    assert take().wait_s == 0
    assert take().wait_s == 0.25, "only one had come back"
    driver.advance(60_000)
    assert [take().wait_s > 0 for _ in range(5)] == [False] * 4 + [True], "no more than a second's worth is saved up"


@pytest.mark.parametrize(("per_s", "at_once", "apart_s"), [(0.5, 1, 2.0), (1, 1, 1.0), (2.5, 2, 0.2), (50, 50, 0.02)])
def test_a_second_has_as_many_as_it_says_and_at_least_one(
    driver: Driver, per_s: float, at_once: int, apart_s: float
) -> None:
    taken = [driver.run(operations.take_request("a", per_s)) for _ in range(at_once + 1)]
    assert [one.wait_s == 0 for one in taken] == [True] * at_once + [False]
    assert taken[-1].wait_s == pytest.approx(apart_s, abs=0.001)


def test_keys_have_buckets_of_their_own(driver: Driver) -> None:
    assert driver.run(operations.take_request("a", 1)).wait_s == 0
    assert driver.run(operations.take_request("b", 1)).wait_s == 0
    assert driver.run(operations.take_request("a", 1)).wait_s == 1


def test_a_full_bucket_is_no_key(driver: Driver, redis_client: redis.Redis) -> None:
    driver.run(operations.take_request("a", 2))
    driver.submit(admission=limited(tokens_per_minute=20), owner="a")
    assert 30_000 < redis_client.pttl("eq:rate:a") <= 40_000, "as long as the bucket that is full last, and ten seconds"


def test_a_lower_limit_and_a_clock_that_went_back_do_not_lock_a_key_out(driver: Driver) -> None:
    driver.submit((1, 600), admission=limited(tokens_per_minute=600))
    driver.advance(-3_600_000)
    with raises_code("rate_limited") as refused:
        driver.submit(admission=limited(tokens_per_minute=60))
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s <= 12


# Tokens per minute


def test_tokens_of_accepted_texts_come_back_within_a_minute(driver: Driver) -> None:
    admission = limited(tokens_per_minute=60)
    assert [left(driver.submit((1, cost), admission=admission)) for cost in (10, 30, 20)] == [50, 20, 0]
    with raises_code("rate_limited", match="tokens_per_minute is 60") as refused:
        driver.submit((1, 15), admission=admission)
    assert refused.value.code == "rate_limited"
    told = refused.value.retry_after_s
    assert told is not None
    assert 15 <= told <= 18
    assert earliest_s(driver, admission, 15) == 15


def test_what_never_fits_is_told_so(driver: Driver) -> None:
    for limits in ({"tokens_per_minute": 60}, {"queued_tokens": 60}):
        with pytest.raises(TooMany) as refused:
            driver.submit((1, 61), admission=limited(**limits))
        assert (refused.value.retry_after_s, refused.value.should_retry) == (None, False)


def test_a_repetition_is_found_and_takes_nothing(driver: Driver) -> None:
    admission = limited(tokens_per_minute=60, queued_tokens=60, open_jobs=1)
    first = driver.submit((1, 50), admission=admission, alias=Alias("n", "d", join=False), listed=True)
    again = driver.submit((1, 50), admission=admission, alias=Alias("n", "d", join=False), listed=True)
    same = driver.submit((1, 50), admission=admission, task_id=first.task_id, listed=True)
    assert (again.task_id, again.joined, same.joined) == (first.task_id, True, False)
    assert {left(reply) for reply in (first, again, same)} == {10}


# What waits and what is open


def test_queued_tokens_are_those_of_a_lane(driver: Driver) -> None:
    admission = limited(queued_tokens=30)
    assert [left(driver.submit(admission=admission)) for _ in range(3)] == [20, 10, 0]
    with raises_code("key_limit", match="queued_tokens is 30, and 30 are queued"):
        driver.submit(admission=admission)
    driver.submit(admission=admission, lane=Lane.BULK)
    driver.submit(admission=admission, owner="b")
    driver.commit(driver.claim(max_units=1))
    driver.submit(admission=admission)


def test_open_jobs_are_listed_tasks(driver: Driver) -> None:
    admission = limited(open_jobs=2)
    first = driver.submit(listed=True, admission=admission)
    driver.submit(listed=True, admission=admission)
    with raises_code("key_limit", match="open_jobs is 2, and 2 have not ended"):
        driver.submit(listed=True, admission=admission)
    driver.submit(admission=admission)  # a call that waits is no job
    driver.cancel(first.task_id)
    driver.submit(listed=True, admission=admission)


@pytest.mark.parametrize(
    ("limits", "others"), [({"queued_tokens": 1000}, 0), ({"queued_tokens": 1000}, 2), ({"open_jobs": 10}, 1)]
)
def test_the_time_to_come_back_is_that_of_the_keys_own_work(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], others: int
) -> None:
    """The work of a key is served in turns with that of others, and what is told is right within a factor of two."""
    monkeypatch.setattr(random, "randint", lambda earliest, _: earliest)
    admission = limited(**limits)
    for _ in range(10):
        for owner in ("a", "b", "c")[: others + 1]:
            driver.submit((1, 100), owner=owner, listed=True, admission=admission if owner == "a" else limited())
    with raises_code("key_limit") as refused:
        driver.submit((1, 100), owner="a", listed=True, admission=admission)
    served_s = 0.0
    while True:  # one stream that does RATE tokens in a second
        claim = driver.claim(max_units=1)
        served_s += claim.units[0].cost / RATE
        driver.commit(claim)
        try:
            driver.submit((1, 100), owner="a", listed=True, admission=admission)
        except TooMany:
            continue
        break
    told_s = refused.value.retry_after_s
    assert told_s is not None
    assert served_s / 2 <= told_s <= served_s * 2


@pytest.mark.parametrize("limits", [{"tokens_per_minute": 15}, {"queued_tokens": 15}, {"open_jobs": 1}])
def test_a_refusal_takes_and_leaves_nothing(driver: Driver, redis_client: redis.Redis, limits: dict[str, int]) -> None:
    driver.submit(admission=limited(**limits), listed=True)
    before = Snapshot.take(redis_client)
    with raises_code("rate_limited", "key_limit"):
        driver.submit(admission=limited(**limits), listed=True, metadata=b'{"a":"b"}', deadline_in_ms=5)
    assert Snapshot.take(redis_client).values == before.values


def test_what_another_limit_refuses_takes_nothing_of_the_rate(driver: Driver) -> None:
    tight = Admission(max_backlog_s=0.1, default_rate=RATE, key=KeyAdmission(tokens_per_minute=1000))
    assert left(driver.submit(admission=tight)) == 990
    with pytest.raises(EmbedqError):
        driver.submit((1, 90), admission=tight)
    assert left(driver.submit(admission=limited(tokens_per_minute=1000))) == 980


def test_a_key_without_limits_costs_no_command(driver: Driver, redis_client: redis.Redis) -> None:
    driver.submit()
    plain = commands(redis_client, lambda: driver.submit(listed=True))
    with_all = commands(
        redis_client,
        lambda: driver.submit(listed=True, admission=limited(tokens_per_minute=60, queued_tokens=60, open_jobs=9)),
    )
    assert "hget" not in plain
    assert sum(with_all.values()) - sum(plain.values()) <= 10
    assert submission().admission.key == KeyAdmission()
