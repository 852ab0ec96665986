"""Why an open task, batch or ingestion has not ended: a code, numbers, and one sentence, which is made here alone.

A batch or an ingestion waits for one of its ledger tasks, for something that is away, or for a documents worker.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from api.schemas.answer_parts import unix_seconds
from api.served_models import ServedModels
from tasks.errors import DiskFull
from tasks.ledger import DOCUMENTS, AsyncLedger, State, Task
from tasks.ledger.standing import QueueStanding, Standings, TaskStanding, read_standings
from tasks.records.batches import Batch, BatchStatus, Stage
from tasks.records.ingestions import Ingestion, IngestionStatus, PageStage

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
MOVING: frozenset[Code] = frozenset(("in_line", "working"))
"""With these, time alone brings the end."""


class Waiting(BaseModel):
    """Why something that is open has not ended yet. All times and numbers are estimates but `since`."""

    code: Code
    message: str = Field(
        examples=["Waits for its turn in the bulk lane; about 12 min of work before it; 2 workers at 160 texts/s."],
        description="The same in one sentence, without any text of the caller's.",
    )
    seconds: int | None = Field(description="in_line: of work that is served before its end; working: until its end.")
    workers: int | None = Field(description="That serve it now.")
    rate: float | None = Field(description="Texts per second of all of them.")
    since: int | None = Field(description="Unix seconds; null where that is unknown.")
    next_try_in: int | None = Field(description="Seconds.")


WAITING = Field(description="Why it has not ended yet; null where it has, and where the answer does not look.")


@dataclass(frozen=True, slots=True)
class _Reason:
    code: Code
    standing: TaskStanding | None = None
    queue: QueueStanding | None = None
    since_ms: int | None = None
    next_try_in_s: int | None = None
    seconds: float | None = None
    now_ms: int = 0

    def told(self) -> Waiting:
        """As it is answered."""
        queue = self.queue
        rate = self.standing.items_per_s if self.standing and queue and queue.name != DOCUMENTS else None
        return Waiting(
            code=self.code,
            message=_sentence(self, rate),
            seconds=None if self.seconds is None else round(self.seconds),
            workers=queue.workers if queue else None,
            rate=None if rate is None else round(rate, 1),
            since=unix_seconds(self.since_ms),
            next_try_in=self.next_try_in_s,
        )


async def why_waiting(ledger: AsyncLedger, served: ServedModels, records: Sequence[Record]) -> list[Waiting | None]:
    """The field `waiting` of each, in one call of the ledger for all; None of those that have ended.

    Raises:
        RedisUnavailable: no answer.
    """
    standings = await standings_of(ledger, served, records)
    return [waiting_of(record, standings) for record in records]


async def standings_of(ledger: AsyncLedger, served: ServedModels, records: Sequence[Record]) -> Standings:
    """Of all that these wait for; empty, without a call, where all have ended. Raises like `why_waiting`.

    What workers say of the storage is what this process has last seen of them, about a second old.
    """
    waiting = [record for record in records if not has_ended(record)]
    queues = dict.fromkeys(queue for record in waiting for queue in _queues(record))
    task_ids = dict.fromkeys(task_id for record in waiting for task_id in _task_ids(record))
    if not waiting:
        return Standings()
    standings = await ledger.run(read_standings([*queues], [*task_ids]))
    return replace(standings, queues={name: _with_outage(queue, served) for name, queue in standings.queues.items()})


def _with_outage(queue: QueueStanding, served: ServedModels) -> QueueStanding:
    overview = served.documents if queue.name == DOCUMENTS else served.overviews.get(queue.name)
    outage = overview.storage_outage if overview else None
    return queue if outage is None else replace(queue, outage=(outage[0], round(outage[1] * 1000), outage[2]))


def waiting_of(record: Record, standings: Standings) -> Waiting | None:
    """The field `waiting` of one. `standings`: of its queues and of what it waits for; None where it has ended."""
    if has_ended(record):
        return None
    if isinstance(record, Task):
        of = _of_stored if record.queue == DOCUMENTS else _of_task  # texts come with the task
        reason = of(standings, standings.queue(record.queue), [record.id])
    else:
        reason = _of_batch(record, standings) if isinstance(record, Batch) else _of_ingestion(record, standings)
    return replace(reason, now_ms=standings.now_ms).told()


# What has to be known of each.


def has_ended(record: Record) -> bool:
    """Whether nothing more happens to it by itself."""
    return (record.state if isinstance(record, Task) else record.status).terminal


def _queues(record: Record) -> Iterable[str]:
    if isinstance(record, Task):
        return (record.queue,)
    return (DOCUMENTS, record.model) if record.model else (DOCUMENTS,)


def _task_ids(record: Record) -> Iterable[str]:
    if isinstance(record, Task):
        return (record.id,)
    if isinstance(record, Batch):
        return (record.task_id(stage) for stage in record.stages)
    return (*_embeddings(record), *_document_jobs(record))


def _embeddings(ingestion: Ingestion) -> list[str]:
    pages = (page for page in ingestion.pages.values() if page.stage is PageStage.EMBED and _is_open(page.state))
    return [ingestion.task_id("embed", page.number) for page in pages]


def _document_jobs(ingestion: Ingestion) -> list[str]:
    pages = (page for page in ingestion.pages.values() if page.stage is PageStage.PARSE and _is_open(page.state))
    jobs = [ingestion.task_id("parse", page.number) for page in pages]
    for name, state, number in (
        ("list", ingestion.list_state, ingestion.list_number),
        ("load", ingestion.load_state, ingestion.load_number - 1),
        ("finish", ingestion.finish_state, ingestion.list_number),
    ):
        if _is_open(state):
            jobs.append(ingestion.task_id(name, number))
    return jobs


def _is_open(state: State | None) -> bool:
    return state is not None and not state.terminal


# The reason.

_DEATH_MATTERS_MS = 60_000
"""So long after the last one: what killed its worker is tried again within seconds, and what does not is done."""


def _of_task(standings: Standings, queue: QueueStanding, task_ids: Sequence[str]) -> _Reason:
    """That of whoever waits for these tasks of one queue: of the one that is worked on, else of the next one."""
    if not queue.workers:
        code: Code = "no_documents_worker" if queue.name == DOCUMENTS else "no_worker"
        return _Reason(code, queue=queue, since_ms=queue.absent_ms)
    found = [standings.tasks[task_id] for task_id in task_ids if task_id in standings.tasks]
    first = min(found, key=lambda task: (task.state is State.QUEUED, task.cost_before), default=None)
    if first is None:  # it has ended in this moment, or its next step is due
        return _Reason("working", queue=queue)
    if first.deaths and standings.now_ms - first.died_ms < _DEATH_MATTERS_MS:
        return _Reason("workers_died", first, queue, since_ms=first.died_ms)
    timed = queue.name != DOCUMENTS  # nobody knows how long a job takes
    if first.state is State.QUEUED:
        return _Reason("in_line", first, queue, seconds=first.seconds_before if timed else None)
    return _Reason("working", first, queue, seconds=first.seconds_left if timed else None)


def _of_batch(batch: Batch, standings: Standings) -> _Reason:
    documents = standings.queue(DOCUMENTS)
    embed = batch.stages.get(Stage.EMBED)
    if _is_open(embed) and batch.model:
        return _of_stored(standings, standings.queue(batch.model), [batch.task_id(Stage.EMBED)])
    if batch.now_ms < batch.again_ms:
        return _Reason("workers_died", next_try_in_s=-(-(batch.again_ms - batch.now_ms) // 1000))
    checked = batch.stages.get(Stage.VALIDATE)
    if documents.workers and batch.status is BatchStatus.VALIDATING and checked is State.COMPLETED and embed is None:
        return _Reason("no_room")
    return _of_stored(standings, documents, [batch.task_id(Stage.VALIDATE), batch.task_id(Stage.ASSEMBLE)])


def _of_stored(standings: Standings, queue: QueueStanding, task_ids: Sequence[str]) -> _Reason:
    """As `_of_task`, of what is read from the storage and written to it."""
    if queue.workers and queue.outage:
        code, since_ms, _ = queue.outage
        return _Reason("disk_full" if code == DiskFull.code else "storage_unavailable", queue=queue, since_ms=since_ms)
    return _of_task(standings, queue, task_ids)


_AWAY: dict[str, Code] = {
    "sink": "sink_unavailable",
    "storage": "storage_unavailable",
    "disk_full": "disk_full",
    "worker": "workers_died",
}
"""`Setback.what` -> code."""


def _of_ingestion(ingestion: Ingestion, standings: Standings) -> _Reason:
    documents, model = standings.queue(DOCUMENTS), standings.queue(ingestion.model)
    if not documents.workers:
        return _Reason("no_documents_worker", queue=documents, since_ms=documents.absent_ms)
    if ingestion.waiting_for == "model":
        return _Reason("model_not_ready" if model.workers else "no_worker", queue=model, since_ms=model.absent_ms)
    setback = next((one for one in ingestion.setbacks.values() if one.what in _AWAY), None)
    if setback is not None:
        wait_ms = max(0, setback.until_ms - ingestion.now_ms)
        code, seconds = _AWAY[setback.what], -(-wait_ms // 1000)
        return _Reason(code, queue=documents, next_try_in_s=seconds, since_ms=setback.since_ms)
    embeddings, jobs = _embeddings(ingestion), _document_jobs(ingestion)
    reasons = [
        *([_of_stored(standings, model, embeddings)] if embeddings else []),
        *([_of_stored(standings, documents, jobs)] if jobs else []),
    ]
    if ingestion.status is IngestionStatus.QUEUED or not reasons:
        return _Reason("working", queue=documents, seconds=ingestion.eta_s)
    away = next((reason for reason in reasons if reason.code not in MOVING), None)
    working = next((reason for reason in reasons if reason.code == "working"), None)
    # The end of one page says nothing about the end of the whole.
    return away or (replace(working, seconds=ingestion.eta_s) if working else reasons[0])


# The sentence.


def _sentence(reason: _Reason, rate: float | None) -> str:
    if reason.code == "in_line":
        return "; ".join((_lane(reason), *_ahead(reason), _served(reason.queue, rate))) + "."
    if reason.code == "working":
        left = "" if reason.seconds is None else f"; about {_duration(reason.seconds)} left"
        return f"Being worked on{left}; {_served(reason.queue, rate)}."
    since = _since(reason)
    again = "" if reason.next_try_in_s is None else f"; next try in {_duration(reason.next_try_in_s)}"
    return {
        "no_worker": f"No worker serves this model{since}.",
        "no_documents_worker": f"No documents worker runs{since}.",
        "model_not_ready": "The files of the model are not in the storage; a worker that starts puts them there.",
        "no_room": "Its lines are checked; they wait for room in the queue.",
        "sink_unavailable": f"The sink does not answer{since}{again}.",
        "storage_unavailable": _storage_says(reason) or f"The server's storage does not answer{since}{again}.",
        "disk_full": f"The server's storage is full{since}{again}.",
        "workers_died": f"{_died(reason)}{again}.",
    }[reason.code]


def _storage_says(reason: _Reason) -> str:
    return reason.queue.outage[2] if reason.queue and reason.queue.outage else ""


def _died(reason: _Reason) -> str:
    if reason.standing is None:
        return "The workers of its last try died"
    deaths = reason.standing.deaths
    return f"Its worker died{'' if deaths == 1 else f' {deaths} times'}; it is tried again"


def _lane(reason: _Reason) -> str:
    line = reason.standing
    if line is None:
        return "Waits for its turn"
    lane = "documents queue" if reason.queue and reason.queue.name == DOCUMENTS else f"{line.lane} lane"
    return f"Waits for its turn in the {lane}"


def _ahead(reason: _Reason) -> tuple[str, ...]:
    if reason.seconds is None:
        return ()
    return (f"{f'about {_duration(reason.seconds)}' if reason.seconds >= 1 else 'less than 1 s'} of work before it",)


def _served(queue: QueueStanding | None, rate: float | None) -> str:
    workers = queue.workers if queue else 0
    kind = "documents worker" if queue and queue.name == DOCUMENTS else "worker"
    speed = "" if rate is None else f" at {rate:,.0f} texts/s" if rate >= 1 else f" at {rate:.2g} texts/s"
    return f"{workers:,} {kind}{'' if workers == 1 else 's'}{speed}"


def _since(reason: _Reason) -> str:
    if reason.since_ms is None:
        return ""
    since, now = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (reason.since_ms, reason.now_ms))
    return f" since {since:%H:%M} UTC" if since.date() == now.date() else f" since {since:%Y-%m-%d %H:%M} UTC"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{max(1, round(seconds))} s"
