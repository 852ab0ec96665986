"""The one driver of jobs. Pure: a job and what its tasks have come to go in; one move, or none, comes out.

A page is at the stage that is next or under way. A stage is one task; its name comes again when the stage is tried
again, and what a late worker brings is refused by its claim. A move applies only after the one that was read, so it
may rely on all that it has read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.ingestion.rows_writer import new_pieces
from tasks.records.files import FileRecord
from tasks.records.jobs import Counts, DonePage, Job, JobError, JobStatus, Page, Stage
from tasks.records.moves import Move
from tasks.records.stage_tasks import embed_task, stage_task

MAX_OPEN_PAGES = 128
MAX_LISTED_PAGES = 16
"""By one LIST: parsing waits in the same queue."""
MAX_LOSSES = 4
"""So often the ledger gives a stage up, each time after the deaths of several workers."""


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """What a task has come to.

    Attributes:
        made: what the stage returned; of EMBED how many `rows` and `tokens` it has.
        away: what a stage found away; `why`, for people.
        lost: the ledger gave it up, because its workers died.
        error: it can never be done.
    """

    made: Mapping[str, Any] = field(default_factory=dict)
    away: str = ""
    why: str = ""
    lost: bool = False
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How much of a job is done at a time.

    Attributes:
        credit: chunks of one job that are between the parser and the dataset.
        open_pages: pages that are listed and not done.
    """

    credit: int = 16_384
    open_pages: int = MAX_OPEN_PAGES


USUAL = JobLimits()
_FOR_ALL = {"sink_refused", "sink_dimension_mismatch", "dataset_deleted", "model_changed"}
"""What PARSE meets before it looks at a document: no other page would fare better."""
_NOTHING_LISTED = JobError(
    "nothing_listed",
    "The source has no documents, so nothing was deleted. Look at its path, or delete the dataset.",
    "source",
)
_LOST = JobError(
    "worker_lost", "Workers died of it again and again. Try it again; look at their logs if it comes back."
)


def advance(
    job: Job[Any],
    outcomes: Mapping[str, StageOutcome],
    start: Mapping[str, Any] | JobError | str,
    limits: JobLimits = USUAL,
) -> Move | None:
    """The next move of a job; None: there is nothing to do now.

    Args:
        job: with those of its tasks that are there.
        outcomes: of its tasks that have ended, by id.
        start: of a queued job: what is noted of its model; why it cannot be; or what is away.
        limits: see there.
    """
    move = Move(job)
    if move.record.status.terminal:
        return None
    if move.record.is_batch and job.now_ms >= job.created_ms + move.record.window_ms and _is_late(move):
        move.stop(JobStatus.EXPIRED)
    if move.record.status is JobStatus.QUEUED and move.record.stop is None:
        _begin(move, start)
    if move.record.head_task:
        _head(move, outcomes)
    for number, page in list(move.pages.items()):
        if page.under_way:
            _page(move, number, page, outcomes)
    if move.record.stop is not None:
        _stop(move)
    elif move.record.status is not JobStatus.QUEUED:
        _go_on(move, limits)
    return move or None


def _is_late(move: Move) -> bool:
    """Whether requests of a batch are left that nobody has encoded."""
    return all(page.at is not Stage.LOAD for page in move.pages.values())


def _begin(move: Move, start: Mapping[str, Any] | JobError | str) -> None:
    record = move.record
    if isinstance(start, JobError):
        move.stop(JobStatus.FAILED, start)
    elif isinstance(start, str):
        if record.wait is None or record.wait.what != start:
            move.pause(start, Stage.LIST)
    else:
        move.set(status=JobStatus.IN_PROGRESS, wait=None, **start)
        if record.is_batch:
            move.pages[1] = Page()
            move.set(next_page=2)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def _ended(move: Move, number: int, stage: Stage, outcomes: Mapping[str, StageOutcome]) -> Mapping[str, Any] | None:
    """What a task has made; None: it is under way, is not there any more, or came to nothing."""
    task_id = move.record.task_id(number, stage)
    outcome = outcomes.get(task_id)
    if outcome is None:
        if task_id not in move.job.tasks:
            _missing(move, number, stage)
        return None
    if stage is not Stage.EMBED:  # LOAD reads what that has come to
        move.forget.append(task_id)
    _rest(move, number, under_way=False)
    if outcome.away:
        move.pause(outcome.away, stage, outcome.why)
    elif outcome.lost:
        _lost(move, number, stage)
    else:
        _end_wait(move, stage)
        if outcome.error is None:
            _rest(move, number, losses=0)
            return outcome.made
        _failed(move, number, stage, outcome.error)
    return None


def _end_wait(move: Move, stage: Stage) -> None:
    """The stage has ended, well or not. A pause of this very move stays."""
    wait = move.record.wait
    if wait is not None and wait.stage == stage and not move.paused:
        move.set(wait=None)


def _rest(move: Move, number: int, **fields: Any) -> None:
    """Changes the page, or the head."""
    if number:
        move.put(number, **fields)
    else:
        move.set(**{"head_task" if name == "under_way" else name: value for name, value in fields.items()})


def _missing(move: Move, number: int, stage: Stage) -> None:
    """Redis has lost a task, or it came to nothing, by whatever hand."""
    move.forget.append(move.record.task_id(number, stage))  # one that stands there would keep the next from its place
    if stage is Stage.EMBED:  # only PARSE knows its pieces
        move.pages[number] = move.pages[number].as_listed()
    else:
        _rest(move, number, under_way=False)


def _lost(move: Move, number: int, stage: Stage) -> None:
    losses = (move.pages[number].losses if number else move.record.losses) + 1
    _rest(move, number, losses=losses)
    if losses < MAX_LOSSES:
        move.pause("worker", stage)
    elif stage is Stage.PARSE and not move.record.is_batch:
        _end_wait(move, stage)
        _fail_page(move, number, _LOST)
    else:
        _fail_job(move, number, _LOST)


def _failed(move: Move, number: int, stage: Stage, error: JobError) -> None:
    if stage is Stage.PARSE and error.code not in _FOR_ALL and not move.record.is_batch:
        _fail_page(move, number, error)
    else:
        _fail_job(move, number, error)


def _fail_page(move: Move, number: int, error: JobError) -> None:
    """All documents of a page have failed. LOAD notes that too: what was listed is not deleted."""
    move.put(number, at=Stage.LOAD, fault=error, losses=0)


def _fail_job(move: Move, number: int, error: JobError) -> None:
    """A batch that stops already, and cannot even write down what is done, ends without that, and says why."""
    move.stop(JobStatus.FAILED, error)
    if move.record.is_batch:
        move.set(errors=move.record.errors or (error,))
        _forget_embedding(move, number, move.pages.pop(number))


def _head(move: Move, outcomes: Mapping[str, StageOutcome]) -> None:
    """LIST has new pages, or FINISH has deleted what the source has no more."""
    stage = move.record.head_stage
    made = _ended(move, 0, stage, outcomes)
    if made is None:
        return
    if stage is Stage.FINISH:
        move.set(finished=True, deleted_documents=made["deleted"], empty_roots=tuple(made["empty_roots"]))
        return
    number = move.record.next_page
    for listed in made["pages"]:
        move.pages[number] = Page(src=listed["obj"], documents=listed["documents"], size_bytes=listed["bytes"])
        number += 1
    complete = made["cursor"] is None
    move.set(next_page=number, cursor=made["cursor"], listed=complete, dataset_id=made["dataset_id"])


def _page(move: Move, number: int, page: Page, outcomes: Mapping[str, StageOutcome]) -> None:
    made = _ended(move, number, page.at, outcomes)
    if made is None:
        return
    if page.at is Stage.PARSE:
        _parsed(move, number, made)
    elif page.at is Stage.EMBED:
        if made["model_changed"] and move.record.is_batch and move.record.stop is None:
            # A file is of one model: every row is encoded by the one that is served now.
            _again(move, number)
            return
        move.put(number, at=Stage.LOAD, tokens=made["tokens"], failed_texts=page.chunks - made["rows"] + made["failed"])
        move.counters["ingested_chunks_embedded"] += 0 if move.record.is_batch else made["rows"] - made["failed"]
    elif "again" in made:  # the dataset has changed since PARSE, or what came of the chunks is gone
        _again(move, number)
    else:
        _forget_embedding(move, number, page)
        if move.record.is_batch:
            files = [FileRecord.model_validate(file) for file in made["files"].values()]
            move.files += files
            move.set(files={kind: file["id"] for kind, file in made["files"].items()})
        move.close(number, DonePage(made["obj"], Counts(*made["counts"])))


def _parsed(move: Move, number: int, made: Mapping[str, Any]) -> None:
    if made.get("errors"):  # of the file of a batch
        move.stop(JobStatus.FAILED, *(JobError(**error) for error in made["errors"]))
        return
    page = move.put(number, documents=made["documents"])  # it knows; LIST has estimated
    if made.get("rest"):  # the stage had its turn: its other documents are another page
        page = move.put(number, src=made["src"], size_bytes=made["bytes"])
        _divide(move, number, page, made)
    if move.record.dry_run:
        move.close(number, DonePage(made["obj"], Counts(*made["counts"])))
        return
    told = {name: made[name] for name in ("obj", "rows", "chunks", "chunk_tokens")}
    if move.record.is_batch:
        move.set(model=made["model"])
        if move.record.stop is not None:  # none of its requests was begun
            move.close(number, DonePage("", Counts(documents=made["documents"])))
            return
    move.put(number, at=Stage.EMBED if made["chunks"] else Stage.LOAD, **told)
    if not made["chunks"]:
        return
    deadline = None
    if move.record.is_batch:
        deadline = move.job.created_ms + move.record.window_ms - move.job.now_ms
    if move.record.stop is None:
        move.new_tasks.append(embed_task(move.record, number, new_pieces(made["rows"], made["pieces"]), deadline))
        move.put(number, under_way=True)


def _divide(move: Move, number: int, page: Page, made: Mapping[str, Any]) -> None:
    """What is left of a page is another page. Of one that is done and tried again both are done, as they were."""
    rest, after, was = made["rest"], move.record.next_page, None
    if page.was is not None:
        was = DonePage(rest["obj"], Counts(*rest["counts"]))
        front = page.was.counts.plus(was.counts, -1)._replace(kept=made["src_kept"])
        sums = move.record.sums.plus(page.was.counts, -1).plus(front).plus(was.counts)
        move.done[after], move.done[number] = was, DonePage(page.src, front)
        move.put(number, was=move.done[number])
        move.set(done_pages=move.record.done_pages + 1, sums=sums)
    left = {"src": rest["obj"], "documents": rest["documents"], "size_bytes": rest["bytes"]}
    move.pages[after] = Page(place=page.place or number, **left, was=was)
    move.set(next_page=after + 1)


def _again(move: Move, number: int) -> None:
    """Back to PARSE, which asks the dataset once more."""
    _forget_embedding(move, number, move.pages[number])
    move.pages[number] = move.pages[number].as_listed()


def _forget_embedding(move: Move, number: int, page: Page) -> None:
    if page.chunks:
        move.forget.append(move.record.task_id(number, Stage.EMBED))


# ---- what is done next -----------------------------------------------------------------------------------------------


def _stop(move: Move) -> None:
    """A load is let finish, for its rows may be in the dataset, and so is FINISH. Of a batch what is done is kept."""
    record = move.record
    move.new_tasks.clear()  # what this move would have encoded
    if record.head_task and record.head_stage is Stage.LIST:
        _drop(move, 0, Stage.LIST)
    for number, page in list(move.pages.items()):
        if record.is_batch and record.stop in {JobStatus.CANCELLED, JobStatus.EXPIRED} and page.at is not Stage.PARSE:
            _wind_up(move, number, page)
        elif not (page.at is Stage.LOAD and page.under_way):
            if page.under_way:
                _drop(move, number, page.at)
            if page.at is Stage.LOAD:
                _forget_embedding(move, number, page)
            if page.was is not None or record.is_batch:
                del move.pages[number]  # it is done, as before
            else:
                move.pages[number] = page.as_listed()
    if not move.record.head_task and not any(page.under_way for page in move.pages.values()) and not _winds_up(move):
        move.end(record.stop)


def _drop(move: Move, number: int, stage: Stage) -> None:
    move.forget.append(move.record.task_id(number, stage))
    _rest(move, number, under_way=False)


def _wind_up(move: Move, number: int, page: Page) -> None:
    """The encoding of a batch ends with what is done, and its rows are written down."""
    if page.at is Stage.EMBED:
        move.cancel.append(move.record.task_id(number, Stage.EMBED))
    elif not page.under_way and not _waits(move):
        _enqueue(move, number, Stage.LOAD)


def _winds_up(move: Move) -> bool:
    """Whether rows of a batch are still to be written down."""
    return move.record.is_batch and bool(move.pages)


def _waits(move: Move) -> bool:
    wait = move.record.wait
    return wait is not None and wait.begins(move.job.now_ms)


def _go_on(move: Move, limits: JobLimits) -> None:
    if not _waits(move):
        _open_again(move, limits)
        _list(move, limits)
        _begin_pages(move, limits)
    record = move.record
    if record.listed and not record.looks_again and not move.pages and not record.head_task:
        _finish(move)


def _open_again(move: Move, limits: JobLimits) -> None:
    """Done pages with failed documents, a few at a time."""
    behind = move.record.retry
    for number in range(move.record.retry, move.record.retry_end):
        was, is_open = move.job.done.get(number), number in move.job.pages
        if (was is None and not is_open) or len(move.pages) >= limits.open_pages:
            break  # the driver has not read so far, or there is no room
        if was is not None and was.counts.failed and not is_open:
            move.pages[number] = Page(src=was.obj, documents=was.counts.documents, size_bytes=was.counts.bytes, was=was)
        behind = number + 1
    move.set(retry=behind)


def _list(move: Move, limits: JobLimits) -> None:
    record = move.record
    if not record.listed and not record.head_task and len(move.pages) + MAX_LISTED_PAGES <= limits.open_pages:
        _enqueue(move, 0, Stage.LIST)


def _begin_pages(move: Move, limits: JobLimits) -> None:
    """The first page is never held up by those that wait for it; loads come one at a time, in the order of pages."""
    numbers = sorted(move.pages, key=lambda number: (move.pages[number].place or number, number))
    each = _chunks_of_page(move)
    used = sum(_room(page, each) for page in move.pages.values())
    for number in numbers:
        page, first = move.pages[number], number == numbers[0]
        if page.under_way:
            continue
        if page.at is Stage.PARSE:
            room = each or page.documents
            if not first and used + room > limits.credit:
                continue
            used += room
        elif not first:
            continue
        _enqueue(move, number, page.at)


def _chunks_of_page(move: Move) -> int:
    """As many as pages before had; 0 where there were none."""
    record = move.record
    return -(-record.sums.chunks // record.done_pages) if record.done_pages else 0


def _room(page: Page, each: int) -> int:
    if page.at is Stage.PARSE:
        return (each or page.documents) if page.under_way else 0
    return page.chunks


def _enqueue(move: Move, number: int, stage: Stage) -> None:
    move.new_tasks.append(stage_task(move.record, number, stage))
    _rest(move, number, under_way=True)


def _finish(move: Move) -> None:
    """Nothing is open. `sync` deletes what the source has no more."""
    record, sums = move.record, move.record.sums
    if record.is_batch:
        move.end(JobStatus.COMPLETED)
        return
    if record.request.get("mode") == "sync" and not record.dry_run and not record.finished:
        if not sums.documents:
            move.stop(JobStatus.FAILED, _NOTHING_LISTED)
            move.end(JobStatus.FAILED)
        elif not _waits(move):
            move.set(status=JobStatus.FINALIZING)
            _enqueue(move, 0, Stage.FINISH)
        return
    all_failed = bool(sums.failed) and sums.failed == sums.documents
    move.end(JobStatus.FAILED if all_failed else JobStatus.COMPLETED)
