"""What the streams of a process claim, and how their claims end, on a real ledger."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from tasks.ledger.claim import Claim
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import queue_key
from tasks.ledger.task import Outcome
from tasks.worker.__main__ import MODEL_WORKER
from tasks.worker.claim_loop import ClaimSize, Stream, Streams
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.hangs import DEFAULT_PATIENCE
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, RedisServer, wait_until
from worker_config.settings import load_settings


def commit(claim: Claim, stream: Stream) -> None:
    rows = (np.zeros((piece.items, 2), "<f4").tobytes() for piece in claim.pieces)
    outcomes = [Outcome(piece, data, 1) for piece, data in zip(claim.pieces, rows, strict=True)]
    stream.commit(claim, outcomes, last=True)


class Work:
    def __init__(self, end: Callable[[Claim, Stream], None] = commit) -> None:
        self.claims: list[Claim] = []
        self._end = end

    def claim_size(self) -> ClaimSize:
        return ClaimSize(bulk_cost=10**6, online_cost=10**6, rate=0)

    def __call__(self, claim: Claim, stream: Stream) -> None:
        self.claims.append(claim)
        self._end(claim, stream)

    def deaths(self) -> list[int]:
        return [piece.deaths for claim in self.claims for piece in claim.pieces]


@contextmanager
def process(client: LedgerClient, work: Work, **options: Any) -> Iterator[Streams]:
    """Streams as a worker process has them, woken at once and ended at the end. Bells go nowhere."""
    told: dict[str, Any] = {"folder": RunFolder(Path("/nonexistent")), "shared": SharedPage.make(), "worker_id": "w"}
    child = WorkerChild(MODEL_WORKER, load_settings(), patience=DEFAULT_PATIENCE, **told)
    usual: dict[str, Any] = {"number": 1, "breaks": (ZeroDivisionError,), "idle_s": 0.5}
    streams = Streams(child, client.ledger, client.model, work, **(usual | options))
    streams.wake(rang=True)
    try:
        yield streams
    finally:
        child.shared.stop()
        streams.finish(PATIENCE_S)


@pytest.mark.parametrize("how", ["commit", "give back"])
def test_what_redis_did_not_hear_it_hears_when_it_is_back(private_redis: RedisServer, how: str) -> None:
    gone = threading.Event()

    def end(claim: Claim, stream: Stream) -> None:
        if not gone.is_set():
            private_redis.kill()
            gone.set()
            if how == "give back":
                stream.give_back(claim)
                return
        commit(claim, stream)

    with private_redis.client() as connection:
        client, work = LedgerClient(Ledger(connection)), Work(end)
        task = client.submit(["text"])
        with process(client, work):
            assert gone.wait(PATIENCE_S)
            private_redis.start()
            client.completed(task)
        assert work.deaths() == [0] * (1 if how == "commit" else 2), "nobody has died"
        assert client.overview().leases == 0


def test_a_lone_text_costs_three_scripts(client: LedgerClient, redis_client: redis.Redis) -> None:
    def lingering() -> object:
        return redis_client.zcard(queue_key(client.model, "lingering"))

    work = Work()
    with process(client, work, idle_s=60):
        wait_until(lingering, message="it waits for no work")
        redis_client.config_resetstat()
        client.submit(["lone"])
        wait_until(lambda: work.claims and lingering(), message="the text is not served")
        calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert calls == 3, "its submission, its claim and its commit, behind which the stream waits again"
    assert client.overview().leases == 0


def test_a_process_that_is_broken_gives_back_and_leaves(client: LedgerClient) -> None:
    def divide(_claim: Claim, _stream: Stream) -> None:
        raise ZeroDivisionError

    task, later = client.submit(["text"]), Work()
    with process(client, Work(divide), number=2, idle_s=60) as running:
        wait_until(running.broken.is_set, message="the heartbeat is told")
    with process(client, later):
        client.completed(task)
    assert later.deaths()[-1] == 1, "the text may have broken it"
