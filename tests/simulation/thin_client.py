"""A thin client of the ledger's scripts, with a clock that stands still: what the simulation and its tests drive.

It names arguments and takes replies apart. Nothing is retried here.
"""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import orjson
from redis.exceptions import NoScriptError

LUA = Path(__file__).resolve().parents[2] / "tasks/ledger/lua"
ROOT = "eq"
MODEL = "m"
STAMP = "f"
START_MS = 1_900_000_000_000
LEASE_MS = 15_000
WORKER_TTL_MS = 9000
RATE = 4000
OPEN = frozenset({"queued", "in_progress"})

_CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: +--.*)?\n", re.MULTILINE)
_PLACES = 100  # places of the packed record are below it


def _constants(text: str) -> dict[str, str]:
    pairs = (zip(m[1].split(", "), m[2].split(", "), strict=True) for m in _CONSTANTS.finditer(text))
    return dict(itertools.chain.from_iterable(pairs))


class Scripts:
    """The texts of the scripts: the ledger's own, or some of them changed."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._sources: dict[str, str] = {}
        self._digests: dict[str, str] = {}

    @classmethod
    def of_the_ledger(cls) -> "Scripts":
        """As they are."""
        return _as_they_are()

    def with_text(self, file: str, text: str) -> "Scripts":
        """The same, but for one file."""
        return Scripts({**self.texts, file: text})

    @property
    def record_fields(self) -> list[str]:
        """The names of the packed record of a task, in their order."""
        found = _constants(self.texts["shared/task_record.lua"])
        return [name.lower() for name, place in found.items() if int(place) < _PLACES]

    def digest(self, name: str) -> str:
        """By which Redis knows it."""
        if name not in self._digests:
            self._digests[name] = hashlib.sha1(self.source(name).encode(), usedforsecurity=False).hexdigest()
        return self._digests[name]

    def source(self, name: str) -> str:
        """The script with the shared parts that it and they name, each once. Redis runs all of it with each call."""
        if name not in self._sources:
            text = "\n".join(self.texts[part] for part in [*self.parts("shared/base.lua"), *self.parts(f"{name}.lua")])
            # Numbers are written into the text: a local that functions share is looked for whenever one is made.
            values = _constants(text)
            text = _CONSTANTS.sub("", text)
            if values:
                text = re.sub(rf"\b({'|'.join(values)})\b", lambda m: values[m[1]], text)
            self._sources[name] = text
        return self._sources[name]

    def parts(self, file: str) -> list[str]:
        """The file and what it uses, which comes first."""
        found: dict[str, None] = {}
        for names in re.findall(r"^-- uses: (.+)$", self.texts[file], re.MULTILINE):
            for part in names.split():
                found |= dict.fromkeys(self.parts(f"shared/{part}.lua"))
        return [*found, file]


@cache
def _as_they_are() -> Scripts:
    return Scripts({str(path.relative_to(LUA)): path.read_text() for path in sorted(LUA.rglob("*.lua"))})


@dataclass(frozen=True)
class NewTask:
    """The arguments of a task. `pieces`: items, cost and payload of each."""

    id: str
    owner: str = "o"
    pieces: Sequence[tuple[int, int, bytes]] = ((1, 10, b'["t"]'),)
    queue: str = MODEL
    lane: str = "online"
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

    def arguments(self) -> list[Any]:
        """As SUBMIT reads them: how many, then by position, then of its pieces."""
        own = [
            *(self.id, self.queue, self.lane, self.owner, self.deadline_in_ms, self.ttl_ms, self.options, self.meta),
            *(self.alias, self.digest, int(self.joins), int(self.listed), int(self.wakes), self.trace, self.answer_to),
            *(self.vector_bytes, self.max_backlog_s, self.max_memory_percent, self.tokens_per_minute),
            *(self.queued_tokens, self.open_jobs),
            *itertools.chain.from_iterable(self.pieces),
        ]
        return [len(own), *own]


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
        return self.state in OPEN

    def __getitem__(self, name: str) -> Any:
        return self.record[name]


@dataclass
class Ledger:
    """Calls of scripts on one queue.

    Attributes:
        now_ms: the time at which they run; None: the server's.
        tampered: a test has changed by hand what scripts keep, so sums need not agree.
    """

    redis: Any  # a client whose replies are bytes; its types say bytes or text
    scripts: Scripts = field(default_factory=Scripts.of_the_ledger)
    queue: str = MODEL
    now_ms: int | None = START_MS
    tampered: bool = False

    @property
    def now(self) -> int:
        """The time at which scripts run, where it stands still."""
        assert self.now_ms is not None
        return self.now_ms

    def advance(self, ms: int) -> None:
        """Lets time pass."""
        self.now_ms = self.now + ms

    def call(self, script: str, *arguments: Any) -> Any:
        """The reply of a script."""
        clock = "0" if self.now_ms is None else f"@{self.now_ms}"
        head = (0, ROOT, clock, self.queue)
        try:
            return self.redis.execute_command("EVALSHA", self.scripts.digest(script), *head, *arguments)
        except NoScriptError:
            return self.redis.execute_command("EVAL", self.scripts.source(script), *head, *arguments)

    def submit(
        self, *tasks: NewTask, rate: int = RATE, max_bytes: int = 2**53, share: int = 0
    ) -> tuple[list[Any], list[str]]:
        """A reply for each task, and the queues for which a bell is due."""
        arguments = itertools.chain.from_iterable(task.arguments() for task in tasks)
        reply = self.call("submit", rate, max_bytes, share, *arguments)
        return reply[: len(tasks)], [name.decode() for name in reply[len(tasks) :]]

    def bring(self, task: NewTask, **how: Any) -> list[Any]:
        """The reply for one task."""
        replies, _ = self.submit(task, **how)
        found: list[Any] = replies[0]
        return found

    def claim(
        self,
        stream: str,
        token: str,
        *,
        budget: int = 1000,
        online_budget: int | None = None,
        max_pieces: int = 64,
        lease_ms: int = LEASE_MS,
        linger_ms: int = 0,
        rang: bool = False,
        online_only: bool = False,
        no_lists: bool = False,
        rate: int = 0,
        stamp: str = STAMP,
        passes: str = "",
    ) -> Claim:
        """What this stream has now, or how long it may wait."""
        online = budget if online_budget is None else online_budget
        limits = (budget, online, max_pieces, lease_ms, linger_ms)
        looks = 2 if no_lists else int(online_only)
        reply = self.call("claim", stream, token, *limits, int(rang), looks, rate, stamp, passes)
        if reply[0] == b"changed":
            return Claim(token, changed=True)
        bell, wait_ms, more, lane, *rows = reply
        return Claim(token, bell, wait_ms, bool(more), lane.decode(), [_piece(row) for row in rows])

    def commit(
        self, token: str, finished: Sequence[Finished], *, spent: int = 0, stream: str = "", linger_ms: int = 0
    ) -> Committed:
        """What became of each piece."""
        rows = [
            (f.piece.task, f.piece.name, f.piece.first, f.piece.items, f.failed, f.tokens, f.extra, f.outcome)
            for f in finished
        ]
        flat = itertools.chain.from_iterable(rows)
        return Committed(*self.call("commit", token, spent, stream, linger_ms, len(rows), *flat))

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

    def take_request(self, owner: str, per_s: float) -> list[int]:
        """Ms to wait, requests that are left, ms until all are."""
        told: list[int] = self.call("request_rate", owner, per_s)
        return told

    def read(self, task_id: str) -> Task | None:
        """State and outcomes of one moment. No script: all of it is one hash."""
        return self.task_of(self.redis.hgetall(f"{ROOT}:task:{task_id}"))

    def known(self, task_id: str) -> Task:
        """The same of a task that must be there."""
        task = self.read(task_id)
        assert task is not None, f"{task_id} is unknown"
        return task

    def task_of(self, fields: Mapping[bytes, bytes]) -> Task | None:
        """From the fields of its hash."""
        if not fields:
            return None
        record = dict(zip(self.scripts.record_fields, msgpack.unpackb(fields[b"s"]), strict=True))
        task = Task(record, meta=fields.get(b"m", b""))
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

    def sums(self, key: str) -> dict[str, Any]:
        """Of a queue (`q:m:state`) or an owner (`owner:o`); what is not there is 0."""
        text = self.redis.get(f"{ROOT}:{key}")
        found: dict[str, Any] = msgpack.unpackb(text) if text else {}
        return found

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

    def list_ids(
        self, owner: str, *, after: str = "", limit: int = 20, look: int = 100, states: str = ""
    ) -> tuple[str, bool, list[str]]:
        """How far it has looked, whether there may be more, and the ids, the newest first."""
        until, more, *rows = self.call("list", owner, after, limit, look, states)
        return until.decode(), bool(more), [row[0].decode() for row in rows]


def _piece(row: Sequence[Any]) -> Piece:
    task, name, first, items, cost, deaths, offset, options, payload, trace, owner = row
    return Piece(
        task.decode(), name.decode(), first, items, cost, deaths, offset, options, payload, trace, owner.decode()
    )


def answers(ledger: Ledger, message: bytes) -> dict[str, Task]:
    """The tasks in a message that came with the news."""
    pieces = _pieces(message)
    told: dict[str, Task] = {}
    for task_id in pieces:
        fields = [next(pieces) for _ in range(int(next(pieces)) + 1)]
        task = ledger.task_of({b"s": fields[0], **dict(zip(fields[1::2], fields[2::2], strict=True))})
        assert task is not None
        told[task_id.decode()] = task
    return told


def _pieces(message: bytes) -> Iterator[bytes]:
    head, _, body = message.partition(b"\n")
    at = 0
    for length in map(int, head.split()):
        yield body[at : at + length]
        at += length
