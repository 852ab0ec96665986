"""A driver that chooses steps by weight, from a seed: it reaches idle and deep states that equal chances seldom do."""

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

import redis

from tasks.ledger import Lane
from tests.integration.ledger.scripts import SCRIPTS
from tests.integration.ledger.simulation import clients, fleet, steps
from tests.integration.ledger.simulation.ending import work_off
from tests.integration.ledger.simulation.fleet import Deed, Turn
from tests.integration.ledger.simulation.invariants import check
from tests.integration.ledger.simulation.world import World

RATES = (0.4, 20, 50.6, 130)
"""Tokens per second that workers report; a part of the slowest one is less than one unit."""
MODES = ("mixed", "idle", "lone", "flood", "chaos", "lists", "models")
_WEIGHTS = {
    "submit": 1.0,
    "trickle": 1.0,
    "cancel": 0.2,
    "forget": 0.3,
    "want": 0.3,
    "deliver": 4.0,
    "lose": 0.1,
    "double": 0.1,
    "work": 9.0,
    "crash": 0.2,
    "zombie_commit": 0.3,
    "zombie_release": 0.1,
    "step": 2.0,
    "repeat": 0.5,
    "advance": 1.2,
    "watch": 0.6,
    "beat": 0.6,
    "exchange": 0,
    "lone": 0,
    "list": 0,
    "together": 0,
}
_CHANGED: dict[str, dict[str, float]] = {
    "mixed": {},
    "models": {"exchange": 0.7, "submit": 3, "beat": 0.3},
    "idle": {"submit": 0.03, "trickle": 0.8, "work": 14, "advance": 0.6, "watch": 0.2, "deliver": 6, "crash": 0.1},
    "lone": {"lone": 1.5, "submit": 0.2, "trickle": 0.2},
    "lists": {"list": 3, "submit": 0.2, "trickle": 1, "crash": 0.1, "advance": 0.3},
    "flood": {"submit": 4, "trickle": 2, "together": 1, "work": 6, "advance": 0.2, "cancel": 0.1},
    "chaos": {"crash": 1.5, "lose": 0.8, "zombie_commit": 1, "zombie_release": 0.5, "advance": 2},
}
_DEED_WEIGHTS: dict[Deed, float] = {"commit": 12, "then": 4, "part": 2, "preempt": 8, "suspect": 8}
_SHOWN_STEPS = 12


def run(client: redis.Redis, seed: int, steps: int, mode: str, scripts: Path = SCRIPTS) -> World:
    """One run from an empty Redis to the end of all its tasks.

    Raises:
        AssertionError: an invariant does not hold; the last steps are in its notes.
    """
    chance = random.Random(seed)  # noqa: S311 - a simulation
    world = World(client, scripts)
    weights = _WEIGHTS | _CHANGED[mode]
    log: deque[str] = deque(maxlen=_SHOWN_STEPS)
    try:
        for _ in range(steps):
            name = chance.choices(list(weights), list(weights.values()))[0]
            states = [worker.state for worker in world.workers]
            log.append(f"{name}: workers {states}, {world.messages} messages")
            _STEPS[name](world, chance)
            check(world)
        work_off(world)
    except (AssertionError, redis.ResponseError) as error:
        error.add_note(f"seed {seed}, mode {mode}, last steps:\n" + "\n".join(log))
        raise
    finally:
        world.close()
    return world


def _submit(world: World, chance: random.Random) -> None:
    sizes = [(chance.randint(1, 9), chance.randint(1, 40)) for _ in range(chance.choice([1, 1, 1, 2, 4, 7]))]
    request = clients.Request(
        sizes=sizes,
        lane=chance.choice([Lane.ONLINE, Lane.ONLINE, Lane.BULK]),
        owner=chance.choice("aab"),
        deadline_in_ms=chance.choice([None, None, None, None, 300, 5000]),
        poison=chance.choice([None] * 6 + [0, 3]),
        alias=chance.choice([0, 0, 0, 1, 2]),
        join=chance.random() < 0.6,
        other_body=chance.random() < 0.15,
        sent=chance.random() > 0.1,
        by_reference=chance.random() < 0.25,
    )
    clients.submit(world, request)


def _list(world: World, chance: random.Random) -> None:
    sizes = [(9, chance.choice([10, 40]))] * chance.choice([2, 6])
    clients.submit(world, clients.Request(sizes=sizes, owner=chance.choice("ab")))


def _trickle(world: World, chance: random.Random) -> None:
    lane = chance.choice([Lane.ONLINE, Lane.ONLINE, Lane.BULK])
    clients.submit(world, clients.Request(lane=lane, owner=chance.choice("ab"), sent=chance.random() > 0.05))


def _together(world: World, chance: random.Random) -> None:
    requests = [
        clients.Request(lane=chance.choice([Lane.ONLINE, Lane.ONLINE, Lane.BULK]), owner=chance.choice("aab"))
        for _ in range(chance.randint(2, 5))
    ]
    clients.submit_together(world, requests)


def _lone(world: World, chance: random.Random) -> None:
    """Everything is cancelled, a worker waits, and a text comes."""
    for number, task_id in enumerate(sorted(world.tasks)):
        if not world.state(task_id).terminal:
            clients.cancel(world, number)
    check(world)
    number = chance.randrange(3)
    if world.workers[number].state == "idle":
        clients.double_message(world)
        fleet.deliver(world, number)
    if world.workers[number].state in {"started", "again"}:
        fleet.work(world, Turn(number))
        check(world)
    if world.workers[number].state == "lingering":
        clients.submit(world, clients.Request(owner=chance.choice("ab")))


def _work(world: World, chance: random.Random) -> None:
    turn = Turn(
        worker=chance.randrange(3),
        budget=chance.choice([5, 30, 100, 1000]),
        max_units=chance.choice([1, 3, 64]),
        linger_ms=chance.choice([0, 800, 800, 800, 800]),
        deed=chance.choices(fleet.DEEDS, [_DEED_WEIGHTS.get(deed, 1) for deed in fleet.DEEDS])[0],
        sent=chance.random() > 0.05,
        alone=chance.random() < 0.5,
        part=chance.choice([0, 0.3, 0.5, 1, 1]),
        suspect=chance.random() < 0.7,
        hears=chance.random() < 0.7,
        stops=chance.random() < 0.05,
        large=4,
    )
    fleet.work(world, turn)


def _want(world: World, chance: random.Random) -> None:
    if world.tasks:
        clients.want(world, chance.randrange(1000), chance.choice([1, 500, 5000]), shorten=chance.random() < 0.5)


def _of_task(step: Callable[[World, int], None]) -> Callable[[World, random.Random], None]:
    def chosen(world: World, chance: random.Random) -> None:
        if world.tasks:
            step(world, chance.randrange(1000))

    return chosen


def _of_zombie(step: Callable[[World, int], None]) -> Callable[[World, random.Random], None]:
    def chosen(world: World, chance: random.Random) -> None:
        if world.zombies:
            step(world, chance.randrange(1000))

    return chosen


def _step(world: World, chance: random.Random) -> None:
    if world.left:
        steps.take_in(world, chance.randrange(1000), sent=chance.random() > 0.05)


def _of_message(step: Callable[[World, random.Random], None]) -> Callable[[World, random.Random], None]:
    def chosen(world: World, chance: random.Random) -> None:
        if world.messages:
            step(world, chance)

    return chosen


_STEPS: dict[str, Callable[[World, random.Random], None]] = {
    "submit": _submit,
    "trickle": _trickle,
    "together": _together,
    "lone": _lone,
    "list": _list,
    "cancel": _of_task(clients.cancel),
    "forget": _of_task(clients.forget),
    "want": _want,
    "deliver": _of_message(lambda world, chance: fleet.deliver(world, chance.randrange(3))),
    "lose": _of_message(lambda world, _: clients.lose_message(world)),
    "double": lambda world, _: clients.double_message(world),
    "work": _work,
    "crash": lambda world, chance: fleet.crash(world, chance.randrange(3), comes_back=chance.random() < 0.5),
    "zombie_commit": _of_zombie(fleet.zombie_commit),
    "zombie_release": _of_zombie(fleet.zombie_release),
    "step": _step,
    "repeat": lambda world, _: clients.repeat_last(world),
    "advance": lambda world, chance: clients.advance(world, chance.choice([1, 50, 200, 900, 1100, 5000, 20_000])),
    "watch": lambda world, _: clients.watch(world),
    "exchange": lambda world, chance: fleet.exchange(world, chance.randrange(3), late=chance.random() < 0.7),
    "beat": lambda world, chance: fleet.beat(world, chance.randrange(3), chance.choice(RATES)),
}
