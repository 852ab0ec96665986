"""Jobs: what a caller has begun, of whatever kind, in one list and as one stream."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias
from uuid import UUID

import orjson
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import TEXT, Answer, query
from api.answer.json_response import NO_STORE, ListOf, Reason, json_response, list_json, unix_seconds
from api.answer.task_json import task_error
from api.answer.why_waiting import MOVING, WAITING, Record, Waiting, standings_of, waiting_json
from api.families.route import CALLER, READING, Family, page_after, page_limit
from api.parts import Services
from api.request.ownership import TASKS
from api.request.paging import MAX_LIMIT, ListPage, read_limit, read_page
from api.waiting.events import EventStream
from api.waiting.live import Feed
from tasks import errors
from tasks.errors import InvalidValue
from tasks.ledger import AsyncLedger, State, Task, operations
from tasks.ledger.standing import Standings
from tasks.records.batches import Batch, BatchStatus, Stage, is_batch_id, list_batches, read_batches_later
from tasks.records.ingestion_operations import list_ingestions, read_ingestions
from tasks.records.ingestions import Ingestion, IngestionStatus, is_ingestion_id


class JobKind(StrEnum):
    """What a job is."""

    TASK = "task"
    BATCH = "batch"
    INGESTION = "ingestion"


STATES: Mapping[JobKind, Sequence[str]] = {
    JobKind.TASK: [*State],
    JobKind.BATCH: [*BatchStatus],
    JobKind.INGESTION: [*IngestionStatus],
}
_NAMES = ("name", "filename", "title")
"""Keys of metadata that name a job for people."""

# A place in the list of all kinds: the hexadecimal digits of an id, which is a UUIDv7 whatever its form.


def place_of(job_id: str) -> str:
    """Ids of all kinds sort by this, as they do by time."""
    return job_id.partition("_")[2].replace("-", "")


def id_at(kind: JobKind, place: str) -> str:
    """The id of this kind at a place, whether or not there is one."""
    if kind is JobKind.TASK:
        return f"task_{UUID(place)}"
    return f"{'batch' if kind is JobKind.BATCH else 'ing'}_{place}"


_NEWEST = "ffffffffffff7fffbfffffffffffffff"
"""Above every place that an id has."""


def is_job_id(text: str) -> bool:
    """Whether it has the form of an id of any kind."""
    return TASKS.is_id(text) or is_batch_id(text) or is_ingestion_id(text)


# Reading some of the newest.


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs are asked for: of some kinds in some states; () for all."""

    kinds: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()

    @classmethod
    def from_query(cls, request: Request) -> "JobQuery":
        """Raises `InvalidValue`."""
        states = {*chain.from_iterable(STATES.values())}
        return cls(_words(request, "kind", {*JobKind}), _words(request, "status", states))

    def wanted(self) -> dict[JobKind, list[str]]:
        """The kinds that may have some, and the states that each may be in."""
        kinds = [kind for kind in JobKind if not self.kinds or kind in self.kinds]
        states = {kind: [name for name in STATES[kind] if not self.states or name in self.states] for kind in kinds}
        return {kind: names for kind, names in states.items() if names}


def _words(request: Request, name: str, known: set[str]) -> frozenset[str]:
    given = request.query_params.getlist(name)
    words = frozenset(word.strip() for part in given for word in part.split(",") if word.strip())
    if words - known:
        raise InvalidValue(f"{name} must be some of {', '.join(sorted(known))}.", param=name)
    return words


_LIST_TIMEOUT_S = 5.0
_MAX_CALLS = 20
"""For one page and kind. Where few jobs are in the states asked for, a page is shorter than that."""


class JobReader:
    """The jobs of one owner. `max_calls`: for one page and kind. `look`: tasks that one call looks at."""

    def __init__(
        self,
        ledger: AsyncLedger,
        owner: str,
        asked: JobQuery,
        max_calls: int = _MAX_CALLS,
        look: int = operations.LOOK,
    ) -> None:
        self._ledger = ledger
        self._look = look
        self._owner = owner
        self._wanted = asked.wanted()
        self._max_calls = max_calls

    async def page(self, after: str | None, limit: int) -> ListPage[Record]:
        """Jobs older than the place `after`, the newest first; `until` is a place.

        Raises:
            RedisUnavailable: no answer.
        """
        pages = await self._pages(after, limit)
        # Behind the newest place up to which one kind was looked through there may be more of that kind.
        unseen = [_until(page, after) for page in pages if page.more]
        frontier = max(unseen, default="")
        found = _newest(page.items for page in pages)
        sure = [record for record in found if place_of(record.id) >= frontier]
        if len(sure) > limit:
            return ListPage(sure[:limit], None, True)
        return ListPage(sure, frontier or None, bool(unseen))

    async def newest(self, limit: int) -> Sequence[Record]:
        """The newest of each kind that were found, `limit` at most. Raises like `page`."""
        return _newest(page.items for page in await self._pages(None, limit))[:limit]

    async def _pages(self, after: str | None, limit: int) -> list[ListPage[Record]]:
        readers: dict[JobKind, Callable[..., Awaitable[ListPage[Record]]]] = {
            JobKind.TASK: self._tasks,
            JobKind.BATCH: self._batches,
            JobKind.INGESTION: self._ingestions,
        }
        return await asyncio.gather(
            *(
                read_page(
                    partial(readers[kind], states),
                    after=id_at(kind, after) if after else None,
                    limit=limit,
                    max_calls=self._max_calls,
                )
                for kind, states in self._wanted.items()
            )
        )

    async def _tasks(self, names: Sequence[str], behind: str | None, most: int) -> ListPage[Record]:
        states = [] if len(names) == len(State) else [State(name) for name in names]
        part = await self._ledger.run(
            operations.list_tasks(self._owner, limit=most, after=behind or "", states=states, look=self._look)
        )
        return ListPage(part.tasks, part.until, part.more)

    async def _batches(self, names: Sequence[str], behind: str | None, most: int) -> ListPage[Record]:
        ids, more = await self._ledger.run(list_batches(self._owner, after=behind, limit=most))
        later = await self._ledger.run(read_batches_later(ids), timeout_s=_LIST_TIMEOUT_S) if ids else list[Batch]
        found = await asyncio.to_thread(later) if ids else []
        return ListPage([batch for batch in found if batch.status in names], ids[-1] if ids else None, more)

    async def _ingestions(self, names: Sequence[str], behind: str | None, most: int) -> ListPage[Record]:
        ids, more = await self._ledger.run(list_ingestions(self._owner, after=behind, limit=most))
        found = await self._ledger.run(read_ingestions(ids), timeout_s=_LIST_TIMEOUT_S) if ids else []
        return ListPage([one for one in found if one.status in names], ids[-1] if ids else None, more)


def _until(page: ListPage[Record], after: str | None) -> str:
    """The place up to which all is known."""
    last = page.until or (page.items[-1].id if page.items else None)
    return place_of(last) if last else after or _NEWEST


def _newest(pages: Any) -> list[Record]:
    return sorted(chain.from_iterable(pages), key=lambda record: place_of(record.id), reverse=True)


# A job as JSON.


class Job(BaseModel):
    """A task, a batch or an ingestion. Times are Unix seconds."""

    object: Literal["job"]
    kind: Literal["task", "batch", "ingestion"]
    id: str = Field(description="Of the task, the batch or the ingestion.")
    status: str = Field(description="As its kind names it.")
    lane: Literal["online", "bulk"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    model: str | None = Field(description="Null for a batch whose lines have not been read.")
    total: int = Field(description="Texts, requests or documents.")
    completed: int
    failed: int
    rate: float | None = Field(description="Of these per second; of the whole once it has ended.")
    eta_seconds: int | None = Field(
        description="Until its end; null while that is unknown, or something it needs is away."
    )
    owner: str
    name: str | None = Field(description="`name`, `filename` or `title` of its metadata; else its dataset, if named.")
    error: Reason | None
    waiting: Waiting | None = WAITING


class JobList(ListOf[Job]):
    """A page of jobs, the newest first."""

    last_id: str | None = Field(description="Value of `after` for the next page.")


def job_json(record: Record, standings: Standings, owner: str) -> dict[str, Any]:
    """A row. `standings`: of what it waits for. `owner`: the name of its key."""
    if isinstance(record, Task):
        own = _task_fields(record, standings)
    else:
        own = _batch_fields(record, standings) if isinstance(record, Batch) else _ingestion_fields(record)
    rate, eta_s, waiting = own.pop("rate"), own.pop("eta_s"), waiting_json(record, standings)
    moves = waiting is not None and waiting["code"] in MOVING
    return {
        "object": "job",
        "id": record.id,
        "created_at": unix_seconds(record.created_ms),
        **own,
        "rate": None if rate is None else round(rate, 2),
        "eta_seconds": round(eta_s) if moves and eta_s is not None else None,
        "owner": owner,
        "waiting": waiting,
    }


def _task_fields(task: Task, standings: Standings) -> dict[str, Any]:
    error, standing = task_error(task), standings.tasks.get(task.id)
    return {
        "kind": "task",
        "status": task.state.value,
        "lane": task.lane.value,
        "started_at": unix_seconds(task.started_ms),
        "finished_at": unix_seconds(task.finished_ms),
        "model": task.queue,
        "total": task.total,
        "completed": task.completed,
        "failed": task.failed,
        "rate": _rate(task.completed + task.failed, task.started_ms, task.finished_ms or standings.now_ms),
        "eta_s": standing.seconds_left if standing else None,
        "name": _name(task.metadata),
        "error": {"code": error.code, "message": error.message} if error else None,
    }


def _batch_fields(batch: Batch, standings: Standings) -> dict[str, Any]:
    standing = standings.tasks.get(batch.task_id(Stage.EMBED))
    started_ms = batch.times.get(BatchStatus.IN_PROGRESS)
    finished_ms = batch.times.get(batch.status) if batch.status.terminal else None
    encoded_ms = batch.times.get(BatchStatus.FINALIZING) or finished_ms or batch.now_ms
    fault = next(iter(batch.errors), None)
    return {
        "kind": "batch",
        "status": batch.status.value,
        "lane": "bulk",
        "started_at": unix_seconds(started_ms),
        "finished_at": unix_seconds(finished_ms),
        "model": batch.model,
        "total": batch.total,
        "completed": batch.completed,
        "failed": batch.failed,
        "rate": _rate(batch.completed + batch.failed, started_ms, encoded_ms),
        "eta_s": standing.seconds_left if standing else None,
        "name": _name(batch.metadata),
        "error": {"code": fault.code, "message": fault.message} if fault else None,
    }


def _ingestion_fields(ingestion: Ingestion) -> dict[str, Any]:
    counts, rate, error = ingestion.counts, ingestion.rate, ingestion.error
    started = [at for status, at in ingestion.times.items() if status is not IngestionStatus.QUEUED]
    return {
        "kind": "ingestion",
        "status": ingestion.status.value,
        "lane": "bulk",
        "started_at": unix_seconds(min(started, default=None)),
        "finished_at": unix_seconds(ingestion.finished_ms),
        "model": ingestion.model,
        "total": counts.documents,
        "completed": counts.loaded + counts.unchanged,
        "failed": counts.failed,
        "rate": rate.documents_per_s if rate else None,
        "eta_s": ingestion.eta_s,
        "name": _name(ingestion.spec.get("metadata")) or ingestion.spec["sink"].get("dataset"),
        "error": {"code": error.code, "message": error.message} if error else None,
    }


def _rate(done: int, started_ms: int | None, until_ms: int) -> float | None:
    if started_ms is None or until_ms <= started_ms:
        return None
    return done * 1000 / (until_ms - started_ms)


def _name(metadata: Mapping[str, str] | None) -> str | None:
    return next((metadata[key] for key in _NAMES if metadata.get(key)), None) if metadata else None


# The routes.

router = Family("jobs")

_FILTERS = (
    query("kind", TEXT, "Kinds to list, separated by commas; all by default.", empty_is_absent=True),
    query("status", TEXT, "States to list, separated by commas; all by default.", empty_is_absent=True),
)
_SHOWN = MAX_LIMIT
"""Jobs that a stream shows."""
_STREAM_CALLS = 4
_EVERY_S = 2.0


@router.describe(
    "GET",
    "/v1/jobs",
    Answer(200, JobList),
    scopes=READING,
    errors=(*CALLER, errors.RequestError),
    reads=(*_FILTERS, page_after("Id of the job behind which the page begins."), page_limit("Jobs per page.")),
    slash=True,
)
async def list_jobs(request: Request) -> Response:
    """Lists the caller's tasks, batches and ingestions together, newest first."""
    services = Services.from_request(request)
    owner = services.owner(request)
    asked, limit, after = JobQuery.from_query(request), read_limit(request.query_params), _after(request)
    page = await JobReader(services.ledger, owner, asked).page(after, limit)
    standings = await standings_of(services.ledger, services.registry, page.items)
    rows = [job_json(record, standings, services.caller(request).name) for record in page.items]
    until = id_at(JobKind.TASK, page.until) if page.until else None
    return json_response(list_json(rows, more=page.more, until=until), NO_STORE)


@router.describe(
    "GET",
    "/v1/jobs/events",
    Answer(200, description="Server-sent events.", media_types=(EventStream.media_type,)),
    scopes=READING,
    errors=(*CALLER, errors.RequestError),
    reads=_FILTERS,
)
async def follow_jobs(request: Request) -> Response:
    """Streams the caller's newest 100 jobs: all of them at first, then those that are new, changed or gone."""
    services = Services.from_request(request)
    owner, name = services.owner(request), services.caller(request).name
    asked = JobQuery.from_query(request)
    reader = JobReader(services.ledger, owner, asked, _STREAM_CALLS)

    async def read() -> dict[str, dict[str, Any]]:
        records = await reader.newest(_SHOWN)
        standings = await standings_of(services.ledger, services.registry, records)
        return {record.id: job_json(record, standings, name) for record in records}

    return EventStream(services.live.stream(request, ("jobs", owner, asked), Feed(read, changes, _EVERY_S)))


Rows: TypeAlias = Mapping[str, dict[str, Any]]


def changes(before: Rows | None, now: Rows) -> bytes:
    """The event that leads from one list to another; empty where they are equal and a client has been told one.

    What newer jobs have pushed out of the list is not gone.
    """
    known = before or {}
    oldest = place_of([*now][-1]) if len(now) == _SHOWN else ""
    gone = [job_id for job_id in known.keys() - now.keys() if place_of(job_id) >= oldest]
    data = [row for job_id, row in now.items() if known.get(job_id) != row]
    if before is not None and not data and not gone:
        return b""
    return b"event: jobs\ndata: %b\n\n" % orjson.dumps({"data": data, "gone": gone})


def _after(request: Request) -> str | None:
    job_id = request.query_params.get("after") or ""
    if job_id and not is_job_id(job_id):
        raise InvalidValue("after must be the id of a job, such as last_id of the page before.", param="after")
    return place_of(job_id) or None
