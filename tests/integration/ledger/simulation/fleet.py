"""Steps of workers: they hear, claim, linger, commit, give back, hang, die, and come back from the dead."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tasks.errors import ModelChanged
from tasks.ledger import Claim, ClaimedUnit, CommitOutcome, Finished, Lane, operations
from tasks.ledger.operations import ClaimRequest, Operation
from tests.integration.ledger.driver import failed, finished
from tests.integration.ledger.simulation import steps
from tests.integration.ledger.simulation.claims import check_claim
from tests.integration.ledger.simulation.world import LEASE_MS, MODELS, WORKERS, Innocent, Worker, World
from tests.ledger_builders import worker_entry

Deed = Literal[
    "commit", "part", "fail", "release", "crash", "hang", "slice_end", "renew", "preempt", "suspect", "lose", "then"
]
DEEDS: tuple[Deed, ...] = (
    "commit",
    "part",
    "fail",
    "release",
    "crash",
    "hang",
    "slice_end",
    "renew",
    "preempt",
    "suspect",
    "lose",
    "then",
)
LITTLE = 10
"""A budget below it makes a worker die of an innocent suspect."""
BEAT_MS = 3000
"""How long a worker counts as live after a beat."""
LATE_MS = 60_000
"""Some results have been kept for as long as they are."""
HARMLESS = {"hang", "release", "renew", "preempt", "suspect", "lose"}
"""Deeds that encode nothing of what the worker holds."""


@dataclass(frozen=True)
class Turn:
    """What a worker does when it is its turn.

    `sent`: it lives to send the bell message it is told to send. `alone`: it is the only stream of its process. `part`:
    how much of its process's speed the stream that claims has measured; 0: it claims without a share. `suspect`: it
    asks for one, if it was told that some wait. `hears`: what it was handed reaches it; else it asks again. `stops`:
    while it lingers. `large`: times of the budget that a claim of large units may take.
    """

    worker: int = 0
    budget: int = 100
    max_units: int = 64
    linger_ms: int = 800
    deed: Deed = "commit"
    sent: bool = True
    alone: bool = True
    part: float = 0
    suspect: bool = True
    hears: bool = True
    stops: bool = False
    large: int = 1


def deliver(world: World, number: int) -> None:
    """A bell message reaches a worker, if that one takes messages now."""
    worker = world.workers[number % WORKERS]
    if worker.state == "idle":
        world.messages -= 1
        worker.state = "started"


def work(world: World, turn: Turn) -> None:
    """The next thing that this worker does in its state."""
    worker = world.workers[turn.worker % WORKERS]
    world.stats[worker.state] += 1
    if worker.state == "lingering" and turn.stops:
        leave(world, worker, sent=turn.sent)
    elif worker.state in {"started", "again"} or _wakes(world, worker):
        claim(world, worker, turn)
    elif worker.state == "busy":
        poisoned = any(_poisonous(world, unit) for unit in worker.units)
        _act(world, worker, "crash" if poisoned and turn.deed not in HARMLESS else turn.deed, turn)


def claim(world: World, worker: Worker, turn: Turn) -> None:
    heard = worker.state == "started"
    asked, handed = worker.asked, worker.handed
    worker.asked, worker.handed = None, None
    if handed is not None and turn.hears:
        worker.notified = False
        _takes(world, worker, handed)
        return
    request = _request(world, worker, turn, rang=heard, suspect=worker.suspects and turn.suspect)
    if asked is not None:
        request = replace(request, token=asked.token)
    if worker.model != world.serves:
        _refused(world, worker, request, turn.worker)
        return
    held = [unit for unit in handed.units if world.holds(handed.token, unit)] if handed is not None else []
    again = world.client.exists(f"eq:q:m:claim:{request.token}")
    got = world.driver.run(operations.claim(world.driver.model, request))
    if heard:
        world.lost_bell = False
    worker.notified = False
    world.sends(got.bell_due, sent=turn.sent)
    if again:
        assert list(got.units) == held, "what was handed over is lost on the way"
        world.stats["handed_again"] += 1
    else:
        check_claim(world, request, got)
    worker.suspects = got.suspects
    worker.claim = got
    if got.units:
        _takes(world, worker, got)
        world.last = lambda: _claim_again(world, request, got)
    elif got.wait_ms:
        worker.state, worker.until_ms, worker.asked = "lingering", world.now_ms + got.wait_ms, request
    elif got.more:
        worker.state = "again"
    else:
        leave(world, worker, sent=turn.sent)


def _takes(world: World, worker: Worker, got: Claim) -> None:
    world.made_by[_mark(got.token)] = worker.model.stamp
    worker.claim, worker.units = got, list(got.units)
    worker.state, worker.worked = "busy", True


def beat(world: World, number: int, rate: float) -> None:
    """A worker says that it lives and how fast it is."""
    worker = world.workers[number % WORKERS]
    worker.rate = rate
    entry = worker_entry(worker.name, rate)
    world.driver.run(operations.beat(world.driver.model, entry, BEAT_MS, worker.model))
    counted = world.client.hget("eq:q:m:rates", worker.name) is not None
    assert counted or worker.model != world.serves
    world.stats["beats"] += 1


def exchange(world: World, number: int, *, late: bool) -> None:
    """A worker is killed and comes back with the other model, if that is let in. `late`: no other has beaten since."""
    crash(world, number)
    if late:
        world.driver.advance(LATE_MS)
    worker = world.workers[number % WORKERS]
    other = next(model for model in MODELS if model != world.serves)
    live = world.client.zcount("eq:q:m:workers", f"({world.now_ms}", "+inf")
    held = [(unit.task_id, unit.first) for token, unit in _under_way(world) if world.holds(token, unit)]
    joined = world.driver.run(operations.register(world.driver.model, other, worker=worker.name, ttl_ms=BEAT_MS))
    assert joined == (live == 0), "two models at a time, or none"
    world.stats["exchanges" if joined else "models_refused"] += 1
    if not joined:
        return
    world.serves = worker.model = other
    world.lost_alone.subtract(held)  # all claims were given back
    world.sends(world.driver.run(operations.abandon(world.driver.model, worker.name)))


def leave(world: World, worker: Worker, *, sent: bool = True) -> None:
    """The drain ends."""
    token = worker.asked.token if worker.asked else ""
    bell_due = world.driver.run(operations.leave(world.driver.model, worker.name, warm=worker.worked, token=token))
    if worker.handed is not None:
        assert not any(world.holds(token, unit) for unit in worker.handed.units), "nobody works on it"
        world.stats["handed_back"] += 1
    worker.state, worker.worked, worker.asked, worker.handed = "idle", False, None, None
    world.sends(bell_due, sent=sent)


def crash(world: World, number: int, *, comes_back: bool = False) -> None:
    """The process is gone at once. `comes_back`: its successor has its name and declares its claims lost."""
    worker = world.workers[number % WORKERS]
    world.stats["crashes"] += 1
    if worker.state == "started":
        world.lost_bell = True
    if worker.notified:
        world.lost_wake = True
    if worker.units:
        world.zombies.append((worker.token, worker.units))
    if worker.handed is not None:
        world.zombies.append((worker.handed.token, list(worker.handed.units)))
    world.ears.close(worker.name)
    world.workers[number % WORKERS] = world.new_worker(worker.name if comes_back else None)
    if comes_back:
        world.sends(world.driver.run(operations.abandon(world.driver.model, worker.name)))


def zombie_commit(world: World, number: int) -> None:
    """A worker that was declared dead finishes what it had."""
    token, units = world.zombies[number % len(world.zombies)]
    for unit in units:
        if unit.task_id not in world.tasks or not _poisonous(world, unit):
            if number % 2:
                commit_job(world, token, unit)
            else:
                commit(world, token, [unit])


def zombie_release(world: World, number: int) -> None:
    """A worker that was declared dead gives back what it had."""
    token, units = world.zombies[number % len(world.zombies)]
    give_back(world, token, units)


def commit(world: World, token: str, units: list[ClaimedUnit], *, fail: bool = False) -> None:
    held = [world.holds(token, unit) for unit in units]
    done = [_outcome(token, unit, fail=fail) for unit in units]
    call = operations.commit(world.driver.model, token, done, forward_passes=1)
    got = world.driver.run(call)
    for was_held, outcome, unit in zip(held, got, units, strict=True):
        assert was_held == (outcome is CommitOutcome.COMMITTED), f"{outcome!r} for {unit.unit_id}"
        world.stats["stale_commits"] += not was_held
    world.sends(bell_due=False)
    if all(held):
        world.last = lambda: _commit_again(world, call, units)


def commit_job(world: World, token: str, unit: ClaimedUnit) -> None:
    """Commits a unit whose outcome names a successor, for a step to take in if the unit was held."""
    held = world.holds(token, unit)
    commit(world, token, [unit])
    if held:
        steps.leave(world, unit)


def give_back(world: World, token: str, units: list[ClaimedUnit], *, sent: bool = True) -> None:
    for unit in units:
        if unit.attempts > 1 and world.holds(token, unit):
            world.lost_alone[unit.task_id, unit.first] -= 1
    world.sends(world.driver.run(operations.release(world.driver.model, token)), sent=sent)


def _under_way(world: World) -> Iterator[tuple[str, ClaimedUnit]]:
    """Suspects that somebody works on, or that a dead worker had."""
    claims = [(worker.token, worker.units) for worker in world.workers if worker.units]
    return ((token, unit) for token, units in claims + world.zombies for unit in units if unit.attempts > 1)


def _refused(world: World, worker: Worker, request: ClaimRequest, number: int) -> None:
    """A worker of the model before learns that it must go."""
    try:
        world.driver.run(operations.claim(world.driver.model, request))
    except ModelChanged:
        world.stats["replaced"] += 1
    else:
        raise AssertionError(f"{worker.name} has another model and was let in")
    crash(world, number)


def _act(world: World, worker: Worker, deed: Deed, turn: Turn) -> None:
    if deed in {"commit", "slice_end"}:
        commit(world, worker.token, worker.units)
        worker.units = []
    elif deed in {"part", "fail"}:
        commit(world, worker.token, worker.units[:1], fail=deed == "fail")
        worker.units = worker.units[1:]
    elif deed == "then":
        commit_job(world, worker.token, worker.units[0])
        worker.units = worker.units[1:]
    elif deed == "release":
        give_back(world, worker.token, worker.units, sent=turn.sent)
        worker.units = []
    elif deed == "lose":
        world.sends(world.driver.run(operations.lose(world.driver.model, worker.token)), sent=turn.sent)
        worker.units = []
    elif deed == "crash":
        crash(world, turn.worker, comes_back=turn.budget > 50)
    elif deed == "renew":
        held = world.client.exists(f"eq:q:m:claim:{worker.token}") == 1
        assert world.driver.run(operations.renew(world.driver.model, worker.token, LEASE_MS)) == held
    elif deed == "preempt":
        _preempt(world, worker, turn)
    elif deed == "suspect":
        _do_suspect(world, worker, turn)
    if worker.state == "busy" and not worker.units:
        worker.state = "again"
        if deed in {"release", "slice_end"}:
            leave(world, worker, sent=turn.sent)


def _preempt(world: World, worker: Worker, turn: Turn) -> None:
    """Between two micro-batches the worker serves the online lane, and keeps what it holds.

    Of bulk work; or, where that is of the online lane itself, small units of it.
    """
    if worker.claim is None or worker.claim.suspect or worker.model != world.serves:
        return
    small_only = worker.claim.lane is Lane.ONLINE
    request = _request(world, worker, turn, rang=False, online_only=True, small_only=small_only)
    got = world.driver.run(operations.claim(world.driver.model, request))
    world.sends(got.bell_due, sent=turn.sent)
    check_claim(world, request, got)
    world.made_by[_mark(got.token)] = worker.model.stamp
    if any(_poisonous(world, unit) for unit in got.units):
        world.zombies.append((got.token, list(got.units)))
        crash(world, turn.worker)
    elif got.units:
        commit(world, got.token, list(got.units))
        world.stats["small_looks" if small_only else "preemptions"] += 1


def _do_suspect(world: World, worker: Worker, turn: Turn) -> None:
    """Between two micro-batches of bulk work the process encodes a suspect, alone; what it holds stands still."""
    if worker.claim is None or worker.claim.lane is not Lane.BULK or any(u.attempts > 1 for u in worker.units):
        return
    if worker.model != world.serves:
        return
    request = _request(world, worker, turn, rang=False, suspect=True)
    got = world.driver.run(operations.claim(world.driver.model, request))
    world.sends(got.bell_due, sent=turn.sent)
    check_claim(world, request, got)
    world.made_by[_mark(got.token)] = worker.model.stamp
    if not got.units:
        return
    if _poisonous(world, got.units[0]) or turn.budget < LITTLE:
        for unit in worker.units:
            if world.holds(worker.token, unit):
                world.innocent[unit.task_id, unit.unit_id] = Innocent(unit, worker.token, got.units[0], got.token)
        world.zombies.append((got.token, list(got.units)))
        crash(world, turn.worker, comes_back=turn.alone)
    else:
        commit(world, got.token, list(got.units))
        world.stats["suspects_beside_bulk"] += 1


def _request(
    world: World,
    worker: Worker,
    turn: Turn,
    *,
    rang: bool,
    online_only: bool = False,
    small_only: bool = False,
    suspect: bool = False,
) -> ClaimRequest:
    return ClaimRequest(
        worker=worker.name,
        token=f"{worker.name}/{next(world.numbers)}",
        budget=turn.budget,
        max_units=turn.max_units,
        lease_ms=LEASE_MS,
        linger_ms=turn.linger_ms,
        rang=rang,
        online_only=online_only,
        small_only=small_only,
        large_budget=turn.large * turn.budget,
        alone=turn.alone,
        rate=turn.part * worker.rate,
        suspect=suspect,
        stamp=worker.model.stamp,
    )


def _wakes(world: World, worker: Worker) -> bool:
    return worker.state == "lingering" and (worker.notified or world.now_ms >= worker.until_ms)


def _poisonous(world: World, unit: ClaimedUnit) -> bool:
    task = world.tasks.get(unit.task_id)
    return task is not None and any(unit.first <= index < unit.first + unit.items for index in task.poison)


def _outcome(token: str, unit: ClaimedUnit, *, fail: bool) -> Finished:
    # The mark tells whose vectors these are, so that a second commit cannot hide behind equal ones.
    return failed(unit, f"by {token}") if fail else finished(unit, mark=_mark(token))


def _mark(token: str) -> float:
    return float(token.rpartition("/")[2])


def _claim_again(world: World, request: ClaimRequest, got: Claim) -> None:
    if not world.client.exists(f"eq:q:m:claim:{got.token}"):
        return
    again = world.driver.run(operations.claim(world.driver.model, request))
    world.sends(again.bell_due)
    if request.rang:
        world.lost_bell = False
    first = {(unit.task_id, unit.unit_id): unit for unit in got.units}
    for unit in again.units:
        assert first[unit.task_id, unit.unit_id] == unit, "the same claim has changed"
    held = {place for place, unit in first.items() if world.holds(got.token, unit)}
    assert {(unit.task_id, unit.unit_id) for unit in again.units} == held


def _commit_again(world: World, call: Operation[list[CommitOutcome]], units: list[ClaimedUnit]) -> None:
    if all(unit.task_id in world.tasks for unit in units):
        again = world.driver.run(call)
        assert set(again) == {CommitOutcome.REPEATED}
