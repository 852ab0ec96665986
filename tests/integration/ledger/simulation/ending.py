"""The end of a run: every worker dies, a healthy one and the watchdog finish, and every item has ended once."""

from tasks.ledger import State
from tests.integration.ledger.simulation.clients import advance, watch
from tests.integration.ledger.simulation.fleet import BEAT_MS, Turn, claim, commit, crash, work
from tests.integration.ledger.simulation.invariants import LOST, RECORD_KEYS, check
from tests.integration.ledger.simulation.steps import take_in
from tests.integration.ledger.simulation.world import LEASE_MS, TTLS_MS, WORKERS, World

MAX_ROUNDS = 2000
MAX_IDLE = 200
"""Seconds of simulated time after which the watchdog must have had work done: a bell is at most 32 s old."""


def work_off(world: World) -> None:
    """Raises AssertionError when work is left asleep, or an item is lost, doubled or convicted without cause."""
    for number in range(WORKERS):
        crash(world, number)
    while world.left:
        take_in(world, 1)
    check(world)
    idle = 0
    for _ in range(MAX_ROUNDS):
        if not world.open_tasks():
            break
        idle = 0 if _step(world) else idle + 1
        assert idle < MAX_IDLE, "work is asleep"
        check(world)
    else:
        raise AssertionError(f"no end after {MAX_ROUNDS} rounds")
    _let_leases_end(world)
    _check_everything_ended(world)
    _let_results_expire(world)


def _step(world: World) -> bool:
    """One thing that the healthy worker does; False when it could only wait for the watchdog."""
    doctor = world.workers[0]
    if doctor.state == "idle" and not world.messages:
        advance(world, 1000)
        watch(world)
        return False
    if doctor.state == "idle":
        world.messages -= 1
        doctor.state = "started"
    elif doctor.state == "lingering":
        if not doctor.notified:
            advance(world, max(0, doctor.until_ms - world.now_ms))
        claim(world, doctor, Turn(linger_ms=0, part=0.5))
    elif doctor.state == "busy" and _ends_badly(world):
        crash(world, 0)
    elif doctor.state == "busy":
        commit(world, doctor.token, doctor.units)
        doctor.units, doctor.state = [], "again"
    else:
        work(world, Turn(part=0.5))
    return True


def _ends_badly(world: World) -> bool:
    held = world.workers[0].units
    return any(
        unit.first <= index < unit.first + unit.items for unit in held for index in world.tasks[unit.task_id].poison
    )


def _let_leases_end(world: World) -> None:
    advance(world, max(LEASE_MS, BEAT_MS))
    while world.driver.watch().leases:
        pass
    world.sends(bell_due=False)
    check(world)
    assert not world.seen.named("eq:q:m:claim:")


def _let_results_expire(world: World) -> None:
    """By the clock of the scripts: the records live by the server's own, and are still there."""
    advance(world, 2 * max(TTLS_MS))
    world.driver.watch()
    world.sends(bell_due=False)
    check(world)
    assert not world.seen.get("eq:held"), "results are in an account for ever"


def _check_everything_ended(world: World) -> None:
    for task in world.tasks.values():
        state = world.state(task.id)
        assert state.terminal
        result = world.driver.result(task.id)
        convicted = {index for index, error in result.errors.items() if error.code == LOST}
        if result.task.model_changed:
            world.stats["model_changed"] += 1
        elif state in {State.COMPLETED, State.FAILED}:
            assert task.poison <= convicted
        makers = {world.made_by[mark] for mark in result.vectors[:, 1:].ravel().tolist() if mark in world.made_by}
        assert len(makers) <= 1, "vectors of two models in one result"
        world.stats["convicted"] += len(convicted)
        world.stats[f"tasks_{state}"] += 1
    for owner in {task.owner for task in world.tasks.values()}:
        listed = [task.id for task in world.driver.listed(owner, limit=10**6).tasks]
        expected = [task.id for task in world.tasks.values() if task.owner == owner and task.listed]
        assert listed == sorted(expected, reverse=True)
    lasting = {name for name, key in world.seen.keys.items() if key.ttl_ms == -1} - RECORD_KEYS
    known = ("q:m:state", "q:m:lingering", "reserved", "models", "held", "held-until")
    assert lasting <= {f"eq:{name}" for name in known}
