"""What must hold of every claim: what it took, for whom, from which lane, and who ran alone."""

import math
from collections.abc import Iterator

import redis

from tasks.ledger import Claim, ClaimedUnit, Lane, operations
from tasks.ledger.operations import ClaimRequest
from tasks.storage.row_file import UnitReference
from tests.integration.ledger.simulation.world import SUSPECTS, World

BULK_SHARE = 8
MAX_UNIT_COST = 40
MAX_PASSED_OVER = 64


def check_claim(world: World, request: ClaimRequest, claim: Claim) -> None:
    """Compares a claim with all keys before it, and counts suspects and turns."""
    units = claim.units
    assert len(units) <= request.max_units
    large = {_large(request, claim.lane, unit.items, unit.cost) for unit in units}
    assert len(large) <= 1, "small units beside large ones"
    assert True not in large or not request.small_only, "a large unit where it was not wanted"
    assert len(units) <= 1 or sum(u.cost for u in units) <= _budget(request, large=True in large), "over budget"
    world.stats["large_claims"] += len(units) > 1 and True in large
    assert all((u.attempts > 1) == request.suspect for u in units), "a suspect beside others, or another in its place"
    assert len(units) <= 1 or not request.suspect, "a suspect ran in company"
    for unit in units:
        _check_unit(world, claim, unit)
    if request.online_only:
        assert claim.lane in {None, Lane.ONLINE}
    assert not (claim.wait_ms and (request.online_only or request.suspect))
    assert claim.suspects == bool(world.client.exists(f"eq:q:m:{SUSPECTS}")), "nobody hears of suspects"
    assert not (claim.suspects and claim.wait_ms), "lingers although there is work"
    world.stats["told"] += claim.suspects
    if not _lease_due(world):  # the claim would have returned what nobody could foresee
        if request.suspect:
            _check_suspects(world, claim)
        else:
            _check_lane(world, request, claim)
            _check_share(world, request, claim)
    _count_turns(world, request, claim)
    world.stats["claims"] += 1
    world.stats["claimed_units"] += len(units)


def check_handed(world: World) -> None:
    """What SUBMIT has just claimed for a worker that lingers is a claim as that worker would have made it."""
    for worker in world.workers:
        message, worker.told = worker.told, b""
        if not message or worker.asked is None:
            continue
        handed = operations.handed_claim(message)
        if handed is None:
            continue
        assert handed.token == worker.asked.token
        assert worker.state == "lingering"
        assert worker.model == world.serves, "work for a model that is no longer served"
        assert [unit.attempts for unit in handed.units] == [1], "more than a fresh text was handed over"
        check_claim(world, worker.asked, handed)
        worker.handed = handed
        world.stats["handed"] += 1


def _check_unit(world: World, claim: Claim, unit: ClaimedUnit) -> None:
    task = world.tasks[unit.task_id]
    assert task.deadline_ms is None or task.deadline_ms > world.now_ms, "nobody wanted this any more"
    assert task.lane is claim.lane
    assert unit.trace == task.trace, "a span would be in another trace, or in none"
    assert not _of_another_model(world, task.id), "vectors of two models in one result"
    reference = UnitReference.from_payload(unit.payload)
    if reference is None:
        assert unit.texts() == [f"t{unit.first + i}" for i in range(unit.items)]
    else:
        assert reference.first + unit.offset == unit.first, "other rows than were meant"
        world.stats["references"] += 1
    if unit.attempts == 1:
        return
    assert unit.items == 1, "a suspect was not split"
    place = unit.task_id, unit.first
    assert unit.attempts == 2 + world.lost_alone[place], "attempts were not counted"
    assert world.lost_alone[place] < 3, "it had died alone three times"
    world.lost_alone[place] += 1
    world.stats["suspects"] += 1


def _check_suspects(world: World, claim: Claim) -> None:
    assert claim.units or not _live(world, SUSPECTS), "a suspect was not handed out"
    before, now = world.seen.get("eq:q:m:state").get("credit"), world.client.hget("eq:q:m:state", "credit")
    assert int(before or 0) == int(now or 0), "a lane paid for a suspect"


def _lease_due(world: World) -> bool:
    return any(float(due) <= world.now_ms for due in world.seen.get("eq:q:m:leases").values())


def _check_lane(world: World, request: ClaimRequest, claim: Claim) -> None:
    state = world.seen.get("eq:q:m:state")
    bulk_waits, online_waits = (bool(world.seen.get(f"eq:q:m:{lane}")) for lane in ("bulk", "online"))
    credit = int(state.get("credit", 0)) if bulk_waits else 0
    bulks_turn = credit >= (BULK_SHARE - 1) * request.budget and not request.online_only
    live = {lane for lane in Lane if _live(world, lane)}
    if not claim.units:
        asked = set() if request.small_only else {Lane.ONLINE} if request.online_only else set(Lane)
        assert not live & asked, "ready work was not handed out"
        if request.small_only:
            assert not _small_is_next(world, request), "a small unit was not handed out"
        return
    expected = Lane.BULK if Lane.BULK in live and (bulks_turn or Lane.ONLINE not in live) else Lane.ONLINE
    assert claim.lane is expected, f"credit {credit}, budget {request.budget}"
    spent = sum(unit.cost for unit in claim.units)
    if claim.lane is Lane.BULK:
        credit -= (BULK_SHARE - 1) * spent
        credit = credit if online_waits else max(0, credit)
    elif bulk_waits:
        credit += spent
    stored = world.client.hget("eq:q:m:state", "credit")
    assert int(stored or 0) == credit


def _check_share(world: World, request: ClaimRequest, claim: Claim) -> None:
    """A stream takes its part of what is open: no more, and no less while there is as much."""
    if claim.lane is None:
        return
    large = _large(request, claim.lane, claim.units[0].items, claim.units[0].cost)
    spent, room = sum(unit.cost for unit in claim.units), _room(world, request, claim.lane, large=large)
    assert len(claim.units) == 1 or spent <= room, f"took {spent}, more than its part, {room}"
    if len(claim.units) == request.max_units or not world.client.exists(f"eq:q:m:{claim.lane}"):
        return
    if request.small_only or (claim.lane is Lane.ONLINE and set(_next_online(world, request)) != {large}):
        return
    assert spent + MAX_UNIT_COST > room, f"took {spent}, less than its part, {room}"
    world.stats["shared"] += room < request.budget


def _large(request: ClaimRequest, lane: Lane | None, items: int, cost: int) -> bool:
    return lane is Lane.ONLINE and items > 1 and cost >= request.budget


def _budget(request: ClaimRequest, *, large: bool) -> int:
    return request.large_budget if large and request.large_budget is not None else request.budget


def _next_online(world: World, request: ClaimRequest) -> Iterator[bool]:
    """Of each task that waits in the online lane now, whether its next unit is large."""
    client = world.client
    for owner in _members(client, "eq:q:m:online"):
        for task_id in _members(client, f"eq:q:m:online:{owner}"):
            fresh, back = client.hmget(f"eq:task:{task_id}", "next", "back")
            number = client.lindex(f"eq:back:{task_id}", 0) if back and int(back) else fresh
            record = client.hget(f"eq:units:{task_id}", f"u{int(number)}") if number else None
            if isinstance(record, bytes):
                _, items, cost, *_ = record.split()
                yield _large(request, Lane.ONLINE, int(items), int(cost))


def _members(client: redis.Redis, key: str) -> list[str]:
    return [name.decode() for name in client.zrange(key, 0, -1) if isinstance(name, bytes)]


def _small_is_next(world: World, request: ClaimRequest) -> bool:
    """Whether a look for small units must have found one, as the owner whose turn it is has few tasks."""
    owners = _members(world.client, "eq:q:m:online")
    waiting = _members(world.client, f"eq:q:m:online:{owners[0]}") if owners else []
    small = [task_id for task_id in waiting if _is_small(world, request, task_id)]
    return len(waiting) <= MAX_PASSED_OVER and bool(small)


def _is_small(world: World, request: ClaimRequest, task_id: str) -> bool:
    items, cost = world.client.hmget(f"eq:task:{task_id}", "total", "cost")
    return not _large(request, Lane.ONLINE, int(items or 0), int(cost or 0))


def _room(world: World, request: ClaimRequest, lane: Lane, *, large: bool) -> float:
    budget = _budget(request, large=large)
    state, rate = world.seen.get("eq:q:m:state"), request.rate
    if rate and request.alone:  # it stands for its whole process
        rate = math.ceil(float(world.seen.get("eq:q:m:rates").get(request.worker, 0)))
    total = float(state.get("rate", 0))
    if not 0 < rate < total:
        return budget
    part = int(state.get(f"cost_{lane}", 0)) * rate / total
    return min(budget, math.ceil(part / 2 if lane is Lane.BULK else part))


def _live(world: World, lane: str) -> bool:
    """Whether the lane, or the line of suspects, had a ready task that somebody still wanted."""
    for owner in world.seen.get(f"eq:q:m:{lane}"):
        for task_id in world.seen.get(f"eq:q:m:{lane}:{owner}"):
            deadline_ms = world.tasks[task_id].deadline_ms
            if _of_another_model(world, task_id):
                continue
            if deadline_ms is None or deadline_ms > world.now_ms:
                return True
    return False


def _of_another_model(world: World, task_id: str) -> bool:
    """Whether the task is half done by the model before: nobody goes on with it."""
    made_by = world.seen.get(f"eq:task:{task_id}").get("made_by")
    return made_by is not None and str(made_by) != world.serves.stamp


def _count_turns(world: World, request: ClaimRequest, claim: Claim) -> None:
    for unit in claim.units:
        task = world.tasks[unit.task_id]
        line = SUSPECTS if request.suspect else task.lane
        world.owner_turns[line].served(task.owner, unit.cost)
        if not request.small_only:  # which passes over large ones
            world.task_turns[line, task.owner].served(task.id, unit.cost)
