"""Jobs: tasks, batches and ingestions, merged by time from their three lists."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from api.paging import ListPage, read_page
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.batches import Batch
from api.schemas.ingestions import Ingestion
from api.schemas.jobs import Job
from api.schemas.tasks import Task
from api.served_models import ServedModels
from api.waiting.why_waiting import Record, Waiting, why_waiting
from tasks.errors import Invalid, NotFound
from tasks.ledger import task as ledger_task
from tasks.ledger.client import AsyncLedger
from tasks.ledger.ids import created_ms
from tasks.ledger.read import LOOK, list_tasks
from tasks.ledger.scripts import Operation
from tasks.ledger.task import State
from tasks.records import batches, ingestions
from tasks.records.api_keys import Key
from tasks.records.batches import BatchRecord, BatchStatus, is_batch_id, read_batches
from tasks.records.ingestions import IngestionRecord, IngestionStatus, is_ingestion_id, read_ingestions
from tasks.records.jobs import JobRecord, list_jobs, read_tasks_of

KINDS: Mapping[str, Sequence[str]] = {"task": [*State], "batch": [*BatchStatus], "ingestion": [*IngestionStatus]}
"""Kind -> states that it may be in."""
WITH_FAILURES = "with_failures"
"""Asked for as a state: completed, but not all of its parts."""
WAITING = "waiting"
"""Asked for as a state: open, and it waits for what does not come by itself."""
_GOES_ON = {"in_line", "working"}
"""Codes of all other reasons are for people to look at."""
_OPEN = {name.value for names in (State, BatchStatus, IngestionStatus) for name in names if not name.terminal}
_LIST_TIMEOUT_S = 5.0
_RECORDS: Mapping[str, type[JobRecord]] = {"batch": BatchRecord, "ingestion": IngestionRecord}
_READ: Mapping[str, Callable[[Sequence[str]], Operation[Any]]] = {"batch": read_batches, "ingestion": read_ingestions}
_AT_ONCE = 4
"""Records that one reply of Redis has. A batch may have a thousand errors, and until a reply is read, it counts as
memory that Redis uses: whoever only reads must not fill it."""
_MAX_CALLS = 20
"""For one page and kind. Where few jobs are in the states asked for, a page is shorter than that."""
_Fitting: TypeAlias = Callable[[Sequence[Record]], Awaitable[Sequence[Record]]]
_NEWEST = "ffffffffffff7fffbfffffffffffffff"
"""Above every place that an id has."""


class JobService:
    """The jobs of this service."""

    def __init__(self, ledger: AsyncLedger, models: ServedModels) -> None:
        self._ledger = ledger
        self._models = models

    async def list(
        self, key: Key, page: PagePlace, kinds: Sequence[str] = (), status: Sequence[str] = (), name: str = ""
    ) -> Page[Job]:
        """A page of the caller's jobs of these kinds in these states, or all, the newest first.

        `name`: only those that have it in their id, in a value of their metadata or in the name of their dataset.

        It may be shorter than asked for although there are more, and says so.

        Raises:
            Invalid, NotFound: there is no such kind or state, or the page begins behind no id of a job.
            RedisUnavailable: no answer.
        """
        wanted, states = _wanted(kinds, status)
        part = name.strip().casefold()
        fits = self._fitting(states, part) if part or {WITH_FAILURES, WAITING} & states else None
        after = _place(page.after, kinds) if page.after else None
        found = await read_jobs(self._ledger, key.owner, wanted, after, page.limit, fits=fits)
        reasons = await why_waiting(self._ledger, self._models, found.items)
        jobs = await asyncio.to_thread(lambda: [*map(shown, found.items, reasons)])  # with all errors of their lines
        return Page[Job].of(
            jobs, more=found.more, until=id_at(next(iter(wanted)), found.until) if found.until else None
        )

    def _fitting(self, states: set[str], part: str) -> _Fitting:
        async def fitting(records: Sequence[Record]) -> Sequence[Record]:
            named = [record for record in records if _is_named(record, part)]
            wait = await why_waiting(self._ledger, self._models, named) if WAITING in states else [None] * len(named)
            return [record for record, why in zip(named, wait, strict=True) if _is_in(record, why, states)]

        return fitting


def shown(record: Record, waiting: Waiting | None) -> Job:
    """A job as its own route returns it."""
    if isinstance(record, ledger_task.Task):
        return Task.of(record, waiting)
    job = (Batch if isinstance(record, batches.Batch) else Ingestion).model_validate(record)
    job.waiting = waiting
    return job


def _wanted(kinds: Sequence[str], status: Sequence[str]) -> tuple[Mapping[str, Sequence[str]], set[str]]:
    """The kinds that may have some with the states that each may be in, and the words that were asked for."""
    chosen = _words("kind", kinds, KINDS) or {*KINDS}
    names = {*chain.from_iterable(KINDS.values())}
    states = _words("status", status, [*names, WITH_FAILURES, WAITING]) or names
    looked_at = states | ({"completed"} if WITH_FAILURES in states else set()) | (_OPEN if WAITING in states else set())
    wanted = {kind: [name for name in KINDS[kind] if name in looked_at] for kind in KINDS if kind in chosen}
    return {kind: names for kind, names in wanted.items() if names}, states


def _is_named(record: Record, part: str) -> bool:
    """`part`: of a name, in lower case."""
    if isinstance(record, ledger_task.Task):
        names = record.metadata or {}
    else:
        request = record.record.request
        names = {**(request.get("metadata") or {}), "@": str(request.get("sink", {}).get("dataset") or "")}
    return any(part in text.casefold() for text in (record.id, *names.values()))


def _is_in(record: Record, wait: Waiting | None, states: set[str]) -> bool:
    if isinstance(record, ledger_task.Task):
        status, failed = record.state.value, record.failed
    else:
        status, failed = record.status.value, record.counts.failed
    with_failures = WITH_FAILURES in states and status == "completed" and failed > 0
    return status in states or with_failures or (wait is not None and wait.code not in _GOES_ON)


def _words(name: str, given: Sequence[str], known: Iterable[str]) -> set[str]:
    words, all_of_them = {word.strip() for part in given for word in part.split(",") if word.strip()}, {*known}
    if words - all_of_them:
        raise Invalid("invalid_value", f"{name} must be some of {', '.join(sorted(all_of_them))}.", param=name)
    return words


# A place in the list of all kinds: the hexadecimal digits of an id, which is a UUIDv7 whatever its form.


def place_of(job_id: str) -> str:
    """Ids of all kinds sort by this, as they do by time."""
    return job_id.partition("_")[2]


def id_at(kind: str, place: str) -> str:
    """The id of this kind at a place, whether or not there is one."""
    return f"{'ing' if kind == 'ingestion' else kind}_{place}"


def _place(after: str, kinds: Sequence[str]) -> str:
    if created_ms(after) is not None or is_batch_id(after) or is_ingestion_id(after):
        return place_of(after)
    if [*kinds] == ["batch"]:  # as OpenAI says it
        raise NotFound("batch_not_found", "No batch found with the id in `after`.", param="after")
    raise Invalid("invalid_value", "after must be an id, such as last_id of the page before.", param="after")


async def read_jobs(
    ledger: AsyncLedger,
    owner: str,
    wanted: Mapping[str, Sequence[str]],
    after: str | None,
    limit: int,
    *,
    max_calls: int = _MAX_CALLS,
    look: int = LOOK,
    fits: _Fitting | None = None,
) -> ListPage[Record]:
    """Jobs older than the place `after`, the newest first; `until` is a place.

    Args:
        ledger: holds them.
        owner: of all of them.
        wanted: kind -> states.
        after: None: the newest.
        limit: of jobs.
        max_calls: of the ledger, for each kind.
        look: tasks that one call looks at.
        fits: those of some records that are wanted; None: all.

    Raises:
        RedisUnavailable: no answer.
    """
    pages: Sequence[ListPage[Record]] = await asyncio.gather(
        *(
            read_page(
                _reader(ledger, owner, kind, states, look=look, fits=fits),
                after=id_at(kind, after) if after else None,
                limit=limit,
                max_calls=max_calls,
            )
            for kind, states in wanted.items()
        )
    )
    # Behind the newest place up to which one kind was looked through there may be more of that kind.
    frontier = max((_until(page, after) for page in pages if page.more), default="")
    found = sorted(chain.from_iterable(page.items for page in pages), key=lambda one: place_of(one.id), reverse=True)
    sure = [record for record in found if place_of(record.id) >= frontier]
    if len(sure) > limit:
        return ListPage(sure[:limit], None, True)
    return ListPage(sure, frontier or None, bool(frontier))


def _until(page: ListPage[Record], after: str | None) -> str:
    last = page.until or (page.items[-1].id if page.items else None)
    return place_of(last) if last else after or _NEWEST


def _reader(
    ledger: AsyncLedger,
    owner: str,
    kind: str,
    names: Sequence[str],
    *,
    look: int,
    fits: _Fitting | None,
) -> Callable[[str | None, int], Awaitable[ListPage[Record]]]:
    async def read(behind: str | None, most: int) -> ListPage[Record]:
        part = await read_some(behind, most if fits is None else max(most, look))
        return part if fits is None else ListPage(await fits(part.items), part.until, part.more)

    async def read_some(behind: str | None, most: int) -> ListPage[Record]:
        if kind == "task":
            states = [State(name) for name in names]
            tasks = list_tasks(owner, limit=most, after=behind or "", states=states, look=look)
            return ListPage(*await ledger.run(tasks))
        ids, more = await ledger.run(list_jobs(_RECORDS[kind], owner, after=behind, limit=most))
        found = list[batches.Batch | ingestions.Ingestion]()
        for start in range(0, len(ids), _AT_ONCE):
            found += await ledger.run(_READ[kind](ids[start : start + _AT_ONCE]), timeout_s=_LIST_TIMEOUT_S)
        wanted = [one for one in found if one.status in names and not one.deleted]
        seen: list[batches.Batch | ingestions.Ingestion] = await ledger.run(read_tasks_of(wanted))
        records: list[Record] = [*seen]
        return ListPage(records, ids[-1] if ids else None, more)

    return read
