"""Calls that are made again because their reply was lost: nothing but bells changes."""

from collections.abc import Sequence
from typing import Any

from tests.integration.ledger.driver import everything
from tests.simulation.thin_client import Claim, Finished, NewTask
from tests.simulation.world import Stream, World

_OF_WAKE_UP = ("bell", "rings", "used")


def repeat(world: World) -> None:
    """Makes the last call again."""
    if world.last:
        world.last()


def repeat_submit(world: World, tasks: Sequence[NewTask], replies: Sequence[Any]) -> None:
    """What was let in is let in, what was joined is joined unless it has ended."""
    before = snapshot(world)
    again, bells = world.ledger.submit(*tasks)
    for was, now in zip(replies, again, strict=True):
        if b"revoked" in (was[0], now[0]):
            continue
        assert now[0] in {b"ok", b"joined"}, now
        assert now[1] == was[1] or not world.is_open(was[1].decode())
    world.rung(len(bells))
    anew = [
        task.id
        for task, reply in zip(tasks, again, strict=True)
        if task.id not in world.tasks and reply[0] == b"ok" and reply[1].decode() == task.id
    ]
    if anew:  # forgotten or refused since, so it is new again
        world.ledger.cancel(*anew, forget=True)
        world.last = None
    elif tasks[0].alias:
        for task, reply in zip(tasks, again, strict=True):
            known = world.tasks.get(reply[1].decode()) if reply[0] == b"joined" else None
            if known and known.deadline and task.deadline_in_ms and world.is_open(reply[1].decode()):
                known.deadline = max(known.deadline, world.ledger.now + task.deadline_in_ms)
    else:
        assert snapshot(world) == before


def repeat_claim(world: World, stream: Stream, claim: Claim, how: dict[str, Any]) -> None:
    """The same pieces, but for those that have ended."""
    if claim.token not in world.claims():
        return
    before = snapshot(world)
    again = world.ledger.claim(stream.name, claim.token, **how)
    had = {(piece.task, piece.name) for piece in claim.pieces}
    assert {(piece.task, piece.name) for piece in again.pieces} <= had
    if stream.state == "lingering":
        stream.state = "again"
    world.rung(again.bell)
    if again.pieces:
        assert len(again.pieces) == len(list(world.held(claim.token)))
        assert snapshot(world) == before


def repeat_commit(world: World, token: str, finished: Sequence[Finished], codes: Sequence[int]) -> None:
    """What was committed is told to have been, and nothing is committed now."""
    before = snapshot(world)
    there = [done.piece.task in world.tasks for done in finished]
    again = world.ledger.commit(token, finished).codes
    for was, now, known in zip(codes, again, there, strict=True):
        assert now != 1
        assert not (was == 1 and known) or now == 2, (was, now)
    assert snapshot(world) == before


def snapshot(world: World) -> tuple[dict[str, Any], dict[str, Any]]:
    """All that Redis holds, but for what serves wake-up alone, and what ends by a clock of Redis that goes on."""
    there, pipe = everything(world.client), world.client.pipeline(transaction=False)
    for key in there:
        pipe.ttl(key)
    stays = [key for key, ttl in zip(there, pipe.execute(), strict=True) if ttl == -1]
    state = {name: n for name, n in world.ledger.state.items() if name not in _OF_WAKE_UP}
    return {key: there[key] for key in stays if not key.endswith((":state", ":lingering"))}, state
