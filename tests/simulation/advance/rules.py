"""What must be so of a job, by what its stages have come to: rules that an owner or an operator would state.

It keeps what it was told apart from the job, and is asked before and after each move of the driver.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.ingestion.advance import MAX_LISTED_PAGES, MAX_LOSSES, JobLimits, StageOutcome
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import NewTask
from tasks.records.jobs import Counts, DonePage, Job, JobError, JobStatus, Page, Stage, Wait
from tasks.records.moves import Move

_WRITES = {JobStatus.CANCELLED, JobStatus.EXPIRED}
"""A batch that ends so writes what is done."""
_OF_ALL = {"sink_refused", "sink_dimension_mismatch", "dataset_deleted", "model_changed"}
"""Why PARSE of a page fails the whole ingestion: no other page would fare better."""
_LET_FINISH = {Stage.LOAD, Stage.FINISH}
_LONGEST_MS = 60_000


@dataclass
class Rules:
    """See the module.

    Attributes:
        lost: tasks that Redis has lost, or that came to nothing.
        listed: documents that LIST has told of.
        lines: name of stored lines -> how many documents, and bytes.
        places: number of what was left of a page -> number of that page.
        next: number of the next page.
        codes: why it may stop.
        away: what was found away.
        faults: why open pages failed.
        losses: of each page, and of the head (0), in a row.
        done, sums: what was said of pages that are done.
        again: numbers of pages that are to be done again.
    """

    limits: JobLimits
    lost: set[str] = field(default_factory=set)
    listed: int = 0
    lines: dict[str, tuple[int, int]] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    next: int = 1
    codes: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    faults: dict[int, str] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)
    done: dict[int, DonePage] = field(default_factory=dict)
    sums: Counts = field(default_factory=Counts)
    again: set[int] = field(default_factory=set)
    finished: bool = False

    def retried(self, pages: Mapping[int, Page]) -> None:
        """A client tries again what has failed."""
        self.places = {number: place for number, place in self.places.items() if number in pages}
        self.again = {number for number, page in self.done.items() if page.counts.failed}
        self.lines |= {page.obj: (page.counts.documents, page.counts.bytes) for page in self.done.values()}
        self.finished = False

    # ---- what a move is told

    def told(self, job: Job[Any], outcomes: Mapping[str, StageOutcome], start: object) -> None:
        """Takes in what tasks have come to. Nothing of it is told again."""
        self.next = job.record.next_page
        if isinstance(start, JobError):
            self.codes.add(start.code)
        elif isinstance(start, str):
            self.away.add(start)
        for task_id in job.task_ids() if not job.record.status.terminal else ():
            if task_id in outcomes:
                self._take(job, *_place(task_id), outcomes[task_id])

    def _take(self, job: Job[Any], number: int, stage: Stage, outcome: StageOutcome) -> None:
        of_page = stage is Stage.PARSE and not job.record.is_batch
        if not outcome.away and not outcome.lost:
            self.losses[number] = 0
        if outcome.away or outcome.lost:
            self.away.add(outcome.away or "worker")
            self.losses[number] += outcome.lost
            if self.losses[number] >= MAX_LOSSES:
                self._fails(number, "worker_lost", of_page=of_page)
                self.losses[number] *= not of_page
        elif outcome.error is not None:
            self._fails(number, outcome.error.code, of_page=of_page and outcome.error.code not in _OF_ALL)
        elif stage is Stage.LIST:
            for page in outcome.made["pages"]:
                self.listed += page["documents"]
                self.lines[page["obj"]] = (page["documents"], page["bytes"])
                self.next += 1
        elif stage is Stage.PARSE:
            self._parsed(job, number, outcome.made)
        elif stage is Stage.LOAD:
            self.faults.pop(number, None)
            if "again" not in outcome.made:
                self._closed(number, DonePage(outcome.made["obj"], Counts(*outcome.made["counts"])))
        elif stage is Stage.FINISH:
            self.finished = True

    def _fails(self, number: int, code: str, *, of_page: bool) -> None:
        """A page alone, or the whole job."""
        if of_page:
            self.faults[number] = code
        else:
            self.codes.add(code)

    def _parsed(self, job: Job[Any], number: int, made: Mapping[str, Any]) -> None:
        if made.get("errors"):
            self.codes |= {error["code"] for error in made["errors"]}
        elif not job.record.is_batch:
            self._found(job, number, made)
            if "rest" in made:
                self._divided(number, made)
            if job.record.dry_run:
                self._closed(number, DonePage(made["obj"], Counts(*made["counts"])))
        elif job.record.stop is not None or _is_late(job):  # none of its requests was begun, and their number is known
            self._closed(number, DonePage("", Counts(documents=made["documents"])))

    def _divided(self, number: int, made: Mapping[str, Any]) -> None:
        """What was left of a page is a page of its own."""
        self.places[self.next] = self.places.get(number, number)
        if number in self.done:  # each part is what it was
            rest = Counts(*made["rest"]["counts"])
            self.done[self.next] = DonePage(made["rest"]["obj"], rest)
            front = self.done[number].counts.plus(rest, -1)._replace(kept=made["src_kept"])
            self.sums = self.sums.plus(self.done[number].counts, -1).plus(front).plus(rest)
            self.done[number] = DonePage(made["src"], front)
            self.again.add(self.next)
        self.next += 1

    def _found(self, job: Job[Any], number: int, made: Mapping[str, Any]) -> None:
        """LIST has estimated how many documents there are. Of a page that was done it counts when it is done again."""
        src, rest = job.pages[number].src, made.get("rest")
        if number not in self.done:
            self.listed += made["documents"] - self.lines[src][0] + (rest["documents"] if rest else 0)
        self.lines[made.get("src", src)] = (made["documents"], made.get("bytes", self.lines[src][1]))
        if rest:
            self.lines[rest["obj"]] = (rest["documents"], rest["bytes"])

    def _closed(self, number: int, page: DonePage) -> None:
        before = self.done[number].counts if number in self.done else Counts()
        self.sums = self.sums.plus(before, -1).plus(page.counts)
        self.listed += page.counts.documents - before.documents if number in self.done else 0
        self.done[number] = page
        self.lines[page.obj] = (page.counts.documents, page.counts.bytes)  # a retry may open it, also this very one
        self.again.discard(number)

    # ---- a move of the driver

    def check_move(self, job: Job[Any], move: Move, there: set[str], runs: set[str]) -> None:
        """The move that came of it. `there`: tasks that were, whatever has become of them; `runs`: that are open."""
        before, record = job.record, move.record
        if before.status.terminal:
            assert not move, "what has ended moves no more"
            return
        if before.stop is not None:
            assert record.stop is before.stop, "the first stop counts"
        elif record.stop is JobStatus.EXPIRED:
            assert _is_late(job)
        elif record.stop is not None:
            assert record.stop is JobStatus.FAILED
            assert record.errors, "it is told why"
            nothing = _syncs(record) and record.listed and not self.listed
            assert {error.code for error in record.errors} <= self.codes | ({"nothing_listed"} if nothing else set())
        if record.stop is not None:
            self._check_stopped(job, move)
        elif record.status.terminal:
            self._check_end(move)
        self._check_wait(job, record.wait)
        new = {task.task_id for task in move.new_tasks}
        assert len(new) == len(move.new_tasks)
        assert not new & (there - set(move.forget)), "one stands in the place of another"
        for task in move.new_tasks:
            self._check_task(job, move, task)
        self.lost -= new
        begun = {task_id for task_id in runs if record.stop is None or _place(task_id)[1] in _LET_FINISH}
        assert not begun & {*move.forget, *move.cancel}, "what it has begun may be in the dataset"
        opened = set(move.pages) & set(range(1, before.next_page)) - set(job.pages)
        assert not opened or len(move.pages) - (record.next_page - before.next_page) <= self.limits.open_pages

    def _check_stopped(self, job: Job[Any], move: Move) -> None:
        """LOAD and FINISH are let finish, a batch writes what it has. Then it ends, its pages as they were listed."""
        record, pages = move.record, move.pages
        writes = record.is_batch and record.stop in _WRITES
        for number, page in pages.items():
            if writes:
                assert page.at is Stage.LOAD or record.task_id(number, page.at) in move.cancel
            elif not (page.at is Stage.LOAD and page.under_way):
                self.faults.pop(number, None)
                assert not record.is_batch
                assert page == Page(
                    src=page.src, documents=page.documents, size_bytes=page.size_bytes, place=page.place
                )
        assert not record.head_task or record.head_stage is Stage.FINISH
        runs = record.head_task or any(page.under_way for page in pages.values())
        if record.status.terminal:
            assert record.status is record.stop
            assert not runs
            assert not (record.is_batch and pages)
        else:
            assert runs or (writes and pages and _pauses(record.wait, job.now_ms)), "it has no end"

    def _check_end(self, move: Move) -> None:
        """Nobody stopped it: all is done."""
        record = move.record
        all_failed = not record.is_batch and self.sums.failed and self.sums.failed == self.sums.documents
        assert record.status is (JobStatus.FAILED if all_failed else JobStatus.COMPLETED)
        assert record.listed
        assert not move.pages
        assert not self.again
        assert not _syncs(record) or self.finished

    def _check_wait(self, job: Job[Any], after: Wait | None) -> None:
        """A setback makes it wait, twice as long each time."""
        before = job.record.wait
        if after is None or after == before:
            return
        assert after.what in self.away
        assert after.tries == 1 or (before is not None and after.tries == before.tries + 1)
        assert after.until_ms - job.now_ms == min(_LONGEST_MS, 1000 * 2 ** (after.tries - 1))

    def _check_task(self, job: Job[Any], move: Move, task: NewTask) -> None:
        record, pages = move.record, move.pages
        number, stage = _place(task.task_id)
        assert record.status is not JobStatus.QUEUED
        assert record.stop is None or (record.is_batch and record.stop in _WRITES and stage is Stage.LOAD)
        assert task.queue == (record.model if stage is Stage.EMBED else DOCUMENTS)
        if stage is Stage.EMBED:
            assert sum(piece.items for piece in task.pieces) == pages[number].chunks
            until_ms = job.created_ms + record.window_ms if record.is_batch else None
            assert until_ms == (None if task.deadline_in_ms is None else job.now_ms + task.deadline_in_ms)
            return
        assert not _pauses(record.wait, job.now_ms), "nothing begins before the end of a pause"
        if stage is Stage.LIST:
            assert self._may_list(pages)
        elif stage is Stage.FINISH:
            assert _syncs(record)
            assert record.listed
            assert self.listed
            assert not pages
            assert not self.again
        elif stage is Stage.PARSE:
            assert number == self._first(pages) or self._on_their_way(pages) <= self.limits.credit
        else:
            assert number == self._first(pages), "pages are loaded in order"

    def _first(self, pages: Mapping[int, Page]) -> int:
        """In the order of the source: what was left of a page comes right behind it."""
        return min(pages, key=lambda number: (self.places.get(number, number), number))

    def _may_list(self, pages: Mapping[int, Page]) -> bool:
        return len(pages) + MAX_LISTED_PAGES <= self.limits.open_pages

    def _on_their_way(self, pages: Mapping[int, Page]) -> int:
        """Chunks of pages that are begun."""
        begun = (page for page in pages.values() if page.under_way or page.at is not Stage.PARSE)
        return sum(self._expected(page) if page.at is Stage.PARSE else page.chunks for page in begun)

    def _expected(self, page: Page) -> int:
        """Chunks of a page that is not parsed: as many as others had; as documents, where there were no others."""
        return math.ceil(self.sums.chunks / max(1, len(self.done))) or page.documents

    def check_idle(self, job: Job[Any]) -> None:
        """The driver has nothing to do: everything that may be under way is."""
        record, pages = job.record, job.pages
        if record.status is JobStatus.QUEUED or record.stop is not None or _pauses(record.wait, job.now_ms):
            return
        if not record.status.terminal:
            assert record.listed or record.head_task or not self._may_list(pages)
            assert not record.looks_again or len(pages) >= self.limits.open_pages
            assert pages or record.head_task
            used = self._on_their_way(pages)
            for number, page in pages.items():
                if not page.under_way:
                    assert number != self._first(pages)
                    assert page.at is Stage.LOAD or used + self._expected(page) > self.limits.credit

    # ---- what is always so

    def check(self, job: Job[Any], done: Mapping[int, DonePage], tasks: set[str]) -> None:
        """After each move, whoever made it."""
        record, pages, needed = job.record, job.pages, set(job.task_ids())
        kept = {record.task_id(n, Stage.EMBED) for n, page in pages.items() if page.at is Stage.LOAD and page.chunks}
        assert tasks <= needed | kept, "a task that nobody waits for"
        assert needed | kept <= tasks | self.lost, "it waits for a task that is not there"
        assert done == self.done
        assert (record.sums, record.done_pages) == (self.sums, len(done))
        assert record.standing().counts["stored"] == sum(page.counts.kept for page in done.values())
        numbers = {*pages, *done}
        assert numbers == set(range(1, record.next_page)) or (record.is_batch and not numbers and record.next_page == 2)
        self.faults = {number: code for number, code in self.faults.items() if number in pages}
        for number, page in pages.items():
            assert (page.fault.code if page.fault else None) == self.faults.get(number)
            if not record.is_batch:
                assert (page.documents, page.size_bytes) == self.lines[page.src]
            assert page.was == done.get(number)
        still = [page for page in pages.values() if page.was is None]
        if not record.is_batch:
            assert len({page.src for page in still}) == len(still)
            told_of = sum(page.documents for page in still) + sum(page.counts.documents for page in done.values())
            assert told_of == self.listed, "no document is lost, none comes twice"
        if record.status.terminal:
            self.losses.clear()
            assert not needed
            assert not tasks, "an end leaves no task"
            assert not record.looks_again
            assert record.wait is None


def _place(task_id: str) -> tuple[int, Stage]:
    _, number, stage = task_id.rsplit("-", 2)
    return int(number), Stage(stage)


def _is_late(job: Job[Any]) -> bool:
    """A batch whose window has passed, and of which nothing is encoded."""
    late = job.record.is_batch and job.now_ms >= job.created_ms + job.record.window_ms
    return late and all(page.at is not Stage.LOAD for page in job.pages.values())


def _syncs(record: Any) -> bool:
    return record.request.get("mode") == "sync" and not record.dry_run


def _pauses(wait: Wait | None, now_ms: int) -> bool:
    return wait is not None and now_ms < wait.until_ms
