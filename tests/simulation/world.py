"""A service in miniature around the scripts, and what must be there: clients, a broker, processes that die, a clock.

`clients`, `fleet` and `repeats` act on it. `invariants` compares all that Redis holds with what this model knows.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.ledger.scripts import SCRIPTS
from tests.integration.ledger.listener import Listener
from tests.simulation.thin_client import ROOT, Claim, Ledger

TTL_MS = 20_000
LEASE_MS = 3000
LOSSES = 3
TASK_BYTES = 1024
VECTOR_BYTES = 8
PROCESSES = 3
OWNERS = ("o1", "o2", "o3")
QUEUE_KEY = f"{ROOT}:q:m:"
_EVERY_MS, _STILL_MS, _MAX_REAPED = 1000, 5000, 8


@dataclass
class Known:
    """What must be true of a task.

    `starts`: the first item of each piece; `poison`: the item that kills workers; `answer`: the one process that waits
    for it, "" for several and none.
    """

    owner: str
    lane: str
    total: int
    starts: list[int]
    poison: int | None = None
    deadline: int = 0
    answer: str = ""
    ended: bool = False


@dataclass(frozen=True)
class Held:
    """A piece that a claim still holds."""

    task: str
    name: str
    first: int
    items: int
    deaths: int


class Process:
    """Two streams that share a fate, and a subscription to what wakes them."""

    def __init__(self, client: Any, name: str) -> None:
        self.name, self.alive = name, True
        self.streams = [Stream(self, f"{name}/{n}") for n in range(2)]
        self._listener = Listener(client, *[f"{QUEUE_KEY}wake:{stream.name}" for stream in self.streams])

    def hear(self) -> None:
        """Takes note of what was published."""
        if self.alive:
            for channel, _ in self._listener.heard():
                for stream in self.streams:
                    stream.notified |= channel.endswith(stream.name)

    def close(self) -> None:
        """Ends its subscription; returns when Redis has noticed."""
        if self.alive:
            self._listener.close()
            self.alive = False


@dataclass
class Stream:
    """idle -> started -> busy | lingering | paused | again -> ... -> idle; hung is busy without a sign."""

    process: Process
    name: str
    state: str = "idle"
    notified: bool = False
    until: int = 0
    rang: bool = False
    claim: Claim | None = None

    @property
    def claimed(self) -> Claim:
        """Of a stream that is busy."""
        assert self.claim is not None
        return self.claim


@dataclass
class World:
    """One queue, three processes of two streams, and all that was ever accepted.

    Attributes:
        hits: how often a worker died of a claim with this item in it.
        outcomes: what was once seen of an item, which never changes.
        broker: bells that are sent and not heard yet.
        fault: a wake-up may be lost, until somebody has looked.
        last: makes the last call again, as after a reply that was lost.
    """

    client: Any
    scripts: Path = SCRIPTS
    tasks: dict[str, Known] = field(default_factory=dict)
    outcomes: dict[tuple[str, int], bytes] = field(default_factory=dict)
    hits: Counter[tuple[str, int]] = field(default_factory=Counter)
    processes: list[Process] = field(default_factory=list)
    zombies: list[Claim] = field(default_factory=list)
    revoked: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    broker: int = 0
    fault: bool = True
    last: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.client.flushdb()
        self.ledger = Ledger(self.client, self.scripts)
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """Another one with each call."""
        return next(self._numbers)

    # ---- what Redis holds ------------------------------------------------------------------------------------------

    def is_open(self, task_id: str) -> bool:
        """It is there and has not ended."""
        task = self.ledger.read(task_id)
        return task is not None and task.is_open

    def claims(self) -> dict[str, list[tuple[str, str]]]:
        """Task and piece of all that was claimed, by token."""
        return {token.decode(): pairs(refs) for token, refs in self.client.hgetall(f"{QUEUE_KEY}claims").items()}

    def held(self, token: str) -> Iterator[Held]:
        """What a claim still holds."""
        for task_id, name in self.claims().get(token, []):
            raw = self.client.hget(f"{ROOT}:task:{task_id}", f"u{name}")
            if raw and raw.decode().split()[6] == token:
                first, items, _, deaths = map(int, raw.split()[:4])
                yield Held(task_id, name, first, items, deaths)

    def find(self, number: int) -> str | None:
        """One of the tasks that are known."""
        ids = sorted(self.tasks)
        return ids[number % len(ids)] if ids else None

    # ---- what becomes of it ----------------------------------------------------------------------------------------

    def note_losses(self, tokens: list[str]) -> None:
        """These claims are lost now."""
        for token in tokens:
            for piece in self.held(token):
                for item in range(piece.first, piece.first + piece.items):
                    self.hits[piece.task, item] += 1

    def rung(self, bells: int, *, sent: bool = True) -> None:
        """So many bells are due, and are sent or not; whoever was woken hears it."""
        if sent:
            self.broker += bells
        elif bells:
            self.fault = True
        for process in self.processes:
            process.hear()

    def lose_message(self) -> None:
        """The broker loses a bell."""
        if self.broker:
            self.broker -= 1
            self.fault = True

    def watch(self) -> None:
        """Housekeeping."""
        self.note_expiring(always=True)
        beat = self.ledger.watch()
        self.rung(beat.bell)
        self.fault = self.fault and not beat.bell and beat.ready > 0

    def note_expiring(self, but: Collection[str] = (), *, always: bool = False) -> None:
        """Housekeeping, which other calls do once a second, takes these leases for lost, `but` those."""
        now = self.ledger.now
        looked = int(self.ledger.state.get("looked", 0))
        if not (always or now < looked or now - looked >= _EVERY_MS):
            return
        shift = max(0, now - looked - _STILL_MS) if looked else 0
        leases = self.client.zrange(f"{QUEUE_KEY}leases", 0, -1, withscores=True)
        over = [token.decode() for token, at in leases if at + shift <= now]
        self.note_losses([token for token in over if token not in but][:_MAX_REAPED])

    def mark(self, owner: str, name: str) -> None:
        """Revokes or purges an owner, as a record of his key would; or takes it back."""
        marked = self.revoked if name == "revoked" else self.purged
        if name == "revoked" and owner in marked:
            marked.remove(owner)
        else:
            marked.add(owner)
        account = self.ledger.account(owner) | {name: int(owner in marked)}
        self.ledger.set_sums(f"owner:{owner}", **account)
        self.ledger.call("request_rate", owner, 100)

    def close(self) -> None:
        """Closes what the processes have open."""
        for process in self.processes:
            process.close()


def pairs(refs: bytes) -> list[tuple[str, str]]:
    """Task and piece, of the words of a claim."""
    words = refs.decode().split()
    return list(zip(words[::2], words[1::2], strict=True))
