"""A lone text is claimed by its SUBMIT for a stream that lingers, which is spared a call and its caller an fsync."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from tasks.ledger import Claim, CommitOutcome, Lane, State, operations
from tasks.ledger.operations import ClaimRequest
from tests.integration.ledger.driver import LEASE_MS, Driver
from tests.integration.ledger.listener import Listener
from tests.ledger_builders import model_entry

LINGER_MS = 800
LARGE = "x" * 20_000


class Lingerer:
    """A stream that has asked, found nothing, and waits."""

    def __init__(self, driver: Driver, client: redis.Redis, name: str, stamp: str = "") -> None:
        self._driver = driver
        self._listener = Listener.of_worker(client, name)
        self.request = ClaimRequest(name, f"{name}/1", 1000, 64, LEASE_MS, linger_ms=LINGER_MS, rang=True, stamp=stamp)
        assert driver.run(operations.claim(driver.model, self.request)).wait_ms == LINGER_MS

    def messages(self) -> list[bytes]:
        return self._listener.messages()

    def handed(self) -> Claim | None:
        """What it was handed, of the one message that it got."""
        (message,) = self.messages()
        return operations.handed_claim(message)

    def asks_again(self) -> Claim:
        return self._driver.run(operations.claim(self._driver.model, self.request))

    def leaves(self, *, warm: bool = False) -> bool:
        leave = operations.leave(self._driver.model, self.request.worker, warm=warm, token=self.request.token)
        return self._driver.run(leave)

    def dies(self) -> None:
        self._listener.close()


class Linger:
    """Makes them."""

    def __init__(self, driver: Driver, client: redis.Redis, stack: ExitStack) -> None:
        self._driver, self._client, self._stack = driver, client, stack

    def __call__(self, name: str, stamp: str = "") -> Lingerer:
        lingerer = Lingerer(self._driver, self._client, name, stamp)
        self._stack.callback(lingerer.dies)
        return lingerer


@pytest.fixture
def linger(driver: Driver, redis_client: redis.Redis) -> Iterator[Linger]:
    with ExitStack() as stack:
        yield Linger(driver, redis_client, stack)


def test_a_lone_text_is_claimed_for_who_waits(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    reply = driver.submit(trace="of a caller", owner="ada")
    claim = stream.handed()
    assert not reply.bell_due
    assert claim is not None
    (unit,) = claim.units
    assert (unit.task_id, unit.texts(), unit.attempts, unit.trace, unit.owner) == (
        reply.task_id,
        ["t0"],
        1,
        "of a caller",
        "ada",
    )
    assert (claim.token, claim.lane, claim.more, claim.wait_ms) == (stream.request.token, Lane.ONLINE, False, 0)
    assert driver.task(reply.task_id).state is State.IN_PROGRESS
    assert driver.claim("other").units == ()
    assert driver.commit(claim) == [CommitOutcome.COMMITTED]
    assert driver.task(reply.task_id).state is State.COMPLETED


def test_it_is_the_claim_that_the_stream_would_have_made(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.submit()
    handed = stream.handed()
    assert handed is not None
    driver.commit(handed)
    driver.submit()
    asked = driver.claim("w/0")
    (was,), (is_,) = handed.units, asked.units
    assert dataclasses.replace(handed, token="", units=()) == dataclasses.replace(asked, token="", units=())
    assert dataclasses.replace(was, task_id="") == dataclasses.replace(is_, task_id="")


def test_who_missed_the_message_asks_again_and_has_the_same(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.submit()
    handed = stream.handed()
    assert handed is not None
    assert stream.asks_again().units == handed.units
    assert driver.commit(handed) == [CommitOutcome.COMMITTED]


@pytest.mark.parametrize("kept", [None, b'{"as": 0, "request": ["w/0", "w/0/1"]}'], ids=["gone", "of another version"])
def test_a_stream_whose_claim_cannot_be_repeated_asks(
    driver: Driver, linger: Linger, redis_client: redis.Redis, kept: bytes | None
) -> None:
    stream = linger("w/0")
    redis_client.delete(f"eq:q:{driver.model}:asks:w/0")
    if kept:
        redis_client.set(f"eq:q:{driver.model}:asks:w/0", kept, ex=60)
    assert not driver.submit().bell_due
    assert stream.messages() == [b"work"]


def test_who_leaves_gives_back_what_it_was_handed(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.submit()
    assert stream.leaves(), "nobody is told of the work"
    assert driver.claim("other").units[0].attempts == 1, "nobody died"


def test_who_has_waited_long_enough_is_passed_over(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.advance(LINGER_MS + 250)
    assert driver.submit().bell_due
    assert stream.messages() == []


def test_a_release_ends_the_wait_too(driver: Driver, linger: Linger) -> None:
    other = linger("v/0")
    driver.advance(1)
    stream = linger("w/0")  # the last to ask
    driver.run(operations.release(driver.model, stream.request.token))
    driver.submit()
    assert stream.messages() == []
    assert other.handed()


def test_a_late_release_of_an_earlier_token_does_not(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.run(operations.release(driver.model, "w/0/0"))
    driver.submit()
    assert stream.handed()


def test_who_stands_still_costs_the_text_its_lease_and_an_attempt(driver: Driver, linger: Linger) -> None:
    linger("w/0")
    driver.submit()
    driver.advance(LEASE_MS - 1)
    assert not driver.watch().bell_due
    driver.advance(1)
    assert driver.watch().bell_due
    assert driver.claim_any("other").units[0].attempts == 2, "it runs alone, as after any death"


def test_to_a_stream_that_is_gone_nothing_is_handed_over(driver: Driver, linger: Linger) -> None:
    alive = linger("v/0")
    driver.advance(1)
    linger("w/0").dies()  # it was the last to ask, and would be the first to be told
    task = driver.submit()
    assert not task.bell_due
    assert alive.messages() == [b"work"]
    assert driver.claim("v/0").units[0].attempts == 1, "nobody died"


def test_the_bell_rings_where_all_are_gone(driver: Driver, linger: Linger) -> None:
    linger("w/0").dies()
    assert driver.submit().bell_due
    assert driver.claim(rang=True).units[0].attempts == 1


@pytest.mark.parametrize(
    ("sizes", "more"),
    [([(1, 10)], {"lane": Lane.BULK}), ([(1, 10), (1, 10)], {})],
    ids=["bulk work", "several units"],
)
def test_what_is_not_a_lone_text_is_asked_for(
    driver: Driver, linger: Linger, sizes: list[tuple[int, int]], more: dict[str, Lane]
) -> None:
    stream = linger("w/0")
    driver.submit(*sizes, **more)
    assert stream.messages() == [b"work"]
    assert driver.claim("other").units


def test_a_large_text_is_asked_for(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    unit = dataclasses.replace(driver.submission().units[0], payload=f'["{LARGE}"]'.encode())
    driver.submit(units=[unit])
    assert stream.messages() == [b"work"]


@pytest.mark.parametrize("lane", Lane)
def test_what_comes_while_other_work_is_open_is_asked_for(driver: Driver, linger: Linger, lane: Lane) -> None:
    driver.submit(lane=lane)
    driver.claim("w/1")
    stream = linger("w/0")
    driver.submit()
    assert stream.messages() == [b"work"], "texts of a crowd would be encoded one by one"


def test_nothing_is_handed_to_a_worker_of_another_model(
    driver: Driver, linger: Linger, redis_client: redis.Redis
) -> None:
    old, new = (model_entry(revision=revision, dimension=2) for revision in ("one", "two"))
    assert driver.run(operations.register(driver.model, old))
    stream = linger("w/0", stamp=old.stamp)
    redis_client.hset(f"eq:q:{driver.model}:state", "serves", new.stamp)
    task = driver.submit()
    assert stream.messages() == [b"work"], "it finds out by itself"
    assert driver.task(task.task_id).state is State.QUEUED


def test_who_asks_again_for_what_has_ended_has_nothing_more(driver: Driver, linger: Linger) -> None:
    stream = linger("w/0")
    driver.cancel(driver.submit().task_id)
    driver.submit()
    again = stream.asks_again()
    assert (again.units, again.more) == ((), True), "a token is used once"
    assert driver.watch().leases == 0, "the claim waits for the end of its lease"
