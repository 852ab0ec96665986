"""The end of a world: one healthy process finishes everything, and then nothing is left."""

import itertools

from tests.simulation.fleet import Turn, ask, crash, deliver, go_on, start
from tests.simulation.invariants import check
from tests.simulation.thin_client import MODEL, ROOT
from tests.simulation.world import OWNERS, QUEUE_KEY, TTL_MS, World

_MOST_ROUNDS = 4000
_ASLEEP_ROUNDS = 200
_MOST_LIFE_S = 60
"""Of an account in which only a debt and buckets that are not full are left, and of an alias."""
_STAYS = {
    *(f"{QUEUE_KEY}{name}" for name in ("state", "counts", "workers", "entries", "lingering")),
    *(f"{ROOT}:{name}" for name in ("memory", "models")),
}


def settle(world: World) -> None:
    """All die; what is left is worked off, forgotten in its time, and leaves no trace."""
    for n, process in enumerate(world.processes):
        if process.alive:
            crash(world, n)
    start(world, 0)
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
            start(world, 0)
            return
        if stream.state == "idle" and world.broker:
            deliver(world, 0)
        turn = Turn(i, budget=60, most=8, linger_ms=500)
        if stream.state in {"busy", "hung"}:
            stream.state = "busy"
            go_on(world, stream, turn)
        elif stream.state != "idle":
            ask(world, stream, turn)


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
