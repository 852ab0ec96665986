"""What calls about batches cost: commands inside scripts grow with what is asked for, never with what there is."""

from collections.abc import Callable
from typing import Any

from tasks.records.batches import BatchRecord, read_batch
from tasks.records.jobs import JobStatus, Page, Stage, list_jobs
from tasks.records.moves import Move, delete_job
from tasks.records.stage_tasks import embed_task
from tasks.records.store import OPEN, Room
from tests.integration.ledger.driver import MODEL, Driver, commands, new_pieces
from tests.integration.records.jobs import batch, create, make, new_batch

ROOM = Room({"batches": 100_000}, max_memory_percent=70)
PAGE = 10
UNITS = 500


def new(**changed: Any) -> BatchRecord:
    return new_batch("o", **changed)


def begins(move: Move, units: int) -> None:
    """Its rows wait for the model."""
    move.set(status=JobStatus.IN_PROGRESS, model=MODEL, next_page=2)
    move.pages[1] = Page(Stage.EMBED, True, documents=units, chunks=units)
    move.new_tasks.append(embed_task(move.record, 1, new_pieces(*[(1, 10)] * units), None))


def stops(move: Move) -> None:
    """What is done of its rows is kept."""
    move.cancel.append(move.record.task_id(1, Stage.EMBED))
    move.put(1, at=Stage.LOAD, under_way=False)


def ends(move: Move) -> None:
    """Nothing of its tasks is left."""
    move.forget.append(move.record.task_id(1, Stage.EMBED))
    move.pages.clear()
    move.end(JobStatus.COMPLETED)


def efforts(driver: Driver, units: int = UNITS) -> dict[str, int]:
    """Commands of each call about one batch whose rows are a task of many units."""
    record = new(alias="a")

    def moved(how: Callable[[Move], object]) -> Callable[[], Any]:
        def run() -> None:
            move = Move(batch(driver, record.id))
            how(move)
            assert make(driver, move)

        return run

    calls: dict[str, Callable[[], Any]] = {
        "create": lambda: create(driver, record, ROOM),
        "repeat": lambda: create(driver, record, ROOM),
        "begin": moved(lambda move: begins(move, units)),
        "read": lambda: driver.run(read_batch(record.id)),
        "open": lambda: driver.run(list_jobs(BatchRecord, OPEN, limit=PAGE))[0],
        "list": lambda: driver.run(list_jobs(BatchRecord, "o", after=None, limit=PAGE)),
        "stop": moved(stops),
        "end": moved(ends),
        "delete": lambda: make(driver, delete_job(batch(driver, record.id))),
    }
    return {name: sum(commands(driver.client, call).values()) for name, call in calls.items()}


def test_no_call_grows_with_the_number_of_batches(driver: Driver) -> None:
    for _ in range(PAGE + 1):
        create(driver, new())
    efforts(driver)  # Redis knows the scripts now
    few = efforts(driver)
    for _ in range(1000):
        create(driver, new())
    assert efforts(driver) == few
