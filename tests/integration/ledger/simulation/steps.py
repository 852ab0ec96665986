"""Steps: what a committed job has left, as data, is taken in by a change of a record, which brings a successor."""

from tasks.ledger import Admission, ClaimedUnit, Lane
from tasks.ledger.operations import Operation
from tasks.records.ingestion_operations import Move, Moved, create_ingestion, move_ingestion
from tasks.records.ingestions import IngestionStatus, NewIngestion
from tests.integration.ledger.simulation.clients import expect
from tests.integration.ledger.simulation.world import RECORD, VECTOR_BYTES, World

S = IngestionStatus


def leave(world: World, unit: ClaimedUnit) -> None:
    """The outcome of this unit, which was just committed, names a successor."""
    if not world.client.exists(f"eq:ingestion:{RECORD}"):
        world.driver.run(create_ingestion(NewIngestion(RECORD, "b", {}, 1)))
    admission = Admission(1e9, vector_bytes=VECTOR_BYTES)
    task_id = f"{unit.task_id}-{unit.unit_id}"
    successor = world.driver.submission(
        (2, 7), (1, 12), task_id=task_id, lane=Lane.BULK, owner="b", admission=admission, trace="of a job"
    )
    world.left.append((unit.task_id, successor))


def take_in(world: World, number: int, *, sent: bool = True) -> None:
    """Of something that was left. Every other step dies before it forgets that: it may come again.

    Sometimes the record is no longer as the change expects. `sent`: it lives to send the bell message that is due.
    """
    job, successor = world.left[number % len(world.left)]
    if number % 2:
        world.left.remove((job, successor))
    if job not in world.tasks:  # forgotten, and what it has left with it
        return
    field = f"taken {successor.task_id}"
    fits = bool(number % 3)
    move = Move([S.QUEUED if fits else S.CANCELLED], equal={field: ""}, set={field: 1})
    call = move_ingestion(RECORD, move, [successor])
    got = world.driver.run(call)
    assert got.moved == (fits and successor.task_id not in world.taken), "made twice, or against what it expects"
    assert got.moved or not got.bells_due, "a bell for what was not enqueued"
    if got.moved:
        world.taken.add(successor.task_id)
        expect(world, successor)
    world.stats["successors" if got.moved else "taken_again" if fits else "missed"] += 1
    world.sends(bool(got.bells_due), sent=sent)
    world.last = lambda: _again(world, call)


def _again(world: World, call: Operation[Moved]) -> None:
    """The successor may be forgotten by now: it does not come back."""
    again = world.driver.run(call)
    assert (again.moved, again.bells_due) == (False, ())
