"""What must be so of a job, by what its stages have come to: rules that an owner or an operator would state.

It keeps what it was told apart from the job, and is asked before and after each move of the driver.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.ingestion.advance import MAX_LISTED_PAGES, MAX_LOSSES, JobLimits, StageOutcome
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import NewTask
from tasks.records.jobs import Counts, DonePage, Job, JobError, JobStatus, Page, Stage, Wait
from tasks.records.moves import Move

_OF_ALL = {"sink_refused", "sink_dimension_mismatch", "dataset_deleted", "model_changed"}
"""Why PARSE of a page fails the whole ingestion: no other page would fare better."""
_WRITES = {JobStatus.CANCELLED, JobStatus.EXPIRED}
"""A batch that ends so writes what is done."""
_LET_FINISH = {Stage.LOAD, Stage.FINISH}
_LONGEST_MS = 60_000


@dataclass
class Told:
    """What a move is told.

    Attributes:
        begins: the job begins with it.
        setbacks: what was away, and the stage that found it so.
        ended: stages that ended, well or not, or were given up.
        causes: why the job must stop, and what its owner is told.
        unwritten: why the files of a batch cannot be written.
        embedded: chunks that have come out of the model.
        files: that were written.
    """

    begins: bool = False
    setbacks: list[tuple[str, str]] = field(default_factory=list)
    ended: set[Stage] = field(default_factory=set)
    causes: list[tuple[JobStatus, tuple[str, ...]]] = field(default_factory=list)
    unwritten: tuple[str, ...] = ()
    embedded: int = 0
    files: list[str] = field(default_factory=list)


@dataclass
class Rules:
    """See the module.

    Attributes:
        lost: tasks that Redis has lost, or that came to nothing.
        listed: documents that LIST has told of.
        lines: name of stored lines -> how many documents, and bytes.
        places: number of what was left of a page -> number of that page.
        next: number of the next page.
        facts: fields of the head as they must be.
        src: number of an open page -> name of its lines.
        parsed, embedded, faults: what became of open pages so far.
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
    facts: dict[str, Any] = field(default_factory=dict)
    src: dict[int, str] = field(default_factory=dict)
    parsed: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    embedded: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    losses: Counter[int] = field(default_factory=Counter)
    done: dict[int, DonePage] = field(default_factory=dict)
    sums: Counts = field(default_factory=Counts)
    again: set[int] = field(default_factory=set)

    def retried(self, pages: Mapping[int, Page]) -> None:
        """A client tries again what has failed."""
        self.places = {number: place for number, place in self.places.items() if number in pages}
        self.again = {number for number, page in self.done.items() if page.counts.failed}
        self.lines |= {page.obj: (page.counts.documents, page.counts.bytes) for page in self.done.values()}
        self.facts["finished"] = False

    # ---- what a move is told

    def told(
        self, job: Job[Any], outcomes: Mapping[str, StageOutcome], start: Mapping[str, Any] | JobError | str
    ) -> Told:
        """Takes in what tasks have come to. Nothing of it is told again."""
        told, record, self.next = Told(), job.record, job.record.next_page
        if record.status.terminal:
            return told
        if record.is_batch and record.stop is None and job.now_ms >= job.created_ms + record.window_ms:
            encoded = any(page.at is Stage.LOAD for page in job.pages.values())
            told.causes += [] if encoded else [(JobStatus.EXPIRED, ())]
        if record.status is JobStatus.QUEUED and record.stop is None and not told.causes:
            if isinstance(start, JobError):
                told.causes.append((JobStatus.FAILED, (start.code,)))
            elif isinstance(start, str):
                told.setbacks += [(start, Stage.LIST)] * (record.wait is None or record.wait.what != start)
            else:
                told.begins = True
                self.facts |= start
        for task_id in job.task_ids():
            number, stage = _place(task_id)
            outcome = outcomes.get(task_id)
            if outcome is not None:
                self._take(job, told, number, stage, outcome)
            elif task_id not in job.tasks and stage is Stage.EMBED:
                self.parsed.pop(number)  # only PARSE knows its pieces
        return told

    def _take(self, job: Job[Any], told: Told, number: int, stage: Stage, outcome: StageOutcome) -> None:
        of_page = stage is Stage.PARSE and not job.record.is_batch
        if outcome.away:
            told.setbacks.append((outcome.away, stage))
        elif outcome.lost:
            self.losses[number] += 1
            if self.losses[number] < MAX_LOSSES:
                told.setbacks.append(("worker", stage))
            elif of_page:
                told.ended.add(stage)
                self._fails(number, "worker_lost")
            else:
                self._stops(job, told, number, "worker_lost")
        elif outcome.error is not None:
            told.ended.add(stage)
            if of_page and outcome.error.code not in _OF_ALL:
                self._fails(number, outcome.error.code)
            else:
                self._stops(job, told, number, outcome.error.code)
        else:
            told.ended.add(stage)
            self.losses[number] = 0
            takes = {Stage.LIST: self._list, Stage.PARSE: self._parse, Stage.EMBED: self._embed}
            takes |= {Stage.LOAD: self._load, Stage.FINISH: self._finish}
            takes[stage](job, told, number, outcome.made)

    def _is_stopped(self, job: Job[Any], told: Told) -> bool:
        """By what was before. Of an ingestion another page may be a cause: then this one goes back all the same."""
        return job.record.stop is not None or (job.record.is_batch and bool(told.causes))

    def _list(self, _: Job[Any], __: Told, ___: int, made: Mapping[str, Any]) -> None:
        for page in made["pages"]:
            self.listed += page["documents"]
            self.lines[page["obj"]] = (page["documents"], page["bytes"])
            self.next += 1
        self.facts |= {"cursor": made["cursor"], "listed": made["cursor"] is None, "dataset_id": made["dataset_id"]}

    def _parse(self, job: Job[Any], told: Told, number: int, made: Mapping[str, Any]) -> None:
        if made.get("errors"):
            told.causes.append((JobStatus.FAILED, tuple(error["code"] for error in made["errors"])))
            return
        if not job.record.is_batch:
            self._found(job, number, made)
        if "rest" in made:
            self.places[self.next] = self.places.get(number, number)
            if number in self.done:  # each part is what it was
                rest = Counts(*made["rest"]["counts"])
                self.done[self.next] = DonePage(made["rest"]["obj"], rest)
                front = self.done[number].counts.plus(rest, -1)._replace(kept=made["src_kept"])
                self.sums = self.sums.plus(self.done[number].counts, -1).plus(front).plus(rest)
                self.done[number] = DonePage(made["src"], front)
                self.again.add(self.next)
            else:
                self.src[number] = made["src"]
            self.next += 1
        if job.record.dry_run:
            self._closed(number, DonePage(made["obj"], Counts(*made["counts"])))
            return
        if job.record.is_batch:
            self.facts["model"] = made["model"]
            if self._is_stopped(job, told):  # none of its requests was begun, and it is known how many there are
                self._closed(number, DonePage("", Counts(documents=made["documents"])))
                return
        self.parsed[number] = made

    def _found(self, job: Job[Any], number: int, made: Mapping[str, Any]) -> None:
        """LIST has estimated how many documents there are. Of a page that was done it counts when it is done again."""
        src, rest = job.pages[number].src, made.get("rest")
        if number not in self.done:
            self.listed += made["documents"] - self.lines[src][0] + (rest["documents"] if rest else 0)
        self.lines[made.get("src", src)] = (made["documents"], made.get("bytes", self.lines[src][1]))
        if rest:
            self.lines[rest["obj"]] = (rest["documents"], rest["bytes"])

    def _embed(self, job: Job[Any], told: Told, number: int, made: Mapping[str, Any]) -> None:
        if job.record.is_batch and made["model_changed"] and not self._is_stopped(job, told):
            self.parsed.pop(number)  # one model for all of its lines
            return
        self.embedded[number] = made
        told.embedded += 0 if job.record.is_batch else made["rows"] - made["failed"]

    def _load(self, job: Job[Any], told: Told, number: int, made: Mapping[str, Any]) -> None:
        if "again" in made:
            self._forgets(number)
            return
        if job.record.is_batch:
            self.facts["files"] = {kind: file["id"] for kind, file in made["files"].items()}
            told.files += self.facts["files"].values()
        self._closed(number, DonePage(made["obj"], Counts(*made["counts"])))

    def _finish(self, _: Job[Any], __: Told, ___: int, made: Mapping[str, Any]) -> None:
        self.facts |= {
            "finished": True,
            "deleted_documents": made["deleted"],
            "empty_roots": tuple(made["empty_roots"]),
        }

    def _stops(self, job: Job[Any], told: Told, number: int, code: str) -> None:
        told.causes.append((JobStatus.FAILED, (code,)))
        if job.record.is_batch:
            told.unwritten = (code,)
            self._forgets(number)

    def _fails(self, number: int, code: str) -> None:
        self.faults[number] = code
        self.losses[number] = 0

    def _closed(self, number: int, page: DonePage) -> None:
        before = self.done[number].counts if number in self.done else Counts()
        self.sums = self.sums.plus(before, -1).plus(page.counts)
        self.listed += page.counts.documents - before.documents if number in self.done else 0
        self.done[number] = page
        self.lines[page.obj] = (page.counts.documents, page.counts.bytes)  # a retry may open it, also this very one
        self.again.discard(number)
        self._forgets(number)
        self.src.pop(number, None)

    def _forgets(self, number: int) -> None:
        for what in (self.parsed, self.embedded, self.faults):
            what.pop(number, None)

    # ---- a move of the driver

    def check_move(self, job: Job[Any], told: Told, move: Move, there: set[str], runs: set[str]) -> None:
        """The move that came of it. `there`: tasks that were, whatever has become of them; `runs`: that are open."""
        if job.record.status.terminal:
            assert not move, "what has ended moves no more"
            return
        self._check_stop(job, told, move)
        self._check_wait(job, told, move)
        self._check_tasks(job, move, there)
        made = {task.task_id for task in move.new_tasks}
        assert set(_moved(job, move).task_ids()) <= (set(job.tasks) - set(move.forget)) | made, "nobody works on it"
        begun = {task_id for task_id in runs if move.record.stop is None or _place(task_id)[1] in _LET_FINISH}
        assert not begun & {*move.forget, *move.cancel}, "what it has begun may be in the dataset"
        opened = set(move.pages) & set(range(1, job.record.next_page)) - set(job.pages)
        assert not opened or len(move.pages) - (move.record.next_page - job.record.next_page) <= self.limits.open_pages
        setbacks = Counter(f"setbacks_{what}" for what, _ in told.setbacks)
        assert Counter({name: n for name, n in move.counters.items() if name.startswith("setbacks")}) <= setbacks
        assert move.counters["ingested_chunks_embedded"] == told.embedded
        assert [file.id for file in move.files] == told.files
        if move.record.status.terminal:
            self.losses.clear()

    def _check_stop(self, job: Job[Any], told: Told, move: Move) -> None:
        """It stops where there is a cause, and for nothing else."""
        before, record = job.record, move.record
        reason = (record.stop, tuple(error.code for error in record.errors))
        if before.stop is not None:
            assert record.stop is before.stop, "the first stop counts"
            assert reason[1] == (tuple(error.code for error in before.errors) or told.unwritten)
        elif told.causes:
            assert reason in told.causes or ((record.stop, ()) in told.causes and reason[1] == told.unwritten)
        elif record.stop is not None:
            assert reason == (JobStatus.FAILED, ("nothing_listed",))
            assert _syncs(record)
            assert record.listed
            assert not self.listed
        if record.stop is not None:
            self._check_stopped(job, move)
        elif record.status.terminal:
            self._check_end(move)

    def _check_stopped(self, job: Job[Any], move: Move) -> None:
        """LOAD and FINISH are let finish, a batch writes what it has. Then it ends, its pages as they were listed."""
        record, pages = move.record, move.pages
        writes = record.is_batch and record.stop in _WRITES
        for number, page in pages.items():
            if writes:
                assert page.at is Stage.LOAD or record.task_id(number, page.at) in move.cancel
            elif not (page.at is Stage.LOAD and page.under_way):
                assert not record.is_batch
                assert page == Page(
                    src=page.src, documents=page.documents, size_bytes=page.size_bytes, place=page.place
                )
                self._forgets(number)
        for number in set(job.pages) - set(pages):
            assert not writes or number not in self.parsed, "what was encoded is written"
            self._forgets(number)
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
        assert not move.pages
        assert record.listed
        assert not self.again
        assert not _syncs(record) or self.facts["finished"]

    def _check_wait(self, job: Job[Any], told: Told, move: Move) -> None:
        """A setback makes it wait, twice as long each time; an end of the same stage ends that, and nothing else."""
        before, after, now_ms = job.record.wait, move.record.wait, job.now_ms
        ends = before is not None and (told.begins or before.stage in told.ended)
        if move.record.status.terminal:
            assert after is None
        elif not told.setbacks:
            assert after == (None if ends else before)
        elif after == before:
            assert _pauses(before, now_ms), "it waits once more"
        else:
            assert after is not None
            assert (after.what, after.stage) in told.setbacks
            assert ends or not _pauses(before, now_ms), "one that goes on stays"
            goes_on = before is not None and after.tries == before.tries + 1
            assert goes_on or (after.tries == 1 and (before is None or ends))
            assert after.until_ms - now_ms == min(_LONGEST_MS, 1000 * 2 ** (after.tries - 1))
            same = before is not None and goes_on and before.what == after.what
            assert after.since_ms == (before.since_ms if before is not None and same else now_ms)

    def _check_tasks(self, job: Job[Any], move: Move, there: set[str]) -> None:
        """It names tasks that were, and makes what may begin."""
        new = [task.task_id for task in move.new_tasks]
        stops_now = job.record.stop is None and move.record.stop is not None  # then it may name what it has just made
        assert stops_now or set(move.forget) <= there | self.lost
        assert len(set(new)) == len(new)
        assert not set(new) & (there - set(move.forget)), "one stands in the place of another"
        for task in move.new_tasks:
            self._check_task(job, move, task)
        self.lost -= set(new)

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
        else:
            assert not _pauses(record.wait, job.now_ms), "nothing begins before the end of a pause"
            self._check_turn(move, number, stage)

    def _check_turn(self, move: Move, number: int, stage: Stage) -> None:
        """Few pages are open, and few chunks are on their way; pages are loaded in order."""
        if stage is Stage.LIST:
            assert not self.facts.get("listed")
            assert self._may_list(move.pages)
        elif stage is Stage.FINISH:
            assert _syncs(move.record)
            assert move.record.listed
            assert self.listed
            assert not move.pages
            assert not self.again
        elif stage is Stage.PARSE:
            assert number == self._first(move.pages) or self._on_their_way(move.pages) <= self.limits.credit
        else:
            assert number == self._first(move.pages)

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

    def check_idle(self, job: Job[Any], told: Told) -> None:
        """The driver has nothing to do: everything that may be under way is."""
        record, pages = job.record, job.pages
        if record.status.terminal or record.stop is not None or _pauses(record.wait, job.now_ms):
            return
        if record.status is JobStatus.QUEUED:
            assert not told.begins
            return
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
        assert {name: getattr(record, name) for name in self.facts} == self.facts
        numbers = {*pages, *done}
        assert numbers == set(range(1, record.next_page)) or (record.is_batch and not numbers and record.next_page == 2)
        for number, page in pages.items():
            self._check_page(job, number, page)
        still = [page for page in pages.values() if page.was is None]
        if not record.is_batch:
            assert len({page.src for page in still}) == len(still)
            told_of = sum(page.documents for page in still) + sum(page.counts.documents for page in done.values())
            assert told_of == self.listed, "no document is lost, none comes twice"
        if record.status.terminal:
            assert not needed
            assert not tasks, "an end leaves no task"
            assert not record.looks_again
            assert record.wait is None

    def _check_page(self, job: Job[Any], number: int, page: Page) -> None:
        """It is at the stage that is next, and knows what those before have said."""
        record = job.record
        made, rows, fault = self.parsed.get(number), self.embedded.get(number), self.faults.get(number)
        at = Stage.PARSE
        if fault or rows or (made and not made["chunks"]):
            at = Stage.LOAD
        elif made:
            at = Stage.EMBED
        assert page.at is at
        assert (page.fault.code if page.fault else None) == fault
        said = (made["obj"], made["rows"], made["chunks"], made["chunk_tokens"]) if made else ("", "", 0, 0)
        assert (page.obj, page.rows, page.chunks, page.chunk_tokens) == said
        without = page.chunks - rows["rows"] + rows["failed"] if rows else 0
        assert (page.tokens, page.failed_texts) == (rows["tokens"] if rows else 0, without)
        if page.was is not None:
            was = self.done[number]
            assert page.was == was
            assert (page.src, page.documents, page.size_bytes) == (was.obj, *self.lines[was.obj])
        elif record.is_batch:
            assert not made or page.documents == made["documents"]
        else:
            assert self.src.setdefault(number, page.src) == page.src
            assert (page.documents, page.size_bytes) == self.lines[page.src]


def _place(task_id: str) -> tuple[int, Stage]:
    _, number, stage = task_id.rsplit("-", 2)
    return int(number), Stage(stage)


def _moved(job: Job[Any], move: Move) -> Job[Any]:
    return replace(job, record=move.record, pages=move.pages)


def _syncs(record: Any) -> bool:
    return record.request.get("mode") == "sync" and not record.dry_run


def _pauses(wait: Wait | None, now_ms: int) -> bool:
    return wait is not None and now_ms < wait.until_ms
