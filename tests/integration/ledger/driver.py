"""A ledger whose clock stands still, with the calls of clients and workers written short."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson
import redis

from tasks.item import TextError
from tasks.ledger.cancel import cancel, forget
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import CommitCode, commit
from tasks.ledger.heartbeat import Pulse, watch
from tasks.ledger.read import read_task
from tasks.ledger.scripts import Operation
from tasks.ledger.submit import SubmitReply, submit
from tasks.ledger.task import NewPiece, NewTask, Outcome, Piece, State, Task
from tests import ledger_builders

T = TypeVar("T")

MODEL = "m"
START_MS = 1_900_000_000_000


def new_pieces(*sizes: tuple[int, int]) -> list[NewPiece]:
    """One piece per `(items, cost)`; a text is `t` and its index in the task."""
    ends = list(itertools.accumulate(items for items, _ in sizes))
    return [
        NewPiece(items=items, cost=cost, payload=orjson.dumps([f"t{i}" for i in range(end - items, end)]))
        for (items, cost), end in zip(sizes, ends, strict=True)
    ]


def succeeded(piece: Piece) -> Outcome:
    return Outcome(piece, b"vector.." * piece.items, tokens=10 * piece.items)


def failed(piece: Piece, code: str = "boom") -> Outcome:
    errors = {piece.first + i: TextError(code, "it did not work") for i in range(piece.items)}
    return Outcome(piece, b"", errors=errors)


class Driver:
    """Calls of one queue. `now_ms` is the time at which every script runs."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.ledger = Ledger(client)
        self.ledger.frozen_ms = START_MS
        self._numbers = itertools.count(1)

    @property
    def now_ms(self) -> int:
        assert self.ledger.frozen_ms is not None
        return self.ledger.frozen_ms

    def advance(self, ms: int) -> None:
        self.ledger.frozen_ms = self.now_ms + ms

    def run(self, operation: Operation[T]) -> T:
        return self.ledger.run(operation)

    def new_task(self, *sizes: tuple[int, int], task_id: str | None = None, **changed: Any) -> NewTask:
        """A task of pieces `(items, cost)`; by default one text that costs 10."""
        made, pieces = task_id or f"task_{next(self._numbers):05d}", new_pieces(*(sizes or ((1, 10),)))
        return ledger_builders.new_task(**({"task_id": made, "pieces": pieces} | changed))

    def submit(self, *sizes: tuple[int, int], **changed: Any) -> SubmitReply:
        return self.run(submit(self.new_task(*sizes, **changed)))

    def task(self, task_id: str) -> Task:
        task = self.run(read_task(task_id))
        assert task is not None, f"{task_id} is unknown"
        return task

    def cancel(self, task_id: str) -> State | None:
        return self.run(cancel(MODEL, task_id))

    def forget(self, task_id: str) -> int:
        return self.run(forget(MODEL, task_id))

    def claim(self, stream: str = "w/0", *, token: str | None = None, **changed: Any) -> Claim:
        """A claim of at most 64 pieces and a cost of 1,000 unless told otherwise; does not linger."""
        values: dict[str, Any] = {"budget": 1000, "max_pieces": 64, "lease_ms": 15_000}
        request = ClaimRequest(stream=stream, token=token or f"{stream}/{next(self._numbers)}", **(values | changed))
        return self.run(claim(MODEL, request))

    def commit(self, claim: Claim, outcomes: Sequence[Outcome] | None = None) -> Sequence[CommitCode]:
        """Commits the outcomes given, or success for every piece of the claim."""
        done = [succeeded(piece) for piece in claim.pieces] if outcomes is None else outcomes
        return self.run(commit(MODEL, claim.token, done)).codes

    def watch(self) -> Pulse:
        return self.run(watch(MODEL))


def commands(client: redis.Redis, call: Callable[[], Any]) -> dict[str, int]:
    """How often Redis ran each command during `call`, those inside of scripts included."""
    client.config_resetstat()
    call()
    stats = client.info("commandstats")
    ours = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    return {name: calls for name, calls in ours.items() if not name.startswith(("config", "info"))}


def everything(client: redis.Redis) -> dict[str, Any]:
    pipe, names = client.pipeline(transaction=False), sorted(client.scan_iter("*"))
    for name in names:
        pipe.type(name)
    read: dict[bytes, Callable[[Any], Any]] = {
        b"hash": pipe.hgetall,
        b"zset": lambda key: pipe.zrange(key, 0, -1, withscores=True),
        b"set": pipe.smembers,
        b"string": pipe.get,
    }
    for name, kind in zip(names, pipe.execute(), strict=True):
        read[kind](name)
    return {name.decode(): value for name, value in zip(names, pipe.execute(), strict=True)}
