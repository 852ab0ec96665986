"""What one slice of a stream claims, counted in units and claims on a real ledger."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
import redis

from stack.testing import PATIENCE_S, RedisServer, wait_until
from tasks.drain.commit import Committer
from tasks.drain.loop import Consumer, Drain, JointSlice
from tasks.drain.rate import MeasuredRate
from tasks.drain.suspects import Suspects
from tasks.drain.work import ClaimSize
from tasks.errors import RedisUnavailable
from tasks.gate import Gate
from tasks.item import cost
from tasks.ledger import Claim, Finished, Lane, Ledger, OutcomeKind, operations
from tasks.ledger.keys import wake_channel
from tasks.ledger.operations import ClaimRequest, Operation
from tests.integration.ledger.listener import Listener
from tests.ledger_client import LedgerClient

T = TypeVar("T")

TEXT = "x" * 400
UNIT_S = 0.25
TOKENS_PER_S = cost(TEXT, 256) / UNIT_S
UNITS_IN_A_FULL_CLAIM, UNITS_IN_A_CLAIM_BESIDE_URGENT = 24, 8


class Stream:
    """A stream whose work only notes what was claimed, and commits it unless it `stops` with it.

    `breaks`: the subscription, too.
    """

    def __init__(
        self,
        client: LedgerClient,
        ledger: Ledger,
        *,
        slice_s: float,
        urgent: bool = False,
        stops: bool = False,
        breaks: bool = False,
        number: int = 0,
    ) -> None:
        self.client, self.urgent, self.stops, self.breaks = client, urgent, stops, breaks
        self.claims: list[Claim] = []
        self.rate = MeasuredRate(TOKENS_PER_S)
        self.committer = Committer(ledger, client.model, patience_s=0, stop=self.stop)
        consumer = Consumer(
            ledger=ledger,
            queue=client.model,
            worker="w",
            slice_s=slice_s,
            lease_s=15,
            committer=self.committer,
            suspects=Suspects(Gate(single=True)),
            send_bell=lambda: None,
            stop=self.stop,
        )
        self.drain = Drain(consumer, number, self)

    def stop(self) -> bool:
        return self.stops and bool(self.claims)

    def claim_size(self, left_s: float) -> ClaimSize:
        return self.rate.claim_size(left_s, UNIT_S, urgent=self.urgent)

    def __call__(self, claim: Claim, _: object) -> bool:
        self.claims.append(claim)
        if self.breaks:
            self.drain.close()  # as its wait does when Redis was away
        if not self.stops:
            finished = [
                Finished(unit, OutcomeKind.VECTORS, np.zeros((unit.items, 2), "<f4").tobytes(), 1)
                for unit in claim.units
            ]
            self.client.ledger.run(operations.commit(self.client.model, claim.token, finished))
        return True

    def run(self, together: JointSlice | None = None) -> list[Claim]:
        """What one slice claimed."""
        try:
            self.drain.run_slice(together)
        finally:
            self.drain.close()
        return self.claims


def first_claim(client: LedgerClient, redis_client: redis.Redis, slice_s: float, *, urgent: bool = False) -> int:
    """Units that the first claim of a slice takes of thirty, each of `UNIT_S` at this speed."""
    client.submit([TEXT] * 30, lane=Lane.BULK, piece_items=1)
    stream = Stream(client, Ledger(redis_client), slice_s=slice_s, urgent=urgent, stops=True)
    return len(stream.run()[0].units)


@pytest.mark.parametrize(("slice_s", "units"), [(60, UNITS_IN_A_FULL_CLAIM), (0, 1)])
def test_a_slice_that_is_over_takes_one_unit_more_at_most(
    client: LedgerClient, redis_client: redis.Redis, slice_s: float, units: int
) -> None:
    assert first_claim(client, redis_client, slice_s) == units


def test_what_is_left_of_a_slice_cuts_its_claim(client: LedgerClient, redis_client: redis.Redis) -> None:
    # The claim comes a moment after the slice has begun, so two units of half its length do not quite fit.
    assert first_claim(client, redis_client, 2 * UNIT_S) == 1


def test_claims_are_smaller_while_urgent_texts_come(client: LedgerClient, redis_client: redis.Redis) -> None:
    assert first_claim(client, redis_client, 60, urgent=True) == UNITS_IN_A_CLAIM_BESIDE_URGENT


class Slow(Stream):
    """A stream whose claims last until it is told that they end."""

    ends: threading.Event

    def __call__(self, claim: Claim, claim_online: object) -> bool:
        assert self.ends.wait(PATIENCE_S), "the other stream has left"
        return super().__call__(claim, claim_online)


class Quick(Stream):
    """A stream that says when it has claimed three times."""

    thrice: threading.Event

    def __call__(self, claim: Claim, claim_online: object) -> bool:
        if len(self.claims) == 2:
            self.thrice.set()
        return super().__call__(claim, claim_online)


def test_streams_go_on_while_one_is_at_a_claim_that_outlasts_the_slice(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    client.submit([TEXT] * 30, lane=Lane.BULK, piece_items=1)
    together, ledger = JointSlice(2), Ledger(redis_client)
    slow, quick = Slow(client, ledger, slice_s=0), Quick(client, ledger, slice_s=0, number=1)
    slow.ends = quick.thrice = threading.Event()
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(stream.run, together) for stream in (slow, quick)]
        claims = [future.result(60) for future in running]
    assert (len(claims[0]), together.over) == (1, True), "who ends late leaves"
    assert len(claims[1]) >= 3


def die_with(client: LedgerClient, queries: int) -> None:
    """A worker dies that holds so many queries; nothing else is queued."""
    for number in range(queries):
        client.submit([f"query {number}"])
    request = ClaimRequest("dead/0", "dead/0/1", budget=10**9, max_units=1000, lease_ms=60_000)
    assert len(client.ledger.run(operations.claim(client.model, request)).units) == queries
    client.ledger.run(operations.abandon(client.model, "dead"))


def test_suspects_beside_work_of_others_take_turns_and_come_alone(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    die_with(client, 40)
    client.submit([TEXT] * 30, lane=Lane.BULK, piece_items=1)
    fresh = client.submit(["fresh"])
    claims = Stream(client, Ledger(redis_client), slice_s=1).run()
    assert [unit.task_id for unit in claims[0].units] == [fresh], "a query of others waited for them"
    suspects = [claim for claim in claims if claim.suspect]
    assert len(suspects) == 40, "somebody starved"
    assert all(len(claim.units) == 1 for claim in suspects)
    assert sum(len(claim.units) for claim in claims) == 40 + 30 + 1


def test_a_stream_whose_subscription_broke_does_not_claim_in_a_circle(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    client.submit(["one"])
    stream = Stream(client, Ledger(redis_client), slice_s=1, breaks=True)
    redis_client.config_resetstat()
    stream.run()
    calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls < 10, "claims, a commit and the end of a slice of one second"


class Deaf(Ledger):
    """The reply to the first claim is lost."""

    heard = False

    def run(self, operation: Operation[T]) -> T:
        reply = super().run(operation)
        if operation.script == "claim" and not self.heard:
            self.heard = True
            raise RedisUnavailable("as after many tries")
        return reply


def test_a_claim_whose_reply_was_lost_is_given_back(client: LedgerClient, redis_client: redis.Redis) -> None:
    client.submit([TEXT])
    stream = Stream(client, Deaf(redis_client), slice_s=0)
    assert stream.run() == []
    assert client.overview().leases == 0, "nobody holds it, and it would count as a death"
    assert [unit.attempts for claim in stream.run() for unit in claim.units] == [1]


class Unheard(Stream):
    """Redis dies before it hears how the first claim ended."""

    server: RedisServer
    how: str
    gone: threading.Event

    def __call__(self, claim: Claim, claim_online: object) -> bool:
        if self.claims:
            return super().__call__(claim, claim_online)
        self.claims.append(claim)
        self.server.kill()
        if self.how == "commit":
            assert self.committer.commit(claim, [Finished(claim.units[0], OutcomeKind.VECTORS, b"\0" * 8, 1)]) == ()
        else:
            self.committer.give_back(claim)
        self.gone.set()
        return True


@pytest.mark.parametrize("how", ["commit", "give back"])
def test_what_redis_did_not_hear_of_is_given_back_when_it_is_back(private_redis: RedisServer, how: str) -> None:
    with private_redis.client() as connection, ThreadPoolExecutor() as pool:
        client = LedgerClient(Ledger(connection))
        client.submit([TEXT])
        stream = Unheard(client, client.ledger, slice_s=0)
        stream.server, stream.how, stream.gone = private_redis, how, threading.Event()
        slices = pool.submit(stream.run)
        assert stream.gone.wait(PATIENCE_S)
        private_redis.start()
        slices.result(30)
        assert client.overview().leases == 0, "the end of its lease would count as a death"
        assert [unit.attempts for claim in stream.run()[1:] for unit in claim.units] == [1]


class Waiting(Stream):
    """A stream that waits for work until it is told to stop; it learns that before it takes what it was handed."""

    def __init__(self, client: LedgerClient, ledger: Ledger) -> None:
        self.told = threading.Event()
        super().__init__(client, ledger, slice_s=60)

    def stop(self) -> bool:
        return self.told.is_set()


def lingers(client: LedgerClient, redis_client: redis.Redis) -> bool:
    return bool(redis_client.exists(f"eq:q:{client.model}:lingering"))


def test_a_lone_text_costs_its_stream_no_claim(client: LedgerClient, redis_client: redis.Redis) -> None:
    stream = Waiting(client, Ledger(redis_client))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(stream.run)
        wait_until(lambda: lingers(client, redis_client), message="it waits for no work")
        redis_client.config_resetstat()
        client.submit(["lone"])
        wait_until(lambda: stream.claims and lingers(client, redis_client), message="the text is not served")
        calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
        stream.told.set()
        running.result(30)
    assert calls == 3, "its submission, its commit, and that the stream waits again"
    assert [unit.texts() for claim in stream.claims for unit in claim.units] == [["lone"]]
    assert client.overview().leases == 0


class Stopped(Ledger):
    """The caller is told to stop as soon as it waits, and work comes before it leaves."""

    def __init__(self, connection: redis.Redis, client: LedgerClient) -> None:
        super().__init__(connection)
        self.clients = client
        self.stream: Waiting

    def run(self, operation: Operation[T]) -> T:
        reply = super().run(operation)
        if operation.script == "claim" and not self.stream.told.is_set():
            self.stream.told.set()
            self.clients.submit(["late"])
            assert self.clients.overview().leases == 1, "it is handed to nobody"
        return reply


def test_a_stream_that_stops_gives_back_what_it_was_handed(client: LedgerClient, redis_client: redis.Redis) -> None:
    ledger = Stopped(redis_client, client)
    ledger.stream = stream = Waiting(client, ledger)
    assert stream.run() == []
    assert client.overview().leases == 0, "the end of its lease would count as a death"
    later = Stream(client, Ledger(redis_client), slice_s=0).run()
    assert [unit.attempts for claim in later for unit in claim.units] == [1]


def test_so_does_one_that_has_read_of_it(
    client: LedgerClient, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Waiting(client, Ledger(redis_client))
    read = operations.handed_claim

    def then_stop(message: bytes) -> Claim | None:
        stream.told.set()
        return read(message)

    monkeypatch.setattr(operations, "handed_claim", then_stop)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(stream.run)
        wait_until(lambda: lingers(client, redis_client), message="it waits for no work")
        client.submit(["late"])
        assert running.result(30) == []
    assert client.overview().leases == 0, "the end of its lease would count as a death"
    later = Stream(client, Ledger(redis_client), slice_s=0).run()
    assert [unit.attempts for claim in later for unit in claim.units] == [1]


def test_what_was_handed_to_an_earlier_wait_is_given_back(client: LedgerClient, redis_client: redis.Redis) -> None:
    earlier = ClaimRequest("w/0", "w/0/earlier", budget=9, max_units=1, lease_ms=60_000, linger_ms=1000)
    with Listener.of_worker(redis_client, "w/0", client.model) as channel:
        client.ledger.run(operations.claim(client.model, earlier))
        client.submit(["late"])
        (message,) = channel.messages()
    stream = Waiting(client, Ledger(redis_client))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(stream.run)
        wait_until(lambda: lingers(client, redis_client), message="it waits for no work")
        redis_client.publish(wake_channel(client.model, "w/0"), message)
        wait_until(lambda: stream.claims, message="nobody gave it back")
        stream.told.set()
        running.result(30)
    assert [unit.attempts for claim in stream.claims for unit in claim.units] == [1]


class Cut(Stopped):
    """Redis does not hear either that it leaves."""

    def run(self, operation: Operation[T]) -> T:
        if operation.script == "leave":
            raise RedisUnavailable("as after many tries")
        return super().run(operation)


def test_what_was_handed_to_a_stream_that_lost_redis_is_given_back_later(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    ledger = Cut(redis_client, client)
    ledger.stream = stream = Waiting(client, ledger)
    assert stream.run() == []
    assert client.overview().leases == 1
    assert stream.committer.release_owed()
    assert client.overview().leases == 0, "the end of its lease would count as a death"
