"""What the simulation knows: tasks it submitted, workers it plays, messages on their way, faults it has caused."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import redis

from stack.testing import PATIENCE_S
from tasks.ledger import Alias, Claim, ClaimedUnit, Lane, ModelEntry, NewTask, State, keys, operations
from tasks.ledger.operations import ClaimRequest
from tests.integration.ledger.driver import MODEL, Driver
from tests.integration.ledger.scripts import SCRIPTS
from tests.integration.ledger.simulation.turns import Turns
from tests.integration.ledger.snapshot import Snapshot
from tests.ledger_builders import model_entry

WORKERS = 3
LEASE_MS = 1000
SUSPECTS = "suspects"
"""The line that is no lane."""
VECTOR_BYTES = 10
TASK_BYTES = 1024
RECORD = "ing_simulated"
"""The record that steps change."""
TTLS_MS = (3_600_000, 200_000, 9_000_000)
"""Results outlive a run: only the accounts of what they fill see an end, rounded up to another moment for each."""

MODELS = tuple(model_entry(revision=revision, dimension=2) for revision in ("one", "two"))
"""What workers may have loaded, all under one name."""

WorkerState = Literal["idle", "started", "again", "lingering", "busy"]


@dataclass
class ExpectedTask:
    """A task as it was submitted, and the deadline it should have now."""

    id: str
    lane: Lane
    owner: str
    items: int
    size_bytes: int
    deadline_ms: int | None
    alias: Alias | None
    poison: frozenset[int]
    """Items that kill whoever encodes them."""
    listed: bool
    trace: str


@dataclass
class Worker:
    """One worker process.

    `idle`: no drain runs. `started`: a bell message arrived. `again`: between claims of a drain. `lingering`: blocked
    until it is woken or `until_ms`. `busy`: it holds `units`.
    """

    name: str
    state: WorkerState = "idle"
    asked: ClaimRequest | None = None
    """With which it lingers."""
    told: bytes = b""
    """What woke it, until that is read."""
    handed: Claim | None = None
    """That was made for it while it lingered."""
    claim: Claim | None = None
    units: list[ClaimedUnit] = field(default_factory=list)
    until_ms: int = 0
    notified: bool = False
    worked: bool = False
    suspects: bool = False
    """It was told that some wait."""
    model: ModelEntry = MODELS[0]
    """Which it has loaded."""
    rate: float = 50
    """Of the whole process, as it said when it was last heard; at first nobody has heard it."""

    @property
    def token(self) -> str:
        assert self.claim is not None
        return self.claim.token


@dataclass(frozen=True)
class Innocent:
    """A unit, what held it when its worker died, and the suspect that it died of."""

    unit: ClaimedUnit
    token: str
    suspect: ClaimedUnit
    suspect_token: str


class Ears:
    """The subscriptions of all living workers, on one connection."""

    def __init__(self, client: redis.Redis) -> None:
        self._pubsub = client.pubsub()  # type: ignore[no-untyped-call]

    def open(self, worker: str) -> None:
        self._pubsub.subscribe(keys.wake_channel(MODEL, worker))
        self._next()

    def close(self, worker: str) -> None:
        self._pubsub.unsubscribe(keys.wake_channel(MODEL, worker))
        while self._next()["type"] != "unsubscribe":
            pass

    def woken(self) -> dict[str, bytes]:
        """Workers that were woken before this call, and what each was told last."""
        self._pubsub.ping()  # its answer comes after all that was published before
        found: dict[str, bytes] = {}
        while (message := self._next())["type"] != "pong":
            found[message["channel"].decode().rpartition(":")[2]] = message["data"]
        return found

    def shut(self) -> None:
        self._pubsub.close()

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] | None = self._pubsub.get_message(timeout=PATIENCE_S)
        assert message is not None, "the subscription is silent"
        return message


class World:
    """One run of the simulation, on an empty Redis."""

    def __init__(self, client: redis.Redis, scripts: Path = SCRIPTS) -> None:
        client.flushall()
        self.client = client
        self.driver = Driver(client, scripts=scripts)
        self.ears = Ears(client)
        self.tasks: dict[str, ExpectedTask] = {}
        self.workers: list[Worker] = []
        self.zombies: list[tuple[str, list[ClaimedUnit]]] = []
        """Claims of workers that were declared dead and may not be."""
        self.messages = 0
        self.lost_bell = False
        """A message that the ledger believes in will never arrive."""
        self.lost_wake = False
        """A worker died that had just been woken; until WATCH looks, nobody may come."""
        self.outcomes: dict[tuple[str, int], tuple[str, str]] = {}
        self.lost_alone: Counter[tuple[str, int]] = Counter()
        """How often an item was claimed alone as a suspect and that claim was neither committed nor given back."""
        self.innocent: dict[tuple[str, str], Innocent] = {}
        """Units that stood still, in the claim of a worker that died of a suspect."""
        self.left: list[tuple[str, NewTask]] = []
        """Jobs that are done, and the successor that the outcome of each names."""
        self.taken: set[str] = set()
        """Those whose change was made."""
        self.last: Callable[[], None] | None = None
        """Repeats the last call, as after a lost reply, and checks its answer."""
        self.owner_turns: defaultdict[str, Turns] = defaultdict(Turns)
        self.task_turns: defaultdict[tuple[str, str], Turns] = defaultdict(Turns)
        self.stats: Counter[str] = Counter()
        self.numbers = itertools.count(1)
        self.seen = Snapshot({})
        """All keys after the last step."""
        self.serves = MODELS[0]
        self.made_by: dict[float, str] = {}
        """By the mark of the vectors of a claim: the stamp of the worker that claimed."""
        assert self.driver.run(operations.register(MODEL, self.serves))
        for _ in range(WORKERS):
            self.workers.append(self.new_worker())

    @property
    def now_ms(self) -> int:
        return self.driver.now_ms

    def new_worker(self, name: str | None = None) -> Worker:
        worker = Worker(name or f"w{next(self.numbers)}", model=self.serves)
        self.ears.open(worker.name)
        return worker

    def sends(self, bell_due: bool, *, sent: bool = True) -> None:
        """A call has answered: its caller sends the message it was told to send, unless it dies before."""
        if bell_due and sent:
            self.messages += 1
        elif bell_due:
            self.lost_bell = True
        woken = self.ears.woken()
        self.stats["woken"] += len(woken)
        for worker in self.workers:
            worker.notified |= worker.name in woken
            worker.told = woken.get(worker.name, worker.told)

    def holds(self, token: str, unit: ClaimedUnit) -> bool:
        """Whether this claim holds the unit at this moment."""
        record = self.client.hget(f"eq:units:{unit.task_id}", f"u{unit.unit_id}")
        return isinstance(record, bytes) and record.decode().split(" ")[-1] == token

    def state(self, task_id: str) -> State:
        return self.driver.task(task_id).state

    def open_tasks(self) -> list[str]:
        """After the last step."""
        return [id_ for id_ in self.tasks if not State(self.seen.get(f"eq:task:{id_}")["state"]).terminal]

    def close(self) -> None:
        self.ears.shut()
