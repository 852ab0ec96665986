"""Steps of clients, of the broker and of time."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.errors import Refused
from tasks.ledger import Admission, Alias, Lane, NewTask, NewUnit, State, SubmitReply, operations
from tasks.storage.row_file import UnitReference
from tests.integration.ledger.simulation.claims import check_handed
from tests.integration.ledger.simulation.world import TTLS_MS, VECTOR_BYTES, ExpectedTask, World

DIGEST, OTHER_DIGEST = "d" * 32, "e" * 32


@dataclass(frozen=True)
class Request:
    """What a client asks for. `alias`: 0 none, else one of a few names. `sent`: the caller lives to ring.

    `by_reference`: its units name rows of a file, as those of a batch do.
    """

    sizes: Sequence[tuple[int, int]] = ((1, 10),)
    lane: Lane = Lane.ONLINE
    owner: str = "a"
    deadline_in_ms: int | None = None
    poison: int | None = None
    alias: int = 0
    join: bool = True
    other_body: bool = False
    sent: bool = True
    by_reference: bool = False


def submit(world: World, request: Request) -> None:
    """A new task, or one that is found by its alias."""
    submission = _submission(world, request)
    known = _known(world, submission)
    if known is not None and not request.join and request.other_body != _body(world, known):
        _refused(world, submission)
        return
    joins = known is not None and (not request.join or not _ended_badly(world, known))
    reply = world.driver.run(operations.submit(submission))
    if joins:
        assert known is not None
        assert (reply.task_id, reply.joined) == (known, True)
        _prolong(world, known, submission)
        world.stats["joined"] += 1
    else:
        assert (reply.task_id, reply.joined) == (submission.task_id, False)
        expect(world, submission, poison=request.poison)
    world.sends(reply.bell_due, sent=request.sent)
    check_handed(world)
    world.last = lambda: _submit_again(world, submission, reply.task_id)


def submit_together(world: World, requests: Sequence[Request]) -> None:
    """New tasks in one call, which looks for one caller to ring."""
    submissions = [_submission(world, request) for request in requests]
    _come_together(world, submissions)
    for submission, request in zip(submissions, requests, strict=True):
        expect(world, submission, poison=request.poison)
    check_handed(world)
    world.stats["together"] += 1
    world.last = lambda: _come_together(world, submissions)


def _come_together(world: World, submissions: Sequence[NewTask]) -> None:
    replies = world.driver.submit_together(submissions)
    for submission, reply in zip(submissions, replies, strict=True):
        assert isinstance(reply, SubmitReply)
        assert (reply.task_id, reply.joined) == (submission.task_id, False)
    due = [reply.bell_due for reply in replies if isinstance(reply, SubmitReply)]
    assert sum(due) <= 1
    world.sends(any(due))


def cancel(world: World, number: int) -> None:
    task_id = sorted(world.tasks)[number % len(world.tasks)]
    state = world.state(task_id)
    expected = "cancelled" if not state.terminal else "was_cancelled" if state is State.CANCELLED else "ended"
    assert world.driver.cancel(task_id) == expected


def forget(world: World, number: int) -> None:
    task_id = sorted(world.tasks)[number % len(world.tasks)]
    assert world.driver.forget(task_id)
    assert not world.driver.forget(task_id)
    del world.tasks[task_id]
    for index in [key for key in world.outcomes if key[0] == task_id]:
        del world.outcomes[index]


def want(world: World, number: int, for_ms: int, *, shorten: bool) -> None:
    """A waiter comes, or the last one goes."""
    task = world.tasks[sorted(world.tasks)[number % len(world.tasks)]]
    moved = world.driver.run(operations.want(world.driver.model, task.id, for_ms, shorten=shorten))
    at_ms = world.now_ms + for_ms
    can_move = task.deadline_ms is not None and not world.state(task.id).terminal
    assert moved == can_move
    if can_move and task.deadline_ms is not None:
        task.deadline_ms = min(task.deadline_ms, at_ms) if shorten else max(task.deadline_ms, at_ms)


def lose_message(world: World) -> None:
    world.messages -= 1
    world.lost_bell = True
    world.stats["lost_bells"] += 1


def double_message(world: World) -> None:
    world.messages += 1
    world.stats["doubled_bells"] += 1


def advance(world: World, ms: int) -> None:
    world.driver.advance(ms)


def watch(world: World) -> None:
    seen = world.driver.watch()
    if seen.bell_due:
        world.lost_bell = False
    if seen.ready and world.client.hexists("eq:q:m:state", "bell"):
        world.lost_wake = False  # it told somebody else; where all live workers hold leases, nobody need come
    world.sends(seen.bell_due)


def repeat_last(world: World) -> None:
    """The reply of the last call was lost, and its caller asks again."""
    if world.last is not None:
        world.stats["repeats"] += 1
        world.last()


def _submission(world: World, request: Request) -> NewTask:
    alias = None
    if request.alias:
        digest = OTHER_DIGEST if request.other_body else DIGEST
        alias = Alias(f"{'join' if request.join else 'key'}{request.alias}", digest, join=request.join)
    submission = world.driver.submission(
        *request.sizes,
        lane=request.lane,
        owner=request.owner,
        deadline_in_ms=request.deadline_in_ms,
        alias=alias,
        metadata=b'{"a":"b"}' if len(request.sizes) > 1 else b"",
        listed=alias is None or not alias.join,
        ttl_ms=TTLS_MS[len(request.sizes) % len(TTLS_MS)],
        admission=Admission(max_backlog_s=1e9, vector_bytes=VECTOR_BYTES),
        trace=f"{request.lane} {request.owner}" if request.alias else "",
    )
    return replace(submission, units=_references(submission.units)) if request.by_reference else submission


def _references(units: Sequence[NewUnit]) -> list[NewUnit]:
    firsts = itertools.accumulate((unit.items for unit in units), initial=0)
    return [
        replace(unit, payload=UnitReference("files/f", "batches/b/index.0", first).to_payload())
        for unit, first in zip(units, firsts, strict=False)
    ]


def _known(world: World, submission: NewTask) -> str | None:
    """The task that the alias names, by what was submitted before."""
    if submission.alias is None:
        return None
    named = [
        task.id
        for task in world.tasks.values()
        if task.alias is not None and (task.owner, task.alias.name) == (submission.owner, submission.alias.name)
    ]
    latest = named[-1] if named else None
    if latest is None or world.tasks[latest].alias == submission.alias or not submission.alias.join:
        return latest
    return None  # another request took the name over


def _body(world: World, task_id: str) -> bool:
    alias = world.tasks[task_id].alias
    return alias is not None and alias.digest == OTHER_DIGEST


def _ended_badly(world: World, task_id: str) -> bool:
    return world.state(task_id) in {State.FAILED, State.CANCELLED, State.EXPIRED}


def _refused(world: World, submission: NewTask) -> None:
    try:
        world.driver.run(operations.submit(submission))
    except Refused:
        world.stats["conflicts"] += 1
    else:
        raise AssertionError("another body under the same Idempotency-Key was accepted")


def expect(world: World, submission: NewTask, *, poison: int | None = None) -> None:
    """The task was stored. `poison`: which of its items kills whoever encodes it."""
    items = sum(unit.items for unit in submission.units)
    for older in world.tasks.values():  # its name is taken over
        if (
            older.alias
            and submission.alias
            and (older.owner, older.alias.name)
            == (
                submission.owner,
                submission.alias.name,
            )
        ):
            older.alias = None
    world.tasks[submission.task_id] = ExpectedTask(
        id=submission.task_id,
        lane=submission.lane,
        owner=submission.owner,
        items=items,
        size_bytes=sum(len(unit.payload) for unit in submission.units),
        deadline_ms=world.now_ms + submission.deadline_in_ms if submission.deadline_in_ms else None,
        alias=submission.alias,
        poison=frozenset() if poison is None else frozenset({poison % items}),
        listed=submission.listed,
        trace=submission.trace,
    )
    world.stats["tasks"] += 1


def _prolong(world: World, task_id: str, submission: NewTask) -> None:
    task = world.tasks[task_id]
    assert submission.alias is not None
    if submission.alias.join and submission.deadline_in_ms and task.deadline_ms and not world.state(task_id).terminal:
        task.deadline_ms = max(task.deadline_ms, world.now_ms + submission.deadline_in_ms)


def _submit_again(world: World, submission: NewTask, task_id: str) -> None:
    if task_id not in world.tasks or (submission.alias is not None and _ended_badly(world, task_id)):
        return
    # Without its deadline: time has gone on, and a repetition would move it.
    reply = world.driver.run(operations.submit(replace(submission, deadline_in_ms=None)))
    assert reply.task_id == task_id
    world.sends(reply.bell_due)
