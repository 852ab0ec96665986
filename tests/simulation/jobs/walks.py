"""Random walks through a world of jobs, and how each of them ends."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.jobs.settle import settle
from tests.simulation.jobs.world import FILES, QUEUES, WORKERS, JobWorld, jobs_world

CONTENTS = (
    b"alpha one",
    b"beta two",
    b"gamma three",
    b"delta " * 40,
    b"epsilon " * 25,
    b"zeta six",
    b"eta " * 60,
    b"theta eight",
    b"",
    b"  \n",
    b"\x00\x01\xff\xfe\x00\x80",
    b"sick text",
)
WEIGHTS: Mapping[str, float] = {
    "begin": 3, "batch": 0.8, "change": 4, "cancel": 0.6, "retry": 2, "delete": 0.6, "work": 60, "step": 25,
    "die": 1, "die_in": 2, "driver_dies": 1, "hang": 1, "zombie": 1.2, "sink": 0.4, "lose_answer": 0.5,
    "storage": 0.4, "root": 0.4, "sick": 0.4, "serve": 0.2, "heal": 3, "tick": 4, "clock": 0.4, "lose": 0.4,
    "save": 0.6, "back": 0.25, "sweep": 0.8, "rest": 0.6,
}  # fmt: skip
MODES: tuple[Mapping[str, float], ...] = (
    {},
    {"sink": 2, "lose_answer": 2, "storage": 2, "die": 2, "die_in": 5, "driver_dies": 3, "hang": 2, "heal": 6},
    {"save": 3, "back": 2, "lose": 1.5, "delete": 2, "retry": 3, "sweep": 4},
    {"begin": 5, "batch": 3, "cancel": 2, "retry": 3, "delete": 1, "change": 6},
    {"begin": 6, "change": 8, "hang": 2, "zombie": 2},
)
"""What a walk has more of than others."""


def _begin(world: JobWorld, g: random.Random) -> None:
    if len(world.open_jobs()) < 4 and not world.faults.storage_away:
        mode = g.choice(["skip_unchanged", "skip_unchanged", "upsert", "sync"])
        world.ingest(mode, dry=g.random() < 0.12, roots=g.choice(["ab", "ab", "a", "b", ""]))


def _batch(world: JobWorld, g: random.Random) -> None:
    if len(world.open_jobs()) < 4 and not world.faults.storage_away:
        world.batch(g.choice([5_000, 60_000, 10**8, 10**8]))


def _change(world: JobWorld, g: random.Random) -> None:
    content = b"kill text" if g.random() < 0.05 else g.choice(CONTENTS)
    world.change(*g.choice(FILES), None if g.random() < 0.25 else content)


def _client(what: str) -> Callable[[JobWorld, random.Random], None]:
    def do(world: JobWorld, g: random.Random) -> None:
        jobs = world.open_jobs()
        if what != "cancel":
            jobs = [job for job in world.jobs if job not in jobs]
        if jobs:
            world.client(what, g.choice(jobs[-4:]))

    return do


def _work(world: JobWorld, g: random.Random) -> None:
    worker = g.choice(WORKERS)
    for _ in range(g.choice([1, 2, 3, 3, 6])):
        world.work(worker, g.choice(QUEUES))


def _heal(world: JobWorld, _: random.Random) -> None:
    world.faults.sink_away = world.faults.storage_away = False
    world.serve(on=True)
    world.mend_roots()


def _clock(world: JobWorld, g: random.Random) -> None:
    world.tick(g.choice([-3000, -200, 1500, 3000]))


def _turned(name: str) -> Callable[[JobWorld, random.Random], None]:
    def do(world: JobWorld, _: random.Random) -> None:
        setattr(world.faults, name, not getattr(world.faults, name))

    return do


def _sick(world: JobWorld, _: random.Random) -> None:
    world.sick = not world.sick


DEEDS: Mapping[str, Callable[[JobWorld, random.Random], object]] = {
    "begin": _begin,
    "batch": _batch,
    "change": _change,
    **{what: _client(what) for what in ("cancel", "retry", "delete")},
    "work": _work,
    "step": lambda world, _: world.step(),
    "die": lambda world, g: world.die(g.choice(WORKERS)),
    "die_in": lambda world, g: world.work(g.choice(WORKERS), g.choice(QUEUES), g.randrange(25)),
    "driver_dies": lambda world, g: world.step(g.randrange(12)),
    "hang": lambda world, g: world.hang(g.choice(WORKERS)),
    "zombie": lambda world, _: world.zombie(),
    "sink": _turned("sink_away"),
    "lose_answer": _turned("sink_loses"),
    "storage": _turned("storage_away"),
    "root": lambda world, g: world.break_root(g.choice("ab")),
    "sick": _sick,
    "serve": lambda world, _: world.serve(on=not world.served),
    "heal": _heal,
    "tick": lambda world, g: world.tick(g.choice([1, 50, 500, 1000, 2000, 4000, 16_000, 61_000])),
    "clock": _clock,
    "lose": lambda world, _: world.lose(),
    "save": lambda world, _: world.save(),
    "back": lambda world, _: world.go_back(),
    "sweep": lambda world, _: world.sweep(),
    "rest": lambda world, _: world.rest(),
}


def walk(client: Any, seed: int, steps: int) -> Counter[str]:
    """One walk; what happened in it, and how often. Raises AssertionError where something is not as it must be."""
    g = random.Random(seed)  # noqa: S311 - repeatable
    weights, happened = {**WEIGHTS, **MODES[seed % len(MODES)]}, Counter[str]()
    with jobs_world(g, client) as world:
        deeds = g.choices(list(weights), list(weights.values()), k=steps)
        try:
            for _ in range(g.randrange(3, 8)):
                world.change(*g.choice(FILES), g.choice(CONTENTS))
            for deed in deeds:
                happened[deed] += 1
                DEEDS[deed](world, g)
                world.check()
            settle(world)
        except BaseException as error:
            error.add_note(f"seed {seed}, deeds {' '.join(deeds[: happened.total()][-15:])}")
            raise
    return happened + Counter(world.witness.verdicts)
