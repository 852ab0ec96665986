"""A ledger whose clock stands still, with the calls of clients and workers written short."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import redis

from tasks.errors import EmbedqError
from tasks.item import TextError
from tasks.ledger import (
    Claim,
    ClaimedUnit,
    CommitOutcome,
    Finished,
    Ledger,
    NewTask,
    NewUnit,
    OutcomeKind,
    Result,
    SubmitReply,
    Task,
    TaskPage,
    Watched,
    keys,
    operations,
)
from tasks.ledger.executor import own_arguments, source
from tasks.ledger.operations import ClaimRequest, Operation, list_tasks
from tests import ledger_builders
from tests.integration.ledger.scripts import SCRIPTS

T = TypeVar("T")

MODEL = "m"
START_MS = 1_900_000_000_000
TTL_MS = ledger_builders.submission().ttl_ms
LEASE_MS = 15_000
DIMENSION = 2


def new_units(*sizes: tuple[int, int]) -> list[NewUnit]:
    """One unit per `(items, cost)`; the text of an item is `t` and its index in the task."""
    ends = list(itertools.accumulate(items for items, _ in sizes))
    return [
        NewUnit(items=items, cost=cost, payload=orjson.dumps([f"t{i}" for i in range(end - items, end)]))
        for (items, cost), end in zip(sizes, ends, strict=True)
    ]


def rows(unit: ClaimedUnit, mark: float = 0) -> bytes:
    """Vectors for a unit: each row is the item's index in the task and `mark`."""
    return np.array([[unit.first + i, mark] for i in range(unit.items)], dtype="<f4").tobytes()


def finished(unit: ClaimedUnit, mark: float = 0) -> Finished:
    """The outcome of a unit whose items all succeeded, ten tokens each."""
    return Finished(unit=unit, kind=OutcomeKind.VECTORS, outcome=rows(unit, mark), tokens=10 * unit.items)


def failed(unit: ClaimedUnit, code: str = "boom") -> Finished:
    """The outcome of a unit whose items all failed."""
    errors = {unit.first + i: TextError(code, "it did not work") for i in range(unit.items)}
    return Finished(unit=unit, kind=OutcomeKind.VECTORS, outcome=b"", errors=errors)


class Driver:
    """Calls of one queue. `now_ms` is the time at which every script runs."""

    def __init__(self, client: redis.Redis, model: str = MODEL, *, scripts: Path = SCRIPTS) -> None:
        self.client = client
        self.model = model
        self.ledger = Ledger(client, scripts=scripts)
        self.ledger.frozen_ms = START_MS
        self._scripts = scripts
        self._numbers = itertools.count(1)

    @property
    def now_ms(self) -> int:
        assert self.ledger.frozen_ms is not None
        return self.ledger.frozen_ms

    def advance(self, ms: int) -> None:
        """Time passes, as if somebody had looked at the clock all the time."""
        self.stand_still(ms)
        self.client.hdel(keys.queue_key(self.model, "state"), "last")  # a full Redis takes no other value

    def stand_still(self, ms: int) -> None:
        """Redis does nothing for so long, or its clock steps forward."""
        self.ledger.frozen_ms = self.now_ms + ms

    def run(self, operation: Operation[T]) -> T:
        return self.ledger.run(operation)

    # ---- clients

    def submission(self, *sizes: tuple[int, int], task_id: str | None = None, **changed: Any) -> NewTask:
        """A task of units `(items, cost)`; by default one item that costs 10."""
        values: dict[str, Any] = {
            "task_id": task_id or f"task_{next(self._numbers):05d}",
            "queue": self.model,
            "units": new_units(*(sizes or ((1, 10),))),
        }
        return ledger_builders.submission(**(values | changed))

    def submit(self, *sizes: tuple[int, int], **changed: Any) -> SubmitReply:
        return self.run(operations.submit(self.submission(*sizes, **changed)))

    def submit_together(self, submissions: Sequence[NewTask]) -> list[SubmitReply | EmbedqError]:
        """The replies, or the refusals, of tasks that come in one call, as those of the web tier do."""
        calls = [operations.submit(submission) for submission in submissions]
        own = [argument for call in calls for argument in own_arguments(call)]
        replies = self.client.eval(source("submit", self._scripts), 0, keys.ROOT, f"@{self.now_ms}", self.model, *own)
        return [_read(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def task(self, task_id: str) -> Task:
        task = self.run(operations.read_task(task_id))
        assert task is not None, f"{task_id} is unknown"
        return task

    def result(self, task_id: str) -> Result:
        result = self.run(operations.read_result(task_id))
        assert result is not None, f"{task_id} is unknown"
        return result

    def listed(self, owner: str = "anonymous", **changed: Any) -> TaskPage:
        """The first 20 of all states unless told otherwise."""
        return self.run(list_tasks(owner, **({"limit": 20} | changed)))

    def cancel(self, task_id: str) -> str:
        return self.run(operations.cancel(self.model, task_id))

    def forget(self, task_id: str) -> bool:
        return self.run(operations.forget(self.model, task_id))

    # ---- workers

    def claim(self, worker: str = "w", *, token: str | None = None, **changed: Any) -> Claim:
        """A claim of at most 64 units and a cost of 1,000 unless told otherwise; does not linger."""
        values: dict[str, Any] = {"budget": 1000, "max_units": 64, "lease_ms": LEASE_MS}
        request = ClaimRequest(worker=worker, token=token or f"{worker}/{next(self._numbers)}", **(values | changed))
        return self.run(operations.claim(self.model, request))

    def claim_any(self, worker: str = "w", **changed: Any) -> Claim:
        """A claim, and of a suspect where nothing else is ready."""
        claim = self.claim(worker, **changed)
        return claim if claim.units or not claim.suspects else self.claim(worker, suspect=True, **changed)

    def commit(self, claim: Claim, outcomes: Sequence[Finished] | None = None, mark: float = 0) -> list[CommitOutcome]:
        """Commits the outcomes given, or success for every unit of the claim."""
        done = [finished(unit, mark) for unit in claim.units] if outcomes is None else outcomes
        return self.run(operations.commit(self.model, claim.token, done))

    def release(self, claim: Claim) -> bool:
        return self.run(operations.release(self.model, claim.token))

    def watch(self) -> Watched:
        return self.run(operations.watch(self.model))

    def work_off(self, worker: str = "w", limit: int = 1000) -> list[ClaimedUnit]:
        """Claims and commits until nothing is ready, suspects last; what was claimed, in order."""
        done: list[ClaimedUnit] = []
        for _ in range(limit):
            claim = self.claim_any(worker)
            if not claim.units:
                return done
            self.commit(claim)
            done += claim.units
        raise AssertionError(f"work is left after {limit} claims")


def _read(call: Operation[SubmitReply], reply: Any) -> SubmitReply | EmbedqError:
    try:
        return call.read(reply)
    except EmbedqError as refused:
        return refused


def unchanging(task: Task) -> Task:
    """Without the one field that follows the server's own clock, so that two readings can be compared."""
    return dataclasses.replace(task, expires_ms=None)


def commands(client: redis.Redis, call: Callable[[], Any]) -> dict[str, int]:
    """How often Redis ran each command during `call`, those inside of scripts included."""
    client.config_resetstat()
    call()
    stats = client.info("commandstats")
    ours = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    return {name: calls for name, calls in ours.items() if not name.startswith(("config", "info"))}
