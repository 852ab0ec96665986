"""Whether sums, lines and due times agree with the tasks that are there: looked at behind each directed test."""

from collections import Counter

from tests.simulation.thin_client import ROOT, Ledger, Task
from tests.simulation.world import LANES, TASK_BYTES

_OF_QUEUE = ("bytes", "reserved", *(f"{what}_{lane}" for what in ("cost", "open") for lane in LANES))


def check_agreement(ledger: Ledger) -> None:
    """Raises where they do not."""
    ids = [key.decode().removeprefix(f"{ROOT}:task:") for key in ledger.redis.keys(f"{ROOT}:task:*")]
    pipe = ledger.redis.pipeline(transaction=False)  # there may be thousands
    for task_id in ids:
        pipe.hgetall(f"{ROOT}:task:{task_id}")
    tasks = {
        task_id: task for task_id, fields in zip(ids, pipe.execute(), strict=True) if (task := ledger.task_of(fields))
    }
    for task_id, task in tasks.items():
        pipe.zscore(f"{ROOT}:q:{task['in_queue']}:{task['lane']}", task_id)
        pipe.zscore(f"{ROOT}:index:task:{task['owner']}", task_id)
    places = iter(pipe.execute())
    expected, due, owners = Counter[str](), dict[str, int](), set[str]()
    for task_id, task in tasks.items():
        owners.add(task["owner"])
        expected[f"{task['owner']} bytes"] += TASK_BYTES + task["kept"]
        if task.is_open:
            _add_open(expected, task)
            due |= {f"task:{task_id}": task["deadline"]} if task["deadline"] else {}
        else:
            assert (task.pieces, task.payloads) == ({}, {}), task_id
            due[f"task:{task_id}"] = task["finished"] + task["ttl"]
        ready = task.is_open and (task["next"] < task["pieces"] or bool(task["back"]))
        assert (next(places) is not None) == ready, task_id
        assert (next(places) is not None) == bool(task["listed"])
    entries = dict(ledger.redis.zrange(f"{ROOT}:due", 0, -1, withscores=True))
    assert {entry.decode(): at for entry, at in entries.items() if entry.startswith(b"task:")} == due
    for name in _OF_QUEUE:
        assert ledger.state.get(name, 0) == expected[f"{ledger.queue} {name}"], (name, ledger.state, expected)
    for owner in owners:
        account = ledger.account(owner)
        for name in (
            "bytes",
            "jobs",
            *(f"{what}:{ledger.queue}:{lane}" for what in ("open", "cost") for lane in LANES),
        ):
            assert account.get(name, 0) == expected[f"{owner} {name}"], (owner, name, account)


def _add_open(expected: Counter[str], task: Task) -> None:
    numbers = [[int(number) for number in text.split()[:6]] for text in task.pieces.values()]
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
