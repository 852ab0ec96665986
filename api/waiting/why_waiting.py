"""Why an open task, batch or ingestion has not ended: a code and one sentence, which is made here alone.

A batch or an ingestion waits for one of its ledger tasks, for something that is away, or for a documents worker.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from api.schemas.answer_parts import unix_seconds
from api.served_models import ServedModels
from tasks.errors import DiskFull
from tasks.ledger import DOCUMENTS, AsyncLedger, State, Task
from tasks.ledger.standing import QueueStanding, Standings, read_standings
from tasks.records.batches import Batch, BatchStatus, Stage
from tasks.records.ingestions import Ingestion, PageStage

Record: TypeAlias = Task | Batch | Ingestion

Code: TypeAlias = Literal[
    "in_line",
    "working",
    "no_worker",
    "no_documents_worker",
    "model_not_ready",
    "no_room",
    "sink_unavailable",
    "storage_unavailable",
    "disk_full",
    "workers_died",
]
"""Each has a row in `docs/http.md`, with what to do."""

_SENTENCES: dict[Code, str] = {
    "in_line": "Waits for its turn{where}{of_work}.",
    "working": "Being worked on{left}.",
    "no_worker": "No worker serves this model{since}.",
    "no_documents_worker": "No documents worker runs{since}.",
    "model_not_ready": "The files of the model are not in the storage; a worker that starts puts them there.",
    "no_room": "Its lines are checked; they wait for room in the queue.",
    "sink_unavailable": "The sink does not answer{since}.",
    "storage_unavailable": "The server's storage does not answer{since}.",
    "disk_full": "The server's storage is full{since}.",
    "workers_died": "Its worker died; it is tried again.",
}
_AWAY: dict[str, Code] = {
    "sink": "sink_unavailable",
    "storage": "storage_unavailable",
    "disk_full": "disk_full",
    "worker": "workers_died",
}
"""`Setback.what` -> code."""
_DEATH_MATTERS_MS = 60_000
"""So long after the last one: what killed its worker is tried again within seconds, and what does not is done."""


class Waiting(BaseModel):
    """Why something that is open has not ended yet. Times are estimates but `since`."""

    code: Code
    message: str = Field(
        examples=["Waits for its turn in the bulk lane; about 12 min of work before it."],
        description="The same in one sentence, without any text of the caller's.",
    )
    seconds: int | None = Field(description="in_line: of work that is served before its end; working: until its end.")
    since: int | None = Field(description="Unix seconds; null where that is unknown.")


WAITING = Field(description="Why it has not ended yet; null where it has, and where the answer does not look.")


async def why_waiting(ledger: AsyncLedger, served: ServedModels, records: Sequence[Record]) -> list[Waiting | None]:
    """The field `waiting` of each, in one call of the ledger for all; None of those that have ended.

    What workers say of the storage is what this process has last seen of them, about a second old.

    Raises:
        RedisUnavailable: no answer.
    """
    awaited = [pair for record in records if not _has_ended(record) for pair in _awaited(record)]
    if not awaited:
        return [None] * len(records)
    names = dict.fromkeys(name for name, _ in awaited)
    seen = await ledger.run(read_standings([*names], [task_id for _, ids in awaited for task_id in ids]))
    seen = replace(seen, queues={name: _with_outage(queue, served) for name, queue in seen.queues.items()})
    return [waiting_of(record, seen) for record in records]


def waiting_of(record: Record, standings: Standings) -> Waiting | None:
    """The field `waiting` of one. `standings`: of its queues and of what it waits for; None where it has ended."""
    if _has_ended(record):
        return None
    if isinstance(record, Task):
        of = _of_stored if record.queue == DOCUMENTS else _of_tasks  # texts come with the task
        return of(standings, standings.queue(record.queue), [record.id])
    return _of_batch(record, standings) if isinstance(record, Batch) else _of_ingestion(record, standings)


def _with_outage(queue: QueueStanding, served: ServedModels) -> QueueStanding:
    overview = served.documents if queue.name == DOCUMENTS else served.overviews.get(queue.name)
    outage = overview.storage_outage if overview else None
    return queue if outage is None else replace(queue, outage=(outage[0], round(outage[1] * 1000), outage[2]))


def _has_ended(record: Record) -> bool:
    return (record.state if isinstance(record, Task) else record.status).terminal


def _awaited(record: Record) -> Iterator[tuple[str, list[str]]]:
    """The queues that it needs, and the open tasks that it waits for in each."""
    if isinstance(record, Task):
        yield record.queue, [record.id]
        return
    jobs, embeddings = list[str](), list[str]()
    if isinstance(record, Batch):
        for stage in record.stages:
            if _is_open(record.stages[stage]):
                (embeddings if stage is Stage.EMBED else jobs).append(record.task_id(stage))
    else:
        for page in record.pages.values():
            if _is_open(page.state):
                of_stage = embeddings if page.stage is PageStage.EMBED else jobs
                of_stage.append(record.task_id(page.stage, page.number))
        for name, state, number in (
            ("list", record.list_state, record.list_number),
            ("load", record.load_state, record.load_number - 1),
            ("finish", record.finish_state, record.list_number),
        ):
            if _is_open(state):
                jobs.append(record.task_id(name, number))
    yield DOCUMENTS, jobs
    if record.model:
        yield record.model, embeddings


def _is_open(state: State | None) -> bool:
    return state is not None and not state.terminal


def _of_tasks(standings: Standings, queue: QueueStanding, task_ids: Sequence[str]) -> Waiting:
    """That of whoever waits for these tasks of one queue: of the one that is worked on, else of the next one."""
    if not queue.workers:
        return _why("no_documents_worker" if queue.name == DOCUMENTS else "no_worker", since_ms=queue.absent_ms)
    found = [standings.tasks[task_id] for task_id in task_ids if task_id in standings.tasks]
    first = min(found, key=lambda task: (task.state is State.QUEUED, task.cost_before), default=None)
    if first is None:  # it has ended in this moment, or its next step is due
        return _why("working")
    if standings.now_ms - first.died_ms < _DEATH_MATTERS_MS:
        return _why("workers_died", since_ms=first.died_ms)
    code: Code = "in_line" if first.state is State.QUEUED else "working"
    if queue.name == DOCUMENTS:  # nobody knows how long a job takes
        return _why(code)
    seconds = first.seconds_before if code == "in_line" else first.seconds_left
    return _why(code, seconds=seconds, where=f" in the {first.lane} lane")


def _of_stored(standings: Standings, queue: QueueStanding, task_ids: Sequence[str]) -> Waiting:
    """As `_of_tasks`, of what is read from the storage and written to it."""
    if queue.workers and queue.outage:
        code, since_ms, message = queue.outage
        return _why("disk_full" if code == DiskFull.code else "storage_unavailable", since_ms=since_ms, message=message)
    return _of_tasks(standings, queue, task_ids)


def _of_batch(batch: Batch, standings: Standings) -> Waiting:
    embed, checked = batch.stages.get(Stage.EMBED), batch.stages.get(Stage.VALIDATE)
    if not _is_open(embed) and batch.now_ms < batch.again_ms:
        return _why("workers_died")
    why = _of_parts(batch, standings)
    unplaced = batch.status is BatchStatus.VALIDATING and checked is State.COMPLETED and embed is None
    return _why("no_room") if unplaced and why.code == "working" else why


def _of_ingestion(ingestion: Ingestion, standings: Standings) -> Waiting:
    documents, model = standings.queue(DOCUMENTS), standings.queue(ingestion.model)
    if not documents.workers:
        return _why("no_documents_worker", since_ms=documents.absent_ms)
    if ingestion.waiting_for == "model":
        return _why("model_not_ready" if model.workers else "no_worker", since_ms=model.absent_ms)
    setback = next((one for one in ingestion.setbacks.values() if one.what in _AWAY), None)
    if setback is not None:
        return _why(_AWAY[setback.what], since_ms=setback.since_ms)
    why = _of_parts(ingestion, standings)
    # The end of one page says nothing about the end of the whole.
    return _why("working", seconds=ingestion.eta_s) if why.code == "working" else why


def _of_parts(record: Batch | Ingestion, standings: Standings) -> Waiting:
    """What is away keeps it more than what is worked on, and that tells more than what is in line."""
    awaited = [(name, ids) for name, ids in _awaited(record) if ids] or [(DOCUMENTS, [])]
    reasons = [_of_stored(standings, standings.queue(name), ids) for name, ids in awaited]
    return min(reasons, key=lambda why: {"working": 1, "in_line": 2}.get(why.code, 0))


def _why(
    code: Code, *, seconds: float | None = None, since_ms: int | None = None, where: str = "", message: str = ""
) -> Waiting:
    work = "" if seconds is None else f"; {_duration(seconds)}"
    since = "" if since_ms is None else f" since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    told = {"of_work": work and f"{work} of work before it", "left": work and f"{work} left"}
    return Waiting(
        code=code,
        message=message or _SENTENCES[code].format(where=where, since=since, **told),
        seconds=None if seconds is None else round(seconds),
        since=unix_seconds(since_ms),
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"about {round(seconds / size)} {unit}"
    return f"about {round(seconds)} s" if seconds >= 1 else "less than 1 s"
