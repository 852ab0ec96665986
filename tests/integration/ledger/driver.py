"""A ledger whose clock stands still, with the calls of clients and workers written short."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import orjson
import redis

from tasks.item import TextError
from tasks.ledger.cancel import cancel, forget
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import CommitCode, commit
from tasks.ledger.heartbeat import Pulse, watch
from tasks.ledger.read import list_tasks, read_result, read_task
from tasks.ledger.scripts import Operation
from tasks.ledger.submit import SubmitReply, submit
from tasks.ledger.task import NewPiece, NewTask, Outcome, Piece, Result, State, Task
from tests import ledger_builders

T = TypeVar("T")

MODEL = "m"
START_MS = 1_900_000_000_000
LEASE_MS = 15_000


def new_pieces(*sizes: tuple[int, int]) -> list[NewPiece]:
    """One piece per `(items, cost)`; a text is `t` and its index in the task."""
    ends = list(itertools.accumulate(items for items, _ in sizes))
    return [
        NewPiece(items=items, cost=cost, payload=orjson.dumps([f"t{i}" for i in range(end - items, end)]))
        for (items, cost), end in zip(sizes, ends, strict=True)
    ]


def rows(piece: Piece, mark: float = 0) -> bytes:
    """Vectors for a piece: each row is the text's index in the task and `mark`."""
    return np.array([[piece.first + i, mark] for i in range(piece.items)], dtype="<f4").tobytes()


def succeeded(piece: Piece, mark: float = 0) -> Outcome:
    """The outcome of a piece whose texts all succeeded, ten tokens each."""
    return Outcome(piece, rows(piece, mark), tokens=10 * piece.items)


def failed(piece: Piece, code: str = "boom") -> Outcome:
    """The outcome of a piece whose texts all failed."""
    errors = {piece.first + i: TextError(code, "it did not work") for i in range(piece.items)}
    return Outcome(piece, b"", errors=errors)


class Driver:
    """Calls of one queue. `now_ms` is the time at which every script runs."""

    def __init__(self, client: redis.Redis, model: str = MODEL) -> None:
        self.client = client
        self.model = model
        self.ledger = Ledger(client)
        self.ledger.frozen_ms = START_MS
        self._numbers = itertools.count(1)

    @property
    def now_ms(self) -> int:
        assert self.ledger.frozen_ms is not None
        return self.ledger.frozen_ms

    def taken(self, part: str) -> int:
        """Bytes of Redis that keys with this in their names have."""
        keys = [key for key in self.client.scan_iter("eq:*") if part.encode() in key]
        assert keys
        return sum(self.client.memory_usage(key, samples=0) or 0 for key in keys)

    def advance(self, ms: int) -> None:
        """Time passes."""
        self.ledger.frozen_ms = self.now_ms + ms

    def run(self, operation: Operation[T]) -> T:
        return self.ledger.run(operation)

    # ---- clients

    def new_task(self, *sizes: tuple[int, int], task_id: str | None = None, **changed: Any) -> NewTask:
        """A task of pieces `(items, cost)`; by default one text that costs 10."""
        values: dict[str, Any] = {
            "task_id": task_id or f"task_{next(self._numbers):05d}",
            "queue": self.model,
            "pieces": new_pieces(*(sizes or ((1, 10),))),
        }
        return ledger_builders.new_task(**(values | changed))

    def submit(self, *sizes: tuple[int, int], **changed: Any) -> SubmitReply:
        return self.run(submit(self.new_task(*sizes, **changed)))

    def task(self, task_id: str) -> Task:
        task = self.run(read_task(task_id))
        assert task is not None, f"{task_id} is unknown"
        return task

    def result(self, task_id: str) -> Result:
        result = self.run(read_result(task_id))
        assert result is not None, f"{task_id} is unknown"
        return result

    def listed(self, owner: str = "anonymous", **changed: Any) -> tuple[list[Task], str, bool]:
        """The first 20 of all states unless told otherwise."""
        return self.run(list_tasks(owner, **({"limit": 20} | changed)))

    def cancel(self, task_id: str) -> State | None:
        return self.run(cancel(self.model, task_id))

    def forget(self, task_id: str) -> int:
        return self.run(forget(self.model, task_id))

    # ---- workers

    def claim(self, stream: str = "w/0", *, token: str | None = None, **changed: Any) -> Claim:
        """A claim of at most 64 pieces and a cost of 1,000 unless told otherwise; does not linger."""
        values: dict[str, Any] = {"budget": 1000, "max_pieces": 64, "lease_ms": LEASE_MS}
        request = ClaimRequest(stream=stream, token=token or f"{stream}/{next(self._numbers)}", **(values | changed))
        return self.run(claim(self.model, request))

    def commit(self, claim: Claim, outcomes: Sequence[Outcome] | None = None, mark: float = 0) -> Sequence[CommitCode]:
        """Commits the outcomes given, or success for every piece of the claim."""
        done = [succeeded(piece, mark) for piece in claim.pieces] if outcomes is None else outcomes
        return self.run(commit(self.model, claim.token, done)).codes

    def watch(self) -> Pulse:
        return self.run(watch(self.model))

    def work_off(self, stream: str = "w/0", limit: int = 1000) -> list[Piece]:
        """Claims and commits until nothing is ready; what was claimed, in order."""
        done: list[Piece] = []
        for _ in range(limit):
            claim = self.claim(stream)
            if not claim.pieces:
                return done
            self.commit(claim)
            done += claim.pieces
        raise AssertionError(f"work is left after {limit} claims")


def commands(client: redis.Redis, call: Callable[[], Any]) -> dict[str, int]:
    """How often Redis ran each command during `call`, those inside of scripts included."""
    client.config_resetstat()
    call()
    stats = client.info("commandstats")
    ours = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    return {name: calls for name, calls in ours.items() if not name.startswith(("config", "info"))}
