"""Why an open task, batch or ingestion has not ended: a code and one sentence, which is made here alone.

A batch or an ingestion waits for one of its ledger tasks, for something that is away, or for a documents worker.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from api.schemas.answer_parts import unix_seconds
from api.served_models import ServedModels, cost_before
from tasks.errors import DiskFull
from tasks.ledger.client import AsyncLedger
from tasks.ledger.overview import Account, Queue, read_account
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import State, Task
from tasks.records.batches import Batch
from tasks.records.ingestions import Ingestion
from tasks.records.jobs import Stage

Record: TypeAlias = Task | Batch | Ingestion

Code: TypeAlias = Literal[
    "in_line",
    "working",
    "no_worker",
    "model_loading",
    "no_documents_worker",
    "model_not_ready",
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
    "model_loading": "A worker loads the model{since}.",
    "no_documents_worker": "No documents worker runs{since}.",
    "model_not_ready": "The files of the model are not in the storage; a worker that starts puts them there.",
    "sink_unavailable": "The sink does not answer{since}.",
    "storage_unavailable": "The server's storage does not answer{since}.",
    "disk_full": "The server's storage is full{since}.",
    "workers_died": "Its worker died or failed{often}; it is tried again.",
}
_AWAY: dict[str, Code] = {
    "sink": "sink_unavailable",
    "storage": "storage_unavailable",
    "disk_full": "disk_full",
    "worker": "workers_died",
}
"""`Wait.what` -> code."""
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
    next_try: int | None = Field(None, description="Unix seconds at which what is away is tried again, where known.")


WAITING = Field(description="Why it has not ended yet; null where it has, and where the answer does not look.")


@dataclass(frozen=True, slots=True)
class Seen:
    """What reasons are made of: queues as they were seen last, open tasks by id, and the account of their owner."""

    served: ServedModels
    tasks: Mapping[str, Task]
    account: Account
    now_ms: float


async def why_waiting(
    ledger: AsyncLedger, served: ServedModels, records: Sequence[Record], account: Account | None = None
) -> list[Waiting | None]:
    """The field `waiting` of each record of one owner; None of those that have ended.

    What is known of queues and workers is what this process has last seen, about a second old. `account`: of the owner,
    if it was just read.

    Raises:
        RedisUnavailable: no answer.
    """
    still_open = [record for record in records if not _has_ended(record)]
    if not still_open:
        return [None] * len(records)
    tasks = {record.id: record for record in still_open if isinstance(record, Task)}
    for record in still_open:
        tasks |= {} if isinstance(record, Task) else record.tasks
    if account is None:
        account = await ledger.run(read_account(still_open[0].owner))
    seen = Seen(served, tasks, account, time.time() * 1000)
    return [waiting_of(record, seen) for record in records]


def waiting_of(record: Record, seen: Seen) -> Waiting | None:
    """The field `waiting` of one record; None where it has ended."""
    if _has_ended(record):
        return None
    if isinstance(record, Task):
        of = _of_stored if record.queue == DOCUMENTS else _of_tasks  # texts come with the task
        return of(seen, seen.served.queue(record.queue), [record.id])
    return _of_job(record, seen)


def _has_ended(record: Record) -> bool:
    return (record.state if isinstance(record, Task) else record.status).terminal


def _awaited(record: Record) -> Iterator[tuple[str, list[str]]]:
    """The queues that it needs, and the open tasks that it waits for in each."""
    if isinstance(record, Task):
        yield record.queue, [record.id]
        return
    open_ids = [task_id for task_id in record.task_ids() if _is_open(record, task_id)]
    embeddings = [task_id for task_id in open_ids if task_id.endswith(f"-{Stage.EMBED}")]
    yield DOCUMENTS, [task_id for task_id in open_ids if task_id not in embeddings]
    if record.model:
        yield record.model, embeddings


def _is_open(record: Batch | Ingestion, task_id: str) -> bool:
    task = record.tasks.get(task_id)
    return task is not None and not task.state.terminal


def _of_tasks(seen: Seen, queue: Queue, task_ids: Sequence[str]) -> Waiting:
    """That of whoever waits for these tasks of one queue: of the one that is worked on, else of the next one."""
    found = [seen.tasks[task_id] for task_id in task_ids if task_id in seen.tasks]
    before = {task.id: cost_before(task, queue, seen.account) for task in found}
    first = min(found, key=lambda task: (task.state is State.QUEUED, before[task.id]), default=None)
    # Whose worker dies while it works, again and again, hears of that and not of each load between two deaths.
    alive = queue.workers or queue.loading
    if alive and first and first.died_ms is not None and abs(seen.now_ms - first.died_ms) < _DEATH_MATTERS_MS:
        often = "" if first.deaths == 1 else f" {first.deaths} times"
        return _why("workers_died", since_ms=first.died_ms, often=often)
    if not queue.workers:
        return _no_worker(queue)
    if first is None:  # it has ended in this moment, or its next step is due
        return _why("working")
    code: Code = "in_line" if first.state is State.QUEUED else "working"
    if queue.name == DOCUMENTS:  # nobody knows how long a job takes
        return _why(code)
    cost = before[first.id] + (first.cost if code == "working" else 0)
    return _why(code, seconds=cost / queue.rate if queue.rate else None, where=f" in the {first.lane} lane")


def _no_worker(queue: Queue) -> Waiting:
    why = f"No worker gets work: {queue.refused}." if queue.refused else ""
    if queue.name == DOCUMENTS:
        return _why("no_documents_worker", since_ms=queue.absent_ms, message=why)
    if queue.loading:
        return _why("model_loading", since_ms=round(1000 * min(one.since for one in queue.loading)))
    return _why("no_worker", since_ms=queue.absent_ms, message=why)


def _of_stored(seen: Seen, queue: Queue, task_ids: Sequence[str]) -> Waiting:
    """As `_of_tasks`, of what is read from the storage and written to it."""
    if queue.storage_outage:
        away, since_s, message = queue.storage_outage
        code: Code = "disk_full" if away == DiskFull.code else "storage_unavailable"
        return _why(code, since_ms=round(since_s * 1000), message=message)
    return _of_tasks(seen, queue, task_ids)


def _of_job(job: Batch | Ingestion, seen: Seen) -> Waiting:
    documents, model, wait = seen.served.documents, seen.served.queue(job.model), job.record.wait
    if not documents.workers and isinstance(job, Ingestion):
        return _no_worker(documents)
    if wait is not None and wait.what == "model":
        return _why("model_not_ready") if model.workers else _no_worker(model)
    if wait is not None and wait.what in _AWAY:
        told = documents.storage_outage if wait.what in {"storage", "disk_full"} else None
        why = _why(_AWAY[wait.what], since_ms=wait.since_ms, message=told[2] if told else "", detail=wait.why)
        return why.model_copy(update={"next_try": unix_seconds(wait.until_ms)})
    why = _of_parts(job, seen)
    # The end of one page says nothing about the end of the whole.
    whole = isinstance(job, Ingestion) and why.code == "working"
    return _why("working", seconds=job.eta_s) if whole else why  # type: ignore[union-attr]


def _of_parts(record: Batch | Ingestion, seen: Seen) -> Waiting:
    """What is away keeps it more than what is worked on, and that tells more than what is in line."""
    awaited = [(name, ids) for name, ids in _awaited(record) if ids] or [(DOCUMENTS, [])]
    reasons = [_of_stored(seen, seen.served.queue(name), ids) for name, ids in awaited]
    return min(reasons, key=lambda why: {"working": 1, "in_line": 2}.get(why.code, 0))


def _why(
    code: Code,
    *,
    seconds: float | None = None,
    since_ms: int | None = None,
    where: str = "",
    often: str = "",
    message: str = "",
    detail: str = "",
) -> Waiting:
    work = "" if seconds is None else f"; {_duration(seconds)}"
    since = "" if since_ms is None else f" since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    if detail:  # its first sentence, which names what is away and says why
        message = f"{detail.partition('. ')[0].rstrip('.')}{since}."
    told = {"of_work": work and f"{work} of work before it", "left": work and f"{work} left"}
    return Waiting(
        code=code,
        message=message or _SENTENCES[code].format(where=where, since=since, often=often, **told),
        seconds=None if seconds is None else round(seconds),
        since=unix_seconds(since_ms),
    )


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"about {round(seconds / size)} {unit}"
    return f"about {round(seconds)} s" if seconds >= 1 else "less than 1 s"
