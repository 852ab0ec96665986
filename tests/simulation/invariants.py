"""What is true after each step, whatever has happened: all that Redis holds agrees with itself and with the model."""

import re
from collections import Counter

from tasks.ledger.packed import numbers
from tests.simulation.thin_client import LANES, ROOT, Ledger, Task, task_of
from tests.simulation.world import LOSSES, QUEUE_KEY, TASK_BYTES, Known, World

_NAMES = re.compile(
    rf"^{ROOT}:(task:.*|q:m:(state|counts|claims|leases|lingering|online|bulk|workers|entries|loading)|owner:.*|alias:.*"
    r"|due|memory|models|index:task:.*)$"
)
_OF_QUEUE = ("bytes", "reserved", *(f"{what}_{lane}" for what in ("cost", "open", "owners") for lane in LANES))


def check_agreement(ledger: Ledger) -> dict[str, Task]:
    """All tasks by id. Raises where sums, lines and due times do not agree with them."""
    ids = [key.decode().removeprefix(f"{ROOT}:task:") for key in ledger.redis.keys(f"{ROOT}:task:*")]
    pipe = ledger.redis.pipeline(transaction=False)  # there may be thousands
    for task_id in ids:
        pipe.hgetall(f"{ROOT}:task:{task_id}")
    tasks = {task_id: task for task_id, fields in zip(ids, pipe.execute(), strict=True) if (task := task_of(fields))}
    for task_id, task in tasks.items():
        pipe.zscore(f"{ROOT}:q:{task['in_queue']}:{task['lane']}", task_id)
        pipe.zscore(f"{ROOT}:index:task:{task['owner']}", task_id)
    owners = {task["owner"] for task in tasks.values()}
    pipe.zrange(f"{ROOT}:due", 0, -1, withscores=True)
    for key in (f"q:{ledger.queue}:state", *(f"owner:{owner}" for owner in owners)):
        pipe.get(f"{ROOT}:{key}")
    *told, entries, state = (found := pipe.execute())[: 2 * len(tasks) + 2]
    sums, accounts = numbers(state), map(numbers, found[2 * len(tasks) + 2 :])
    places = iter(told)
    expected, due = Counter[str](), dict[str, int]()
    for task_id, task in tasks.items():
        expected[f"{task['owner']} bytes"] += TASK_BYTES + task["kept"]
        if task.is_open:
            _add_open(expected, task)
            due |= {f"task:{task_id}": task["deadline"]} if task["deadline"] else {}
        else:
            assert (task.pieces, task.payloads) == ({}, {}), task_id
            due[f"task:{task_id}"] = task["finished"] + task["ttl"]
        ready = task.is_open and (task["next"] < task["pieces"] or bool(task["back"]))
        assert (next(places) is not None) == ready, (task_id, "in line?")
        assert (next(places) is not None) == bool(task["listed"])
    assert {entry.decode(): at for entry, at in entries if entry.startswith(b"task:")} == due
    for lane in LANES:
        here = f"open:{ledger.queue}:{lane}"
        expected[f"{ledger.queue} owners_{lane}"] = sum(expected[f"{owner} {here}"] > 0 for owner in owners)
    for name in _OF_QUEUE:
        assert sums.get(name, 0) == expected[f"{ledger.queue} {name}"], (name, sums, expected)
    of_owner = ("bytes", "jobs", *(f"{what}:{ledger.queue}:{lane}" for what in ("open", "cost") for lane in LANES))
    for owner, account in zip(owners, accounts, strict=True):
        for name in of_owner:
            assert account.get(name, 0) == expected[f"{owner} {name}"], (owner, name, account)
    return tasks


def _numbers(text: bytes) -> list[int]:
    return [int(number) for number in text.split()[:6]]


def _add_open(expected: Counter[str], task: Task) -> None:
    numbers = [_numbers(text) for text in task.pieces.values()]
    cost, payload = sum(piece[2] for piece in numbers), sum(piece[5] for piece in numbers)
    assert (task["cost"], task["bytes"]) == (cost, payload)
    queue, lane, owner = task["in_queue"], task["lane"], task["owner"]
    room = task["vector"] * (task["total"] - task["completed"] - task["failed"])
    counted = 0 if task["unwanted"] else cost
    for name, number in (
        *((f"{queue} bytes", payload), (f"{queue} reserved", room)),
        *((f"{queue} cost_{lane}", counted), (f"{queue} open_{lane}", 1)),
        *((f"{owner} bytes", payload + room), (f"{owner} jobs", task["listed"])),
        *((f"{owner} cost:{queue}:{lane}", counted), (f"{owner} open:{queue}:{lane}", 1)),
    ):
        expected[name] += number


def check(world: World) -> None:
    """Raises at the first thing that is not as it must be."""
    tasks, claims = check_agreement(world.ledger), world.claims()
    assert set(claims) == {token.decode() for token in world.client.zrange(f"{QUEUE_KEY}leases", 0, -1)}
    unknown = [key for key in map(bytes.decode, world.client.keys("*")) if not _NAMES.match(key)]
    assert not unknown, unknown
    assert tasks.keys() <= world.tasks.keys()
    for task_id, known in list(world.tasks.items()):
        task = tasks.get(task_id)
        if task is None:
            assert known.ended, f"{task_id} is lost"
            del world.tasks[task_id]
            continue
        done = _check_outcomes(world, task_id, known, task)
        if task.is_open:
            _check_open(claims, task_id, known, task, done)
        else:
            known.ended = True
            if task.state in {"completed", "failed"}:
                assert sum(done.values()) == known.total
                assert (task.state == "completed") == (task["completed"] > 0)
    _check_wake_up(world)


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


def _check_open(
    claims: dict[str, list[tuple[str, str]]], task_id: str, known: Known, task: Task, done: dict[int, int]
) -> None:
    assert not known.ended, "an end was taken back"
    pieces = {name: _numbers(text) for name, text in task.pieces.items()}
    tokens = {name: text.decode().split()[6] for name, text in task.pieces.items()}
    fresh, back = {str(n) for n in range(task["next"], task["pieces"])}, task["back"].split()
    held = {name for name, token in tokens.items() if token != "-"}
    assert fresh | set(back) | held == set(pieces), (task_id, fresh, back, held, pieces)
    assert len(fresh) + len(back) + len(held) == len(pieces)
    assert all((task_id, name) in claims.get(tokens[name], []) for name in held), "held by no claim"
    assert all(name.rstrip("abcd") in task.payloads for name in pieces)
    assert not any(pieces[name][3] for name in fresh)
    at = 0
    for first, items in sorted([(p[0], p[1]) for p in pieces.values()] + list(done.items())):
        assert first == at, ("not in one place", task_id)
        at += items
    assert at == known.total == task["total"]
    assert task["deadline"] == known.deadline


def _check_wake_up(world: World) -> None:
    """Work is ready: a bell is out, or a stream is on its way, or a fault has happened since somebody looked."""
    coming = any(
        stream.notified or stream.state in {"started", "again", "paused"}
        for process in world.processes
        if process.alive
        for stream in process.streams
    )
    if not (coming or world.fault or world.ledger.state.get("bell", 0)):
        assert not any(world.client.exists(f"{QUEUE_KEY}{lane}") for lane in LANES), "work is ready and all sleep"
