"""Clients of the simulation: they bring tasks, cancel them, and go before they are answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.simulation.repeats import repeat_submit
from tests.simulation.thin_client import NewTask
from tests.simulation.world import TTL_MS, VECTOR_BYTES, Known, World


@dataclass(frozen=True)
class Request:
    """One call. `sizes`: items and cost of each piece; `poison`: an item that kills workers; `alias`: 0: none.

    `sent`: the bell that is due reaches the broker. `together`: so many equal tasks but for their ids, in one call.
    """

    sizes: Sequence[tuple[int, int]] = ((1, 10),)
    lane: str = "online"
    owner: str = "o1"
    deadline_ms: int = 0
    poison: int | None = None
    alias: int = 0
    sent: bool = True
    together: int = 1


def submit(world: World, request: Request) -> None:
    """Brings its tasks; what is let in must be worked off from here on."""
    tasks = [_task(world, request) for _ in range(request.together)]
    replies, bells = world.ledger.submit(*tasks)
    for task, reply in zip(tasks, replies, strict=True):
        _note(world, task, request, reply)
    world.last = partial(repeat_submit, world, tasks, replies)
    world.rung(len(bells), sent=request.sent)


def _task(world: World, request: Request) -> NewTask:
    name = f"{request.alias:032d}" if request.alias else ""
    number = world.number()
    return NewTask(
        f"t{number:05d}",
        owner=request.owner,
        pieces=[(n, cost, b"p%d" % k * (k + 1)) for k, (n, cost) in enumerate(request.sizes)],
        lane=request.lane,
        deadline_in_ms=request.deadline_ms,
        ttl_ms=TTL_MS,
        alias=name,
        digest=name,
        joins=True,
        listed=not request.deadline_ms or request.lane == "bulk",
        answer_to=f"p{number % 2}" if request.deadline_ms else "",
        vector_bytes=VECTOR_BYTES,
        tokens_per_minute=10**7,
    )


def _note(world: World, task: NewTask, request: Request, reply: list[Any]) -> None:
    barred = task.owner in world.purged or task.owner in world.revoked
    assert (reply[0] == b"revoked") == barred, reply
    if barred:
        return
    total = sum(items for items, _ in request.sizes)
    if reply[0] == b"joined":
        prolong(world, reply[1].decode(), task)
        return
    assert reply[0] == b"ok", reply
    world.tasks[task.id] = Known(
        owner=task.owner,
        lane=task.lane,
        total=total,
        starts=[sum(n for n, _ in request.sizes[:k]) for k in range(len(request.sizes))],
        poison=None if request.poison is None else request.poison % total,
        deadline=world.ledger.now + task.deadline_in_ms if task.deadline_in_ms else 0,
        answer=task.answer_to,
    )


def prolong(world: World, task_id: str, task: NewTask) -> None:
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
