"""What the streams of a process claim, and how their claims end, on a real ledger."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import pytest
import redis

from tasks.errors import RedisUnavailable
from tasks.ledger.claim import Claim
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import queue_key
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Outcome
from tasks.worker.claim_loop import ClaimSize, Stream, Streams
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, RedisServer, wait_until
from tests.worker_child import a_child

T = TypeVar("T")

TEXT = "x" * 400
SIZE = ClaimSize(bulk_cost=10**6, online_cost=10**6, rate=0)


class Notes:
    """Work that only notes what was claimed, and commits it."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def claim_size(self) -> ClaimSize:
        return SIZE

    def __call__(self, claim: Claim, stream: Stream) -> None:
        self.claims.append(claim)
        self.end(claim, stream)

    def end(self, claim: Claim, stream: Stream, /) -> None:
        commit(claim, stream)


def commit(claim: Claim, stream: Stream) -> None:
    rows = (np.zeros((piece.items, 2), "<f4").tobytes() for piece in claim.pieces)
    outcomes = [Outcome(piece, data, 1) for piece, data in zip(claim.pieces, rows, strict=True)]
    stream.commit(claim, outcomes, last=True)


class Process:
    """Streams as a worker process has them, and a stop."""

    def __init__(
        self, client: LedgerClient, ledger: Ledger, work: Notes, *, streams: int, keeps_one: bool, idle_s: float
    ) -> None:
        child = a_child()
        self.claims, self.stop = work.claims, child.shared.stop
        self.streams = Streams(
            child,
            ledger,
            client.model,
            work,
            number=streams,
            breaks=(ZeroDivisionError,),
            keeps_one=keeps_one,
            idle_s=idle_s,
        )


@contextmanager
def process(
    client: LedgerClient,
    ledger: Ledger,
    work: Notes | None = None,
    *,
    streams: int = 1,
    keeps_one: bool = False,
    idle_s: float = 0.5,
) -> Iterator[Process]:
    """Woken at once; ended at the end."""
    started = Process(client, ledger, work or Notes(), streams=streams, keeps_one=keeps_one, idle_s=idle_s)
    started.streams.wake(rang=True)
    try:
        yield started
    finally:
        started.stop()
        started.streams.finish(PATIENCE_S)


def lingering(client: LedgerClient) -> int:
    waiting = client.ledger.client.zcard(queue_key(client.model, "lingering"))
    assert isinstance(waiting, int)
    return waiting


def deaths(claims: list[Claim]) -> list[int]:
    return [piece.deaths for claim in claims for piece in claim.pieces]


def test_streams_that_find_nothing_go_to_sleep_together_and_wait_for_nobody(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    with process(client, Ledger(redis_client), streams=3) as running:
        wait_until(lambda: not running.streams._awake, message="sleep")
        assert lingering(client) == 0, "whoever sleeps is told of nothing"
        client.submit([TEXT])
        running.streams.wake(rang=False)
        wait_until(lambda: not running.streams._awake, message="sleep")
    assert len(running.claims) == 1
    assert lingering(client) == 0


def test_a_stream_whose_subscription_broke_does_not_claim_in_a_circle(
    client: LedgerClient, redis_client: redis.Redis
) -> None:
    class Breaks(Notes):
        def end(self, claim: Claim, stream: Stream) -> None:
            super().end(claim, stream)
            stream.close()  # as its wait does when Redis was away

    client.submit(["one"])
    redis_client.config_resetstat()
    with process(client, Ledger(redis_client), Breaks()) as running:
        wait_until(lambda: not running.streams._awake, message="sleep")
        calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls < 10, "a few claims and a commit within half a second"


class Deaf(Ledger):
    """The reply to the first claim that takes something is lost."""

    heard = False

    def run(self, operation: Operation[T]) -> T:
        reply = super().run(operation)
        if isinstance(reply, Claim) and reply.pieces and not self.heard:
            self.heard = True
            raise RedisUnavailable("as after many tries")
        return reply


def test_a_claim_whose_reply_was_lost_is_asked_for_again(client: LedgerClient, redis_client: redis.Redis) -> None:
    task = client.submit([TEXT])
    with process(client, Deaf(redis_client)) as running:
        client.completed(task)
        wait_until(lambda: not running.streams._awake, message="sleep")
    assert deaths(running.claims) == [0]
    assert client.overview().leases == 0


@pytest.mark.parametrize("how", ["commit", "give back"])
def test_what_redis_did_not_hear_it_hears_when_it_is_back(private_redis: RedisServer, how: str) -> None:
    gone = threading.Event()

    class Unheard(Notes):
        def end(self, claim: Claim, stream: Stream) -> None:
            if not gone.is_set():
                private_redis.kill()
                gone.set()
                if how == "give back":
                    stream.give_back(claim)
                    return
            super().end(claim, stream)

    with private_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        task = client.submit([TEXT])
        with process(client, client.ledger, Unheard()) as running:
            assert gone.wait(PATIENCE_S)
            private_redis.start()
            client.completed(task)
        assert deaths(running.claims) == [0] * (1 if how == "commit" else 2), "nobody has died"
        assert client.overview().leases == 0


def test_a_lone_text_costs_three_scripts(client: LedgerClient, redis_client: redis.Redis) -> None:
    with process(client, Ledger(redis_client), idle_s=60) as running:
        wait_until(lambda: lingering(client), message="it waits for no work")
        redis_client.config_resetstat()
        client.submit(["lone"])
        wait_until(lambda: running.claims and lingering(client), message="the text is not served")
        calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls == 3, "its submission, its claim and its commit, behind which the stream waits again"
    assert [piece.texts() for claim in running.claims for piece in claim.pieces] == [["lone"]]
    assert client.overview().leases == 0


class Divides(Notes):
    """Its device breaks."""

    def end(self, _claim: Claim, _stream: Stream) -> None:
        raise ZeroDivisionError


def test_a_process_that_is_broken_gives_back_and_leaves(client: LedgerClient, redis_client: redis.Redis) -> None:
    client.submit([TEXT])
    with process(client, Ledger(redis_client), Divides(), streams=2, idle_s=60) as running:
        wait_until(running.streams.broken.is_set, message="the heartbeat is told")
    assert client.overview().leases == 0
    later = Notes()
    with process(client, Ledger(redis_client), later) as again:
        wait_until(lambda: not again.streams._awake, message="sleep")
    assert deaths(running.claims + again.claims)[-1] == 1, "the text may have broken it"


ONE = ClaimSize(bulk_cost=1, online_cost=1, rate=0)


class Held(Notes):
    """Work of one text, which for one owner does not end before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def claim_size(self) -> ClaimSize:
        return ONE

    def end(self, claim: Claim, stream: Stream) -> None:
        if claim.pieces[0].owner == "a":
            assert self.go.wait(PATIENCE_S)
        super().end(claim, stream)


def owners(running: Process) -> list[str]:
    return [claim.pieces[0].owner for claim in running.claims]


@pytest.mark.parametrize("streams", [2, 3])
def test_the_last_free_stream_is_kept_for_another_owner(
    client: LedgerClient, redis_client: redis.Redis, streams: int
) -> None:
    work = Held()
    mine = [client.submit([f"{n}"], owner="a") for n in range(4)]
    with process(client, Ledger(redis_client), work, streams=streams, keeps_one=True, idle_s=60) as running:
        wait_until(lambda: owners(running).count("a") == streams - 1, message="the others at work")
        for _ in range(3):
            client.completed(client.submit(["other"], owner="b"))
        assert owners(running).count("a") == streams - 1
        work.go.set()
        for task in mine:
            client.completed(task)
