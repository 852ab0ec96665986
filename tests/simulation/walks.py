"""Weighted random walks through the world: they reach deep and idle states that equal chances seldom reach.

At the end of a walk one healthy process finishes everything, and then nothing is left.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.ledger.scripts import SCRIPTS
from tests.simulation import clients, fleet
from tests.simulation.invariants import check
from tests.simulation.repeats import repeat
from tests.simulation.thin_client import MODEL, ROOT
from tests.simulation.world import OWNERS, PROCESSES, QUEUE_KEY, TTL_MS, World

WEIGHTS = {
    "submit": 2,
    "cancel": 0.3,
    "want": 0.3,
    "deliver": 4,
    "lose": 0.1,
    "double": 0.1,
    "work": 10,
    "crash": 0.2,
    "stop": 0.1,
    "beat": 0.4,
    "zombie": 0.3,
    "repeat": 1.2,
    "advance": 1.2,
    "watch": 0.6,
    "mark": 0.03,
}
MODES: tuple[dict[str, float], ...] = (
    {},
    {"submit": 0.8, "work": 12, "advance": 0.8, "watch": 0.2, "deliver": 6},
    {"submit": 6, "work": 6, "advance": 0.2, "cancel": 0.1},
    {"crash": 1.5, "stop": 0.4, "zombie": 1, "advance": 2},
)
"""Mixed, idle, flooded, chaotic: a walk takes that of its seed."""
_MOST_ROUNDS = 4000
_ASLEEP_ROUNDS = 200
_MOST_LIFE_S = 60
"""Of an account in which only a debt and buckets that are not full are left, and of an alias."""
_STAYS = {
    *(f"{QUEUE_KEY}{name}" for name in ("state", "counts", "workers", "entries", "lingering")),
    *(f"{ROOT}:{name}" for name in ("memory", "models")),
}


def walk(client: Any, seed: int, steps: int, scripts: Path = SCRIPTS) -> Counter[str]:
    """One world to its end; what happened in it, and how often. Raises at the first violation."""
    world, draw = World(client, scripts), random.Random(seed)  # noqa: S311 - a walk is repeated by its seed
    weights, happened = WEIGHTS | MODES[seed % len(MODES)], Counter[str]()
    try:
        for n in range(PROCESSES):
            fleet.start(world, n)
        for deed in draw.choices(list(weights), list(weights.values()), k=steps):
            happened[deed] += 1
            _DEEDS[deed](world, draw)
            check(world)
        settle(world)
    finally:
        world.close()
    return happened


def _turn(draw: random.Random) -> fleet.Turn:
    return fleet.Turn(
        stream=draw.randint(0, 5),
        budget=draw.choice([5, 30, 100, 1000]),
        most=draw.choice([1, 3, 64]),
        linger_ms=draw.choice([0, 800, 800, 800, 800]),
        deed=draw.choice(fleet.DEEDS),
        sent=draw.random() > 0.05,
        passes=draw.choice([""] * 6 + [*OWNERS]),
    )


_DEEDS: dict[str, Callable[[World, random.Random], None]] = {
    "submit": clients.submit,
    "cancel": lambda world, draw: clients.cancel(world, draw.randint(0, 999), forget=draw.random() < 0.3),
    "want": lambda world, draw: clients.want(
        world, draw.randint(0, 999), draw.choice([10, 10_000, 20_000]), gone=draw.random() < 0.5
    ),
    "deliver": lambda world, draw: fleet.deliver(world, draw.randint(0, 2)),
    "lose": lambda world, _: world.lose_message(),
    "double": lambda world, _: world.rung(1),
    "work": lambda world, draw: fleet.work(world, _turn(draw)),
    "crash": lambda world, draw: fleet.crash(world, draw.randint(0, 2)),
    "stop": lambda world, draw: fleet.stop(world, draw.randint(0, 2)),
    "beat": lambda world, draw: fleet.beat(world, draw.randint(0, 2)),
    "zombie": lambda world, draw: fleet.zombie_commit(world, draw.randint(0, 99)),
    "repeat": lambda world, _: repeat(world),
    "advance": lambda world, draw: world.ledger.advance(draw.choice([1, 50, 200, 900, 1100, 4000, 7000, -600])),
    "watch": lambda world, _: world.watch(),
    "mark": lambda world, draw: world.mark(draw.choice(OWNERS), draw.choice(["revoked", "revoked", "purged"])),
}


# ---- the end


def settle(world: World) -> None:
    """All die; what is left is worked off, forgotten in its time, and leaves no trace."""
    for n, process in enumerate(world.processes):
        if process.alive:
            fleet.crash(world, n)
    fleet.start(world, 0)
    _work_off(world)
    check(world)
    _forget(world)


def _work_off(world: World) -> None:
    idle = 0
    for rounds in itertools.count():
        assert rounds < _MOST_ROUNDS, "no end"
        if not any(world.is_open(task_id) for task_id in world.tasks):
            return
        world.watch()
        _round(world)
        asleep = all(stream.state in {"idle", "lingering"} for stream in world.processes[0].streams)
        idle = idle + 1 if asleep else 0
        assert idle < _ASLEEP_ROUNDS, "asleep"
        world.ledger.advance(1000 if asleep else 60)
        if rounds % 5 == 0:
            check(world)


def _round(world: World) -> None:
    process = world.processes[0]
    for i, stream in enumerate(process.streams):
        if not process.alive:
            fleet.start(world, 0)
            return
        if stream.state == "idle" and world.broker:
            fleet.deliver(world, 0)
        turn = fleet.Turn(i, budget=60, most=8, linger_ms=500)
        if stream.state in {"busy", "hung"}:
            stream.state = "busy"
            fleet.go_on(world, stream, turn)
        elif stream.state != "idle":
            fleet.ask(world, stream, turn)


def _forget(world: World) -> None:
    world.ledger.advance(TTL_MS + 1)
    for _ in range(60):
        world.watch()
        world.ledger.advance(500)
    check(world)
    assert not world.tasks, "not forgotten"
    for owner in OWNERS:
        left = {name for name, n in world.ledger.account(owner).items() if n} - {f"debt:{MODEL}", "tokens", "requests"}
        assert left == {name for name in ("revoked", "purged") if owner in getattr(world, name)}, owner
    marked = {f"{ROOT}:owner:{owner}" for owner in world.revoked | world.purged}
    keys = {key.decode() for key in world.client.keys("*") if world.client.ttl(key) == -1}
    assert keys <= _STAYS | marked, keys - _STAYS - marked
    assert all(world.client.ttl(key) <= _MOST_LIFE_S for key in world.client.keys("*"))
