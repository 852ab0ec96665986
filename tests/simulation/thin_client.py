"""A thin client of the ledger's scripts, with a clock that stands still: what the simulation and its tests drive.

It names arguments and takes replies apart. Nothing is retried here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import orjson
from redis.exceptions import NoScriptError

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.packed import numbers, record_of
from tasks.ledger.scripts import SCRIPTS, sha, source

ROOT = "eq"
MODEL = "m"
STAMP = "f"
START_MS = 1_900_000_000_000
LEASE_MS = 15_000
WORKER_TTL_MS = 9000
RATE = 4000
LANES = ("online", "bulk")


@dataclass(frozen=True)
class NewTask:
    """The arguments of a task, in the order of SUBMIT. `pieces`: items, cost and payload of each."""

    id: str
    queue: str = MODEL
    lane: str = "online"
    owner: str = "o"
    deadline_in_ms: int = 0
    ttl_ms: int = 60_000
    options: str = ""
    meta: str = ""
    alias: str = ""
    digest: str = ""
    joins: bool = False
    listed: bool = False
    wakes: bool = False
    trace: str = ""
    answer_to: str = ""
    vector_bytes: int = 0
    max_backlog_s: float = 1e9
    max_memory_percent: int = 80
    tokens_per_minute: int | str = ""
    queued_tokens: int | str = ""
    open_jobs: int | str = ""
    pieces: Sequence[tuple[int, int, bytes]] = ((1, 10, b'["t"]'),)

    def arguments(self) -> list[Any]:
        """How many, then by position, then of its pieces."""
        *own, pieces = vars(self).values()
        flat = [int(one) if isinstance(one, bool) else one for one in (*own, *chain.from_iterable(pieces))]
        return [len(flat), *flat]


class Piece(NamedTuple):
    """A part of a claim."""

    task: str
    name: str
    first: int
    items: int
    cost: int
    deaths: int
    offset: int
    options: bytes
    payload: bytes
    trace: bytes
    owner: str


@dataclass(frozen=True)
class Claim:
    """What CLAIM replied."""

    token: str
    bell: int = 0
    wait_ms: int = 0
    more: bool = False
    lane: str = ""
    pieces: Sequence[Piece] = ()
    changed: bool = False

    @property
    def cost(self) -> int:
        """Of all its pieces."""
        return sum(piece.cost for piece in self.pieces)

    @property
    def tasks(self) -> list[str]:
        """Of its pieces."""
        return [piece.task for piece in self.pieces]


class Finished(NamedTuple):
    """A piece and what is committed for it."""

    piece: Piece
    outcome: bytes
    failed: int = 0
    extra: bytes = b""
    tokens: int = 1


class Committed(NamedTuple):
    """What COMMIT replied."""

    wait_ms: int
    codes: list[int]
    took: list[Any]


class Beat(NamedTuple):
    """What HEARTBEAT replied."""

    accepted: bool
    bell: int
    ready: int
    leases: int
    ended: int
    more: bool


@dataclass
class Task:
    """What a task's hash holds: its record by name, and by first item or by name what is stored beside it."""

    record: Mapping[str, Any]
    outcomes: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    errors: dict[int, Any] = field(default_factory=dict)
    pieces: dict[str, bytes] = field(default_factory=dict)
    payloads: dict[str, bytes] = field(default_factory=dict)
    meta: bytes = b""

    @property
    def state(self) -> str:
        """One of five."""
        return str(self.record["state"])

    @property
    def is_open(self) -> bool:
        """It has not ended."""
        return self.state in {"queued", "in_progress"}

    def __getitem__(self, name: str) -> Any:
        return self.record[name]


def task_of(fields: Mapping[bytes, bytes]) -> Task | None:
    """From the fields of its hash."""
    if not fields:
        return None
    task = Task(record_of(fields[b"s"]), meta=fields.get(b"m", b""))
    for name, value in fields.items():
        kind, rest = chr(name[0]), name[1:].decode()
        if kind == "v":
            first, items = map(int, rest.split("+"))
            task.outcomes[first] = (items, value)
        elif kind == "x":
            task.errors[int(rest)] = orjson.loads(value)
        elif kind in "ud":
            {"u": task.pieces, "d": task.payloads}[kind][rest] = value
    return task


@dataclass
class Ledger:
    """Calls of scripts on one queue.

    Attributes:
        folder: of the scripts.
        tampered: a test has changed by hand what scripts keep, so sums need not agree.
    """

    redis: Any  # a client whose replies are bytes; its types say bytes or text
    folder: Path = SCRIPTS
    queue: str = MODEL
    now: int = START_MS
    tampered: bool = False

    def advance(self, ms: int) -> None:
        """Lets time pass."""
        self.now += ms

    def call(self, script: str, *arguments: Any) -> Any:
        """The reply of a script."""
        head = (0, ROOT, f"@{self.now}", self.queue)
        try:
            return self.redis.execute_command("EVALSHA", sha(script, self.folder), *head, *arguments)
        except NoScriptError:
            return self.redis.execute_command("EVAL", source(script, self.folder), *head, *arguments)

    def submit(
        self, *tasks: NewTask, rate: int = RATE, max_bytes: int = 2**53, share: float = 0
    ) -> tuple[list[Any], list[str]]:
        """A reply for each task, and the queues for which a bell is due."""
        arguments = chain.from_iterable(task.arguments() for task in tasks)
        reply = self.call("submit", rate, max_bytes, share, *arguments)
        return reply[: len(tasks)], [name.decode() for name in reply[len(tasks) :]]

    def bring(self, task: NewTask, **how: Any) -> list[Any]:
        """The reply for one task."""
        replies, _ = self.submit(task, **how)
        found: list[Any] = replies[0]
        return found

    def claim(self, stream: str, token: str, **how: Any) -> Claim:
        """What this stream has now, or how long it may wait. `how`: as in `ClaimRequest`."""
        usual: dict[str, Any] = {"budget": 1000, "max_pieces": 64, "lease_ms": LEASE_MS, "stamp": STAMP}
        reply = self.call("claim", *claim(self.queue, ClaimRequest(stream, token, **usual | how)).arguments)
        if reply[0] == b"changed":
            return Claim(token, changed=True)
        bell, wait_ms, more, lane, *rows = reply
        pieces = [Piece._make([task.decode(), name.decode(), *row, owner.decode()]) for task, name, *row, owner in rows]
        return Claim(token, bell, wait_ms, bool(more), lane.decode(), pieces)

    def commit(
        self, token: str, finished: Sequence[Finished], *, spent: int = 0, stream: str = "", linger_ms: int = 0
    ) -> Committed:
        """What became of each piece."""
        rows = [
            (f.piece.task, f.piece.name, f.piece.first, f.piece.items, f.failed, f.tokens, f.extra, f.outcome)
            for f in finished
        ]
        return Committed(*self.call("commit", token, spent, stream, linger_ms, len(rows), *chain.from_iterable(rows)))

    def finish(self, claim: Claim, outcome: bytes = b"v", **how: Any) -> Committed:
        """Commits all of a claim: for each item so many bytes."""
        return self.commit(claim.token, [Finished(p, outcome * p.items, tokens=p.items) for p in claim.pieces], **how)

    def give_back(self, token: str, *, blame: bool = False) -> int:
        """Whether a bell is due."""
        return int(self.call("give_back", token, int(blame)))

    def heartbeat(
        self,
        what: str,
        worker: str = "",
        *,
        ttl_ms: int = WORKER_TTL_MS,
        rate: int = RATE,
        entry: str = "{}",
        model: str = "{}",
        stamp: str = STAMP,
        lease_ms: int = LEASE_MS,
        counts: Mapping[str, int] | None = None,
        tokens: Iterable[str] = (),
    ) -> Beat:
        """`what`: join, beat, stop, watch, loading."""
        said = orjson.dumps(counts) if counts else b""
        own = (worker, ttl_ms, rate, entry, model, stamp if worker else "", what, lease_ms, said, *tokens)
        accepted, bell, ready, leases, ended, more = self.call("heartbeat", *own)
        return Beat(bool(accepted), bell, ready, leases, ended, bool(more))

    def watch(self) -> Beat:
        """Housekeeping."""
        return self.heartbeat("watch")

    def cancel(self, *ids: str, forget: bool = False) -> list[str]:
        """The states before."""
        return [state.decode() for state in self.call("cancel", "forget" if forget else "cancel", *ids)]

    def want(self, task_id: str, for_ms: int, *, gone: bool = False) -> bool:
        """Whether it is open."""
        return bool(self.call("cancel", "want", task_id, for_ms, int(gone)))

    def read(self, task_id: str) -> Task | None:
        """State and outcomes of one moment. No script: all of it is one hash."""
        return task_of(self.redis.hgetall(f"{ROOT}:task:{task_id}"))

    def known(self, task_id: str) -> Task:
        """The same of a task that must be there."""
        task = self.read(task_id)
        assert task is not None, f"{task_id} is unknown"
        return task

    def sums(self, key: str) -> dict[str, Any]:
        """Of a queue (`q:m:state`) or an owner (`owner:o`); what is not there is 0."""
        return numbers(self.redis.get(f"{ROOT}:{key}"))

    def set_sums(self, key: str, **values: Any) -> None:
        """Instead of what is there."""
        self.redis.set(f"{ROOT}:{key}", msgpack.packb(values))

    @property
    def state(self) -> dict[str, Any]:
        """Of the queue."""
        return self.sums(f"q:{self.queue}:state")

    def account(self, owner: str) -> dict[str, Any]:
        """Of an owner."""
        return self.sums(f"owner:{owner}")

    @property
    def counts(self) -> dict[str, int]:
        """Totals of the queue."""
        flat = self.redis.hgetall(f"{ROOT}:q:{self.queue}:counts")
        return {name.decode(): int(value) for name, value in flat.items()}

    # ---- short ways to say what a test brings and what is served

    def drain(self, rounds: int = 99, budget: int = 10**6, *, stream: str = "w/0", **how: Any) -> list[Piece]:
        """Claims and commits; what was served."""
        served: list[Piece] = []
        for n in range(rounds):
            claim = self.claim(stream, f"{stream}/d{self.now}.{n}.{len(served)}", budget=budget, **how)
            if not claim.pieces:
                break
            served += claim.pieces
            self.finish(claim)
        return served

    def written(self, call: Any) -> int:
        """How many keys a call has changed: each such write is an fsync for everybody."""
        before = self.redis.info("persistence")["rdb_changes_since_last_save"]
        call()
        return int(self.redis.info("persistence")["rdb_changes_since_last_save"]) - int(before)


def sized(cost: int, items: int = 1, number: int = 1) -> Sequence[tuple[int, int, bytes]]:
    """So many equal pieces."""
    return [(items, cost, b"[]")] * number


def tasks(prefix: str, number: int, **how: Any) -> list[NewTask]:
    """So many equal tasks, whose ids are in their order."""
    return [NewTask(f"{prefix}{n:04d}", **how) for n in range(number)]
