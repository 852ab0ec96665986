"""What must hold of all keys after every step."""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, TypeAlias

from tasks.ledger import ClaimedUnit, Lane, State
from tests.integration.ledger.simulation.claims import MAX_UNIT_COST
from tests.integration.ledger.simulation.world import RECORD, SUSPECTS, TASK_BYTES, VECTOR_BYTES, ExpectedTask, World
from tests.integration.ledger.snapshot import Snapshot

STATE, LEASES, LINGER, DEADLINES = (f"eq:q:m:{part}" for part in ("state", "leases", "lingering", "deadlines"))
LINES = ("eq:q:m:online", "eq:q:m:bulk", "eq:q:m:suspects")
RECORD_KEYS = {f"eq:{name}" for name in (f"ingestion:{RECORD}", "ingestions:b", "ingesting:b", "open-ingestions")}
RECORD_KEYS |= {"eq:ingestion-order"}
ACCOUNTS = ("cost_", "tasks_", "owners_", "bytes")
LOST = "worker_lost"

Ready: TypeAlias = dict[str, dict[str, set[str]]]
"""Line -> owner -> tasks."""


@dataclass(frozen=True)
class Record:
    """A unit as it is stored."""

    first: int
    items: int
    cost: int
    attempts: int
    root: str
    token: str

    @classmethod
    def parse(cls, text: str) -> "Record":
        first, items, cost, attempts, root, _, token = text.split(" ")
        return cls(int(first), int(items), int(cost), int(attempts), root, token)


def check(world: World) -> None:
    """Looks at everything. Call it after each step."""
    world.seen = seen = Snapshot.take(world.client)
    world.stats["steps"] += 1
    claims = seen.named("eq:q:m:claim:")
    assert set(claims) == set(seen.get(LEASES)), "a claim without a lease, or a lease without a claim"
    ready: Ready = {line: defaultdict(set) for line in (*Lane, SUSPECTS)}
    backlog = Counter[str]()
    deadlines: dict[str, str] = {}
    leased: set[tuple[str, str]] = set()
    for task in world.tasks.values():
        stored = seen.get(f"eq:task:{task.id}")
        outcomes = _outcomes(world, task, seen)
        if State(stored["state"]).terminal:
            _check_ended(task, stored, seen, outcomes)
            continue
        records = _check_open(task, stored, seen, outcomes)
        leased |= {(record.token, f"{task.id} {name}") for name, record in records.items() if record.token != "-"}
        for record in records.values():
            if record.token == "-":
                ready[SUSPECTS if record.attempts else task.lane][task.owner].add(task.id)
        for whose in ("", f":{task.owner}"):
            backlog[f"cost_{task.lane}{whose}"] += int(stored["cost"])
            backlog[f"tasks_{task.lane}{whose}"] += 1
            backlog[f"bytes{whose}"] += task.size_bytes
        if task.deadline_ms is not None:
            deadlines[task.id] = str(task.deadline_ms)
    _check_claims(world, claims, leased)
    _check_innocent(world)
    _check_lanes(seen, ready)
    assert seen.get(DEADLINES) == deadlines
    state = seen.get(STATE)
    _check_accounts(world, state, backlog)
    _check_turns(world, ready)
    _check_wakeup(world, state, any(ready.values()))
    _check_lists(world, seen)
    _check_names(world, seen)


def _check_accounts(world: World, state: dict[str, Any], backlog: Counter[str]) -> None:
    for lane in Lane:
        backlog[f"owners_{lane}"] = sum(name.startswith(f"tasks_{lane}:") for name in backlog)
    stored = {name: int(value) for name, value in state.items() if name.startswith(ACCOUNTS)}
    lasting = {name: n for name, n in stored.items() if n or ":" in name}
    assert lasting == {name: n for name, n in backlog.items() if n}
    _check_bytes(world)


def _check_bytes(world: World) -> None:
    """Who fills how much of Redis: open tasks, and results until they have expired."""
    opened, entries, reserved = Counter[str](), Counter[str](), 0
    for task in world.tasks.values():
        fields = world.seen.get(f"eq:task:{task.id}")
        held, left = int(fields["held"]), int(fields["reserve"])
        room = task.items * VECTOR_BYTES + TASK_BYTES
        if State(fields["state"]).terminal:
            assert held == room - left
            entries[f"{_moment(int(fields['finished']), int(fields['ttl']))} {task.owner}"] += held
        else:
            assert held == room + task.size_bytes
            reserved += left
            opened[task.owner] += held
    assert int(world.seen.get("eq:reserved") or 0) == reserved
    stored = {name: int(value) for name, value in world.seen.get("eq:held").items()}
    kept = {name: size for name, size in stored.items() if " " in name}
    due = {entry: size for entry, size in entries.items() if size and int(entry.split()[0]) <= world.now_ms}
    assert kept | due == +entries, "results are not in the account of their owner"
    assert world.seen.get("eq:held-until") == {entry: entry.split()[0] for entry in kept}
    for entry, size in kept.items():
        opened[entry.split()[1]] += size
    assert {name: size for name, size in stored.items() if " " not in name} == +opened, "the sum of an owner is wrong"
    world.stats["counted_out"] += len(due.keys() - kept.keys())


def _moment(finished_ms: int, ttl_ms: int) -> int:
    apart = 1 << max(0, math.frexp(ttl_ms / 32)[1] - 1)
    return -(-(finished_ms + ttl_ms) // apart) * apart


def _outcomes(world: World, task: ExpectedTask, seen: Snapshot) -> set[int]:
    """Items that have ended, each once and for good."""
    ended: set[int] = set()
    for name, value in seen.get(f"eq:result:{task.id}").items():
        first, _, items = name[1:].partition("+")
        for index in range(int(first), int(first) + int(items or _error_items(value))):
            assert index not in ended, f"item {index} of {task.id} ended twice"
            ended.add(index)
            assert world.outcomes.setdefault((task.id, index), (name, value)) == (name, value), "an outcome changed"
            if LOST in value:
                assert world.lost_alone[task.id, index] == 3, "convicted too early or too late"
            else:
                assert index not in task.poison
    return ended


def _error_items(extra: str) -> int:
    return extra.count('","')


def _check_ended(task: ExpectedTask, stored: dict[str, str], seen: Snapshot, outcomes: set[int]) -> None:
    state = State(stored["state"])
    completed, failed = int(stored["completed"]), int(stored["failed"])
    if "ended_by" in stored:
        assert completed + failed == task.items
        assert completed > 0
        assert len(outcomes) < task.items
    else:
        assert completed + failed == len(outcomes)
    if state in {State.COMPLETED, State.FAILED}:
        assert len(outcomes) == task.items or "ended_by" in stored
        assert (state is State.COMPLETED) == (completed > 0)
    assert not seen.get(f"eq:units:{task.id}")
    assert not seen.get(f"eq:back:{task.id}")
    assert not seen.get(f"eq:suspects:{task.id}")
    for kind in ("task", "result", "meta"):
        key = seen.keys.get(f"eq:{kind}:{task.id}")
        assert key is None or key.ttl_ms > 0, f"{kind} of an ended task lives for ever"


def _check_open(task: ExpectedTask, stored: dict[str, str], seen: Snapshot, outcomes: set[int]) -> dict[str, Record]:
    units = seen.get(f"eq:units:{task.id}")
    records = {name[1:]: Record.parse(text) for name, text in units.items() if name[0] == "u"}
    returned, suspects = (list(seen.get(f"eq:{kind}:{task.id}")) for kind in ("back", "suspects"))
    fresh = [str(number) for number in range(int(stored["next"]), int(stored["units"]))]
    leased = [name for name, record in records.items() if record.token != "-"]
    assert len(returned) == int(stored["back"])
    assert sorted(fresh + returned + suspects + leased) == sorted(records), "a unit is not in exactly one place"
    assert all(records[name].token == "-" for name in fresh + returned + suspects)
    assert all(records[name].attempts == 0 for name in fresh + returned)
    assert all(records[name].attempts > 0 and records[name].items == 1 for name in suspects)
    assert all(f"p{record.root}" in units for record in records.values()), "a unit without its texts"
    places = [i for record in records.values() for i in range(record.first, record.first + record.items)]
    assert sorted([*places, *outcomes]) == list(range(task.items)), "an item is lost or doubled"
    assert sum(record.cost for record in records.values()) == int(stored["cost"])
    assert int(stored["completed"]) + int(stored["failed"]) == len(outcomes)
    for kind in ("task", "units", "result", "meta"):
        key = seen.keys.get(f"eq:{kind}:{task.id}")
        assert key is None or key.ttl_ms == -1, f"{kind} of an open task may vanish"
    return records


def _check_claims(world: World, claims: dict[str, set[str]], leased: set[tuple[str, str]]) -> None:
    listed = {(token, ref) for token, refs in claims.items() for ref in refs}
    assert leased <= listed, "a leased unit is in no claim"
    for _, ref in listed - leased:  # allowed for units of tasks that were ended meanwhile
        task_id = ref.split(" ")[0]
        stored = world.seen.get(f"eq:task:{task_id}")
        assert not stored or State(stored["state"]).terminal, "a claim lists what it does not hold"


def _check_innocent(world: World) -> None:
    """What stood still beside a suspect that killed its worker comes back as it was."""
    for place, held in list(world.innocent.items()):
        record, other = _stored(world, held.unit), _stored(world, held.suspect)
        is_held = record.endswith(f" {held.token}")
        if is_held and other.endswith(f" {held.suspect_token}"):
            continue
        del world.innocent[place]
        if is_held or not _is_open(world, held.suspect.task_id):  # the suspect ended in another way
            continue
        if _is_open(world, held.unit.task_id) and (held.unit.task_id, held.unit.first) not in world.outcomes:
            assert record, "it was split, as if it had killed its worker"
            assert Record.parse(record).attempts <= 1
            world.stats["innocent"] += 1


def _stored(world: World, unit: ClaimedUnit) -> str:
    record: str = world.seen.get(f"eq:units:{unit.task_id}").get(f"u{unit.unit_id}", "")
    return record


def _is_open(world: World, task_id: str) -> bool:
    stored = world.seen.get(f"eq:task:{task_id}")
    return bool(stored) and not State(stored["state"]).terminal


def _check_lanes(seen: Snapshot, ready: Ready) -> None:
    for lane, owners in ready.items():
        assert set(seen.get(f"eq:q:m:{lane}")) == set(owners), f"owners in {lane}"
        stored = {name: set(tasks) for name, tasks in seen.named(f"eq:q:m:{lane}:").items()}
        assert stored == dict(owners), f"tasks in {lane}"


def _check_turns(world: World, ready: Ready) -> None:
    for lane, owners in ready.items():
        turns = world.owner_turns[lane]
        turns.waiting(owners)
        # Who comes beside a claim of large units gets as much, though it was taken before.
        most = (4 if lane == Lane.ONLINE else 2) * MAX_UNIT_COST
        assert turns.largest_lead() <= most, "an owner got ahead of another"
        for owner in {task.owner for task in world.tasks.values()}:
            turns = world.task_turns[lane, owner]
            turns.waiting(owners.get(owner, ()))
            assert turns.largest_lead() <= 4 * MAX_UNIT_COST, "a task got ahead of another"


def _check_wakeup(world: World, state: dict[str, Any], work_is_ready: bool) -> None:
    bell = "bell" in state
    if work_is_ready:
        coming = any(worker.notified and worker.state == "lingering" for worker in world.workers)
        assert bell or coming or world.lost_wake, "ready work, and nobody comes"
    if bell:
        heard = any(worker.state == "started" for worker in world.workers)
        assert world.messages or heard or world.lost_bell, (
            "the ledger believes in a message that nobody was told to send"
        )


def _check_lists(world: World, seen: Snapshot) -> None:
    listed: dict[str, dict[str, str]] = defaultdict(dict)
    still_open: Counter[str] = Counter()
    for task in world.tasks.values():
        if task.listed:
            listed[task.owner][task.id] = "0"
            still_open[task.owner] += not State(seen.get(f"eq:task:{task.id}")["state"]).terminal
    assert seen.named("eq:tasks:") == listed, "a list lacks a task, or has one too many"
    assert seen.named("eq:open:") == {owner: str(n) for owner, n in still_open.items() if n}
    for owner in listed:
        lasts = seen.keys[f"eq:tasks:{owner}"].ttl_ms == -1
        assert lasts == bool(still_open[owner]), "a list does not live as long as its tasks"


def _check_names(world: World, seen: Snapshot) -> None:
    """No key beside those that the known tasks and claims have."""
    allowed = {STATE, LEASES, LINGER, DEADLINES, "eq:memory", "eq:reserved", "eq:held", "eq:held-until"}
    allowed |= {"eq:models", "eq:q:m:workers", "eq:q:m:rates"} | RECORD_KEYS
    for task in world.tasks.values():
        allowed |= {f"eq:{kind}:{task.id}" for kind in ("task", "units", "back", "suspects", "result", "meta")}
        if task.alias is not None:
            name = f"eq:alias:{task.owner}:{task.alias.name}"
            allowed.add(name)
            stored = seen.get(f"eq:task:{task.id}")
            has_caller = "deadline" in stored and "listed" not in stored
            goes = has_caller or State(stored["state"]).terminal
            assert (seen.keys[name].ttl_ms > 0) == goes, "an alias does not live as long as its task"
    known = ("eq:q:m:claim:", "eq:q:m:asks:", "eq:q:m:worker:", *LINES, "eq:tasks:", "eq:open:")
    strange = {name for name in seen.keys if name not in allowed and not name.startswith(known)}
    assert not strange
