"""Walks of one job through its stages. Each raises where something is not as it must be."""

import random

from tasks.records.jobs import JobStatus
from tests.simulation.advance.world import KINDS, NONE, TROUBLES, DrivenWorld, Trouble, to_the_end

STEPS, SHORT_WALKS = 300, 8


def _world(kind: str, seed: int, trouble: Trouble) -> DrivenWorld:
    rng = random.Random(f"{kind} {seed}")  # noqa: S311 - no secret
    return DrivenWorld(KINDS[kind](), rng, trouble, size=rng.choice([2, 30, 100]))


def walk_well(kind: str, seed: int) -> None:
    """All that is listed is done where nothing fails."""
    world = _world(kind, seed, NONE)
    to_the_end(world)
    nothing = kind == "sync" and not world.rules.listed
    assert world.record.status is (JobStatus.FAILED if nothing else JobStatus.COMPLETED)
    assert world.record.sums.documents == (5 if kind == "batch" else world.rules.listed)
    assert not world.record.sums.failed
    if "dry" in kind:
        assert not any(name.endswith(("embed", "load", "finish")) for name in world.ran)


def walk_with_faults(kind: str, seed: int) -> None:
    """A job comes to its end whatever its stages come to, and whatever clients and Redis do."""
    for part in range(SHORT_WALKS if kind == "batch" else 1):  # it has one page
        number = SHORT_WALKS * seed + part if kind == "batch" else seed
        _walk_with_faults(_world(kind, number, TROUBLES[number % len(TROUBLES)]))


def _walk_with_faults(world: DrivenWorld) -> None:
    rng, often = world.rng, 5 if world.record.is_batch else 1
    haste = rng.choice([0.15, 0.45, 0.8])  # of the driver: how much comes to it at once
    clients, redis, strikes = rng.choice([0, 0.01, 0.04]) * often, rng.choice([0, 0.05, 0.2]), rng.choice([0, 0.03])
    deeds = {
        world.drive: haste,
        world.work: 1 - haste,
        world.cancel: clients,
        world.delete: clients / 4,
        world.fill: clients / 4,
    }
    deeds |= {world.retry: 0.04, world.lose: redis, world.strike: strikes, world.settle: 0.1, world.wait_a_while: 0.08}
    for deed in rng.choices([*deeds], [*deeds.values()], k=STEPS):
        deed()
        if world.record.status.terminal and (world.record.is_batch or world.record.status is JobStatus.DELETED):
            break
    to_the_end(world)


def walk_again(kind: str, seed: int) -> None:
    """A retry does what has failed, and nothing else."""
    world = _world(kind, seed, TROUBLES[seed % len(TROUBLES)])
    for _ in range(STEPS):
        world.settle()
        if world.record.status.terminal:
            break
        if not world.work():
            world.wait()
    to_the_end(world)
    for _ in range(3):
        if not world.retry():
            break
        again, world.ran, all_listed = world.rules.again | set(world.job.pages), [], world.record.listed
        to_the_end(world)
        opened = {int(name.split()[0]) for name in world.ran} - {0}
        assert again <= opened
        assert not all_listed or all(number in again or number > max(again) for number in opened)
        assert not world.record.sums.failed
    assert kind == "batch" or world.record.sums.documents == world.rules.listed or world.record.errors
