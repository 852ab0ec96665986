"""Clients of the simulation: they bring tasks, cancel them, and go before they are answered."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

from tests.simulation.repeats import repeat_submit
from tests.simulation.thin_client import LANES, NewTask
from tests.simulation.world import OWNERS, TTL_MS, VECTOR_BYTES, Known, World


def submit(world: World, draw: random.Random) -> None:
    """One call with some equal tasks but for their ids; what is let in must be worked off from here on."""
    sizes = [(draw.choice([1, 1, 2, 5, 9]), draw.randint(0, 40)) for _ in range(draw.choice([1, 1, 1, 2, 4, 7]))]
    deadline_ms, alias = draw.choice([0, 0, 0, 300, 5000, 12_000, 30_000]), draw.choice([0, 0, 0, 1, 2])
    name, lane = f"{alias:032d}" if alias else "", draw.choice(["online", *LANES])
    first, poison = world.number(), draw.choice([*[None] * 7, 0, 3])
    task = NewTask(
        "",
        owner=draw.choice(OWNERS),
        pieces=[(n, cost, b"p%d" % k * (k + 1)) for k, (n, cost) in enumerate(sizes)],
        lane=lane,
        deadline_in_ms=deadline_ms,
        ttl_ms=TTL_MS,
        alias=name,
        digest=name,
        joins=True,
        listed=not deadline_ms or lane == "bulk",
        answer_to=f"p{first % 2}" if deadline_ms else "",
        vector_bytes=VECTOR_BYTES,
        tokens_per_minute=10**7,
    )
    tasks = [replace(task, id=f"t{world.number():05d}") for _ in range(draw.choice([1, 1, 1, 2, 4]))]
    replies, bells = world.ledger.submit(*tasks)
    for task, reply in zip(tasks, replies, strict=True):
        _note(world, task, poison, reply)
    world.last = partial(repeat_submit, world, tasks, replies)
    world.rung(len(bells), sent=draw.random() > 0.1)


def _note(world: World, task: NewTask, poison: int | None, reply: list[Any]) -> None:
    barred = task.owner in world.purged or task.owner in world.revoked
    assert (reply[0] == b"revoked") == barred, reply
    if barred:
        return
    if reply[0] == b"joined":
        _prolong(world, reply[1].decode(), task)
        return
    assert reply[0] == b"ok", reply
    items = [items for items, *_ in task.pieces]
    world.tasks[task.id] = Known(
        owner=task.owner,
        lane=task.lane,
        total=sum(items),
        starts=[sum(items[:k]) for k in range(len(items))],
        poison=None if poison is None else poison % sum(items),
        deadline=world.ledger.now + task.deadline_in_ms if task.deadline_in_ms else 0,
        answer=task.answer_to,
    )


def _prolong(world: World, task_id: str, task: NewTask) -> None:
    """This task was joined by that one."""
    known = world.tasks[task_id]
    assert known.owner == task.owner
    if known.answer != task.answer_to and world.is_open(task_id):
        known.answer = ""
    if known.deadline and task.deadline_in_ms and world.is_open(task_id):
        known.deadline = max(known.deadline, world.ledger.now + task.deadline_in_ms)


def cancel(world: World, number: int, *, forget: bool = False) -> None:
    """Ends a task, and with `forget` every trace of it."""
    task_id = world.find(number)
    if task_id is None:
        return
    before = world.ledger.read(task_id)
    assert world.ledger.cancel(task_id, forget=forget) == [before.state if before else ""]
    if forget:
        world.tasks.pop(task_id)
        world.outcomes = {place: value for place, value in world.outcomes.items() if place[0] != task_id}


def want(world: World, number: int, ms: int, *, gone: bool) -> None:
    """Somebody waits for a task for so long, or has gone."""
    task_id = world.find(number)
    if task_id is None:
        return
    known = world.tasks[task_id]
    is_wanted = world.is_open(task_id) and bool(known.deadline)
    assert world.ledger.want(task_id, ms, gone=gone) == is_wanted
    if is_wanted and (known.answer or not gone):
        known.deadline = (min if gone else max)(known.deadline, world.ledger.now + ms)
