"""What is true after each step, whatever has happened: everything that Redis holds is compared with the model."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgpack

from tests.simulation.thin_client import ROOT, Task
from tests.simulation.world import LANES, LOSSES, OWNERS, QUEUE_KEY, TASK_BYTES, Known, World, pairs

_NAMES = re.compile(
    rf"^{ROOT}:(task:.*|q:m:(state|counts|claims|leases|lingering|online|bulk|workers|entries|loading)|owner:.*|alias:.*"
    r"|due|memory|models|index:task:.*)$"
)


@dataclass
class Seen:
    """All that Redis holds at one moment, and the sums that should be there."""

    keys: set[str]
    state: dict[str, Any]
    lines: dict[str, set[str]]
    leases: set[str]
    claims: dict[str, list[tuple[str, str]]]
    due: dict[str, int]
    accounts: dict[str, dict[str, Any]]
    listed: dict[str, set[str]]
    tasks: dict[str, Task | None]
    expected: Counter[str] = field(default_factory=Counter)

    @classmethod
    def take(cls, world: World) -> "Seen":
        """In one pipeline."""
        pipe = world.client.pipeline(transaction=False)
        pipe.keys("*")
        pipe.get(f"{QUEUE_KEY}state")
        for name in (*LANES, "leases"):
            pipe.zrange(f"{QUEUE_KEY}{name}", 0, -1)
        pipe.hgetall(f"{QUEUE_KEY}claims")
        pipe.zrange(f"{ROOT}:due", 0, -1, withscores=True)
        for owner in OWNERS:
            pipe.get(f"{ROOT}:owner:{owner}")
            pipe.zrange(f"{ROOT}:index:task:{owner}", 0, -1)
        for task_id in world.tasks:
            pipe.hgetall(f"{ROOT}:task:{task_id}")
        keys, state, online, bulk, leases, claims, due, *rest = pipe.execute()
        of_owners, hashes = rest[: 2 * len(OWNERS)], rest[2 * len(OWNERS) :]
        return cls(
            keys={key.decode() for key in keys},
            state=_unpacked(state),
            lines={"online": _texts(online), "bulk": _texts(bulk)},
            leases=_texts(leases),
            claims={token.decode(): pairs(refs) for token, refs in claims.items()},
            due={entry.decode(): int(at) for entry, at in due},
            accounts=dict(zip(OWNERS, map(_unpacked, of_owners[::2]), strict=True)),
            listed=dict(zip(OWNERS, map(_texts, of_owners[1::2]), strict=True)),
            tasks=dict(zip(world.tasks, map(world.ledger.task_of, hashes), strict=True)),
        )


def _texts(values: list[bytes]) -> set[str]:
    return {value.decode() for value in values}


def _unpacked(text: bytes | None) -> dict[str, Any]:
    return msgpack.unpackb(text) if text else {}


def check(world: World) -> None:
    """Raises at the first thing that is not as it must be."""
    world.stats["steps"] += 1
    seen = Seen.take(world)
    assert set(seen.claims) == seen.leases, "claims without leases"
    unknown = {key for key in seen.keys if not _NAMES.match(key)}
    assert not unknown, unknown
    assert {key.rpartition(":")[2] for key in seen.keys if key.startswith(f"{ROOT}:task:")} <= set(world.tasks)
    listed: dict[str, set[str]] = {owner: set() for owner in OWNERS}
    for task_id, task in seen.tasks.items():
        known = world.tasks[task_id]
        if task is None:
            assert known.ended, f"{task_id} is lost"
            del world.tasks[task_id]
            continue
        done = _check_outcomes(world, task_id, known, task)
        if task["listed"]:
            listed[known.owner].add(task_id)
        seen.expected[f"{known.owner} bytes"] += TASK_BYTES + task["kept"]
        if task.is_open:
            _check_open(seen, task_id, known, task, done)
        else:
            _check_ended(seen, task_id, known, task, done)
    assert not seen.due, ("due for nothing", seen.due)
    assert seen.listed == listed
    _check_sums(world, seen)
    _check_wake_up(world, seen)


def _check_outcomes(world: World, task_id: str, known: Known, task: Task) -> dict[int, int]:
    """The number of items by first item, of what is done."""
    done: dict[int, int] = {}
    for first, (items, value) in task.outcomes.items():
        assert value.count(b";") == items, value
        assert value.startswith(f"{task_id}:{first}:".encode())
        done[first] = items
        for item in range(first, first + items):
            assert world.outcomes.setdefault((task_id, item), value) == value, "done twice"
            assert known.poison != item
    for item in task.errors:
        done[item] = 1
        assert world.outcomes.setdefault((task_id, item), b"lost") == b"lost"
        assert world.hits[task_id, item] > LOSSES, ("an innocent was convicted", task_id, item)
    for _, item in (place for place in world.outcomes if place[0] == task_id):
        assert any(first <= item < first + items for first, items in done.items()), "an outcome has gone"
    assert task["completed"] + task["failed"] == sum(done.values())
    assert task["failed"] == len(task.errors)
    assert task["kept"] == sum(len(value) for _, value in task.outcomes.values())
    return done


def _check_open(seen: Seen, task_id: str, known: Known, task: Task, done: dict[int, int]) -> None:
    assert not known.ended, "an end was taken back"
    pieces = {name: _numbers(text) for name, text in task.pieces.items()}
    tokens = {name: text.decode().split()[6] for name, text in task.pieces.items()}
    fresh, back = {str(n) for n in range(task["next"], task["pieces"])}, task["back"].split()
    held = {name for name, token in tokens.items() if token != "-"}
    assert fresh | set(back) | held == set(pieces), (task_id, fresh, back, held, pieces)
    assert len(fresh) + len(back) + len(held) == len(pieces)
    assert all((task_id, name) in seen.claims.get(tokens[name], []) for name in held), "held by no claim"
    assert all(name.rstrip("abcd") in task.payloads for name in pieces)
    assert not any(pieces[name][3] for name in fresh)
    at = 0
    for first, items in sorted([(p[0], p[1]) for p in pieces.values()] + list(done.items())):
        assert first == at, ("not in one place", task_id)
        at += items
    assert at == known.total == task["total"]
    cost, payload = sum(p[2] for p in pieces.values()), sum(p[5] for p in pieces.values())
    assert (task["cost"], task["bytes"]) == (cost, payload), (task_id, cost, payload)
    assert (task_id in seen.lines[known.lane]) == bool(fresh or back), (task_id, "in line?", fresh, back)
    assert task["deadline"] == known.deadline == seen.due.pop(f"task:{task_id}", 0)
    room = task["vector"] * (task["total"] - sum(done.values()))
    counted = 0 if task["unwanted"] else cost
    owner, lane = known.owner, known.lane
    for name, number in (
        *((f"cost_{lane}", counted), ("bytes", payload), ("reserved", room), (f"open_{lane}", 1)),
        *((f"{owner} open:m:{lane}", 1), (f"{owner} cost:m:{lane}", counted)),
        *((f"{owner} jobs", task["listed"]), (f"{owner} bytes", payload + room)),
    ):
        seen.expected[name] += number


def _numbers(text: bytes) -> list[int]:
    return [int(number) for number in text.split()[:6]]


def _check_ended(seen: Seen, task_id: str, known: Known, task: Task, done: dict[int, int]) -> None:
    known.ended = True
    assert task_id not in seen.lines["online"] | seen.lines["bulk"]
    assert not task.pieces
    assert not task.payloads, (task_id, task)
    assert seen.due.pop(f"task:{task_id}") == task["finished"] + task["ttl"]
    if task.state in {"completed", "failed"}:
        assert sum(done.values()) == known.total
        assert (task.state == "completed") == (task["completed"] > 0)


def _check_sums(world: World, seen: Seen) -> None:
    for owner, account in seen.accounts.items():
        names = ["bytes", "jobs", *(f"{what}:m:{lane}" for what in ("open", "cost") for lane in LANES)]
        for name in names:
            assert account.get(name, 0) == seen.expected[f"{owner} {name}"], (owner, name, account)
        assert bool(account.get("purged")) == (owner in world.purged)
    for name in ("bytes", "reserved", *(f"{what}_{lane}" for what in ("cost", "open") for lane in LANES)):
        assert seen.state.get(name, 0) == seen.expected[name], (name, seen.state)
    for lane in LANES:
        owners = sum(seen.expected[f"{owner} open:m:{lane}"] > 0 for owner in OWNERS)
        assert seen.state.get(f"owners_{lane}", 0) == owners


def _check_wake_up(world: World, seen: Seen) -> None:
    """Work is ready: a bell is out, or a stream is on its way, or a fault has happened since somebody looked."""
    if not (seen.lines["online"] or seen.lines["bulk"]):
        return
    coming = any(
        stream.notified or stream.state in {"started", "again", "paused"}
        for process in world.processes
        if process.alive
        for stream in process.streams
    )
    assert seen.state.get("bell", 0) or coming or world.fault, "work is ready and everybody sleeps"
