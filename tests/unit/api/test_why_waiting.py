"""Why something waits: which code and which sentence, from what is known of queues, tasks and records."""

import dataclasses
from typing import Any

import pytest

from api.served_models import ServedModels
from api.waiting.why_waiting import Record, Seen, Waiting, waiting_of
from tasks.errors import Unavailable
from tasks.ingestion.job_runner import away as what_is_away
from tasks.item import Options
from tasks.ledger.heartbeat import LoadingWorker
from tasks.ledger.overview import Account, Queue
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane, State, Task
from tasks.records.batches import Batch, BatchRecord
from tasks.records.ingestions import Ingestion, IngestionRecord
from tasks.records.jobs import JobStatus, Page, Stage, Wait
from tests.ledger_builders import a_worker
from worker_config.settings import load_settings

NOW_MS = 1_795_198_568_000
"""18:16:08 UTC of 20 November 2026."""
HOUR_MS = 3_600_000
SERVED = Queue("m", workers=(a_worker(),), rate=4000.0, backlog_cost={Lane.ONLINE: 0, Lane.BULK: 2500})
DOCUMENTS_SERVED = Queue(DOCUMENTS, workers=(a_worker(),), rate=1.0)


def task(state: State = State.QUEUED, **changed: Any) -> Task:
    made = Task(
        id="t", queue="m", lane=Lane.BULK, owner="ann", state=state, total=100, completed=0, failed=0,
        prompt_tokens=0, created_ms=NOW_MS, started_ms=None, finished_ms=None, deadline_ms=None, expires_ms=None,
        options=Options(), metadata={"name": "<script>"}, cost=2500,
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


def batch(at: Stage = Stage.PARSE, state: State | None = None, of: Task | None = None, **changed: Any) -> Batch:
    """Its page is at this stage, whose task is in this state; None: it has none."""
    asked = {"input_file_id": "f", "completion_window": "24h"}
    values = {"model": "" if at is Stage.PARSE else "m", "status": JobStatus.IN_PROGRESS} | changed
    record = BatchRecord(id="b", owner="ann", ttl_ms=1, window_ms=1, request=asked, **values)
    pages = {1: Page(at=at, under_way=state is not None)}
    made = Batch(record, "c", NOW_MS, NOW_MS, pages=pages)
    return made.with_tasks([_task_at(record.task_id(1, at), at, state, of)])


def ingestion(
    *pages: tuple[Stage, State | None], of: Task | None = None, waits: Wait | None = None, **changed: Any
) -> Ingestion:
    """Its pages are at these stages, whose tasks are in these states. `waits`: for what is away."""
    values = {"status": JobStatus.IN_PROGRESS, "model": "m", "wait": waits} | changed
    record = IngestionRecord(id="i", owner="ann", ttl_ms=1, request={"model": "m"}, **values)
    found = {n: Page(at=at, under_way=state is not None, documents=3) for n, (at, state) in enumerate(pages, 1)}
    made = Ingestion(record, "c", NOW_MS, NOW_MS, pages=found)
    tasks = [_task_at(record.task_id(n, at), at, state, of) for n, (at, state) in enumerate(pages, 1)]
    head = [_task_at(record.task_id(0, Stage.LIST), Stage.LIST, State.QUEUED, None)] if record.head_task else []
    return made.with_tasks(tasks + head)


def _task_at(task_id: str, at: Stage, state: State | None, of: Task | None) -> Task | None:
    queue = "m" if at is Stage.EMBED else DOCUMENTS
    return None if state is None else dataclasses.replace(of or task(), id=task_id, state=state, queue=queue)


def away(what: str, why: str = "") -> Wait:
    return Wait(what=what, stage=Stage.LIST, tries=3, until_ms=NOW_MS + 29_001, since_ms=NOW_MS - HOUR_MS, why=why)


def seen(*queues: Queue, account: dict[str, int] | None = None) -> Seen:
    served = ServedModels(load_settings(served_name="m"))
    served.update({queue.name: queue for queue in (SERVED, DOCUMENTS_SERVED, *queues)})
    return Seen(served, {}, Account({f"{name}:m:bulk": n for name, n in (account or {}).items()}), NOW_MS)


def answer(record: Record, known: Seen) -> Waiting:
    tasks = {record.id: record} if isinstance(record, Task) else record.tasks
    waiting = waiting_of(record, dataclasses.replace(known, tasks=tasks))
    assert waiting is not None
    return waiting


def stuck(queue: Queue, code: str = "storage_unavailable") -> Queue:
    return dataclasses.replace(
        queue, workers=(a_worker(storage_error=code, storage_error_since=(NOW_MS - HOUR_MS) / 1000),)
    )


def absent(name: str, since_ms: int | None = NOW_MS - HOUR_MS) -> Queue:
    return Queue(name, absent_ms=since_ms)


def busy(cost: int, owners: int) -> Queue:
    return dataclasses.replace(
        SERVED, backlog_cost={Lane.ONLINE: 0, Lane.BULK: cost}, owners={Lane.ONLINE: 0, Lane.BULK: owners}
    )


BUSY = busy(2_882_500, 2001)
MINE = {"cost": 2500, "open": 1}
UNDER_WAY = State.IN_PROGRESS
WORKED_ON = task(UNDER_WAY)
DYING = task(deaths=1, died_ms=NOW_MS - 5000)
LONG_AGO = task(deaths=1, died_ms=NOW_MS - HOUR_MS)
LOADING = LoadingWorker("w", "org/m", "the hub", since=(NOW_MS - HOUR_MS) / 1000)
QUEUED = JobStatus.QUEUED
EMBEDS, PARSES = (Stage.EMBED, State.QUEUED), (Stage.PARSE, UNDER_WAY)
IN_LINE = "Waits for its turn in the bulk lane; less than 1 s of work before it."
SINCE = "since 2026-11-20 17:16 UTC."
STORAGE = f"The server's storage does not answer {SINCE}"
DISK = f"The server's storage is full {SINCE}"
NO_MODEL = f"No worker serves this model {SINCE}"
LOADS = f"A worker loads the model {SINCE}"
DIED = "Its worker died or failed; it is tried again."
MODEL_FILES = "The files of the model are not in the storage; a worker that starts puts them there."
REFUSES = "The database of sink 'pg' refuses connections. Try again."
WAITING: list[tuple[Record, Seen, str, str]] = [
    (
        task(),
        seen(BUSY, account=MINE),
        "in_line",
        "Waits for its turn in the bulk lane; about 12 min of work before it.",
    ),
    (task(), seen(account=MINE), "in_line", IN_LINE),
    (task(), seen(busy(10**10, 10**6 + 1), account=MINE), "in_line", f"{IN_LINE[:35]}; about 7 d of work before it."),
    (task(), seen(dataclasses.replace(SERVED, rate=None)), "in_line", "Waits for its turn in the bulk lane."),
    (WORKED_ON, seen(account=MINE), "working", "Being worked on; less than 1 s left."),
    (task(UNDER_WAY, cost=5000), seen(account=MINE), "working", "Being worked on; about 1 s left."),
    (WORKED_ON, seen(busy(4 * 10**7, 10**5 + 1), account=MINE), "working", "Being worked on; about 3 h left."),
    (WORKED_ON, seen(absent("m")), "no_worker", NO_MODEL),
    (WORKED_ON, seen(absent("m", None)), "no_worker", "No worker serves this model."),
    (task(), seen(dataclasses.replace(absent("m"), loading=(LOADING,))), "model_loading", LOADS),
    (DYING, seen(), "workers_died", DIED),
    (task(UNDER_WAY, deaths=3, died_ms=NOW_MS), seen(), "workers_died", DIED.replace(";", " 3 times;")),
    (DYING, seen(Queue("m", loading=(LOADING,))), "workers_died", DIED),  # between two deaths it loads
    (DYING, seen(absent("m")), "no_worker", NO_MODEL),
    (LONG_AGO, seen(), "in_line", IN_LINE),
    (batch(), seen(absent(DOCUMENTS)), "no_documents_worker", f"No documents worker runs {SINCE}"),
    (batch(Stage.PARSE, State.QUEUED), seen(), "in_line", "Waits for its turn."),
    (batch(Stage.PARSE, State.QUEUED, DYING), seen(), "workers_died", DIED),
    (batch(wait=away("storage")), seen(), "storage_unavailable", STORAGE),
    (batch(Stage.EMBED, State.QUEUED), seen(), "in_line", IN_LINE),
    (batch(Stage.EMBED, State.IN_PROGRESS), seen(stuck(SERVED)), "storage_unavailable", STORAGE),
    (batch(Stage.PARSE, State.QUEUED), seen(stuck(DOCUMENTS_SERVED, "disk_full")), "disk_full", DISK),
    (batch(Stage.EMBED, State.IN_PROGRESS), seen(absent("m"), absent(DOCUMENTS)), "no_worker", NO_MODEL),
    (batch(Stage.LOAD), seen(absent("m")), "working", "Being worked on."),
    (task(), seen(stuck(SERVED)), "in_line", IN_LINE),
    (ingestion(EMBEDS, PARSES), seen(stuck(SERVED)), "storage_unavailable", STORAGE),
    (ingestion(status=QUEUED), seen(absent(DOCUMENTS, None)), "no_documents_worker", "No documents worker runs."),
    (ingestion(status=QUEUED, waits=away("model")), seen(absent("m")), "no_worker", NO_MODEL),
    (ingestion(status=QUEUED, waits=away("model")), seen(), "model_not_ready", MODEL_FILES),
    (ingestion(waits=away("storage")), seen(), "storage_unavailable", STORAGE),
    (ingestion(waits=away("sink")), seen(), "sink_unavailable", f"The sink does not answer {SINCE}"),
    (ingestion(waits=away("sink", REFUSES)), seen(), "sink_unavailable", f"{REFUSES[:45]} {SINCE}"),
    (ingestion(EMBEDS), seen(absent("m")), "no_worker", NO_MODEL),
    (ingestion(EMBEDS, PARSES), seen(), "working", "Being worked on."),
    (ingestion(EMBEDS), seen(), "in_line", IN_LINE),
    (ingestion(head_task=True), seen(), "in_line", "Waits for its turn."),
]


@pytest.mark.parametrize(("record", "known", "code", "message"), WAITING)
def test_what_it_waits_for(record: Record, known: Seen, code: str, message: str) -> None:
    waiting = answer(record, known)
    assert (waiting.code, waiting.message) == (code, message)


def test_numbers_come_with_the_sentence_and_nothing_that_the_caller_has_sent_or_that_has_ended() -> None:
    assert answer(task(), seen(BUSY, account=MINE)).model_dump(exclude={"message", "code"}) == {
        "seconds": 720, "since": None, "next_try": None,
    }  # fmt: skip
    assert answer(task(), seen(absent("m"))).since == (NOW_MS - HOUR_MS) // 1000
    assert "script" not in str(answer(task(), seen()))
    for record in (task(State.COMPLETED), batch(status=JobStatus.FAILED), ingestion(status=JobStatus.CANCELLED)):
        assert waiting_of(record, seen()) is None


def test_whatever_a_stage_finds_away_has_a_reason() -> None:
    kinds: list[type[Unavailable]] = [Unavailable]
    for kind in kinds:  # and those below it
        kinds += kind.__subclasses__()
        what = what_is_away(kind("No."))
        assert what in {"model", "sink", "storage", "disk_full", "worker"}
        code = answer(ingestion(PARSES, waits=away(what)), seen()).code
        assert code in {"model_not_ready", "sink_unavailable", "storage_unavailable", "disk_full", "workers_died"}
