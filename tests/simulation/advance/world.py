"""A world around the pure function that moves jobs: a dictionary of tasks, each of which has an outcome or none.

Clients stop, delete and retry when they like; Redis loses tasks. `DRIVEN` is the function; mutants stand in its place.
What must be so after each move says `rules.py`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.ingestion.advance import JobLimits, StageOutcome, advance
from tasks.records.batches import Batch, BatchRecord
from tasks.records.files import FileRecord, Purpose
from tasks.records.ingestions import Ingestion, IngestionRecord
from tasks.records.jobs import Counts, DonePage, Job, JobError, JobStatus, Page, Stage
from tasks.records.moves import Move, cancel_job, delete_job, no_room, retry_job
from tests.simulation.advance.rules import Rules

NOW_MS = 1_900_000_000_000
WINDOW_MS = 600_000
LIMITS = JobLimits(credit=40, open_pages=24)
LOOK = 7
BEGUN = {"revision": "r", "dimension": 2, "fingerprint": "f", "vectors": "v", "warning": ""}
_OF_A_PAGE = ("not_stored", "source_failed")
_OF_ALL = ("sink_refused", "sink_dimension_mismatch", "dataset_deleted", "model_changed")
DRIVEN: list[Callable[..., Move | None]] = [advance]

Trouble = Mapping[str, float]
"""How often a stage comes to something else: `away`, `lost`, `fault` (of PARSE's page), `fatal`; LOAD says `again`, the
model has `changed`, rows have no vector (`short`), documents fail (`failed`). Before it begins its model is `absent`,
or it `cannot` begin."""
NONE: Trouble = {}
TROUBLES: tuple[Trouble, ...] = (
    {"away": 0.08, "lost": 0.08, "fault": 0.03, "fatal": 0.01, "again": 0.1, "changed": 0.1, "failed": 0.2},
    {"away": 0.4, "lost": 0.1, "absent": 0.8, "cannot": 0.1},
    {"lost": 0.55, "failed": 0.1, "absent": 0.8},
    {"fault": 1.0, "lost": 0.4},
    {"failed": 1.0, "fault": 0.3},
    {"fatal": 0.12, "lost": 0.1, "cannot": 0.2},
    {"fatal": 0.35, "lost": 0.3},
    {"again": 0.4, "changed": 0.2, "short": 0.5},
    NONE,
)  # fmt: skip


def new_job(kind: str, **request: Any) -> Job[Any]:
    """A job that was just accepted."""
    if kind == "batch":
        record: Any = BatchRecord(id="b", owner="o", ttl_ms=1, window_ms=WINDOW_MS, request=request)
        return Batch(record, "1", NOW_MS, NOW_MS)
    asked = {"mode": "skip_unchanged", "sink": {"type": "dataset"}} | request
    return Ingestion(IngestionRecord(id="i", owner="o", ttl_ms=1, request=asked, model="m"), "1", NOW_MS, NOW_MS)


KINDS: dict[str, Callable[[], Job[Any]]] = {
    "batch": lambda: new_job("batch"),
    "ingestion": lambda: new_job("ingestion"),
    "sync": lambda: new_job("ingestion", mode="sync"),
    "dry run": lambda: new_job("ingestion", dry_run=True),
    "dry sync": lambda: new_job("ingestion", dry_run=True, mode="sync"),
}


@dataclass
class DrivenWorld:
    """One job, its tasks, and what is in Redis of it.

    Attributes:
        tasks: by id; None: it is open.
        size: so many documents are listed, and some more.
        nothing: tasks that stand there and came to nothing, such as those that somebody has cancelled.
    """

    job: Job[Any]
    rng: random.Random
    trouble: Trouble
    size: int
    tasks: dict[str, StageOutcome | None] = field(default_factory=dict)
    nothing: set[str] = field(default_factory=set)
    done: dict[int, DonePage] = field(default_factory=dict)
    rules: Rules = field(default_factory=lambda: Rules(LIMITS))
    names: int = 0
    ran: list[str] = field(default_factory=list)

    @property
    def record(self) -> Any:
        """The head of the job."""
        return self.job.record

    # ---- who moves it

    def drive(self) -> bool:
        """One move of the driver; whether there was one."""
        record, start = self.record, self._start()
        look = range(record.retry, min(record.retry_end, record.retry + LOOK))
        done = {number: self.done[number] for number in look if number in self.done}
        seen: Any = dict.fromkeys(name for name in self.job.task_ids() if name in self.tasks)
        job = replace(self.job, tasks=seen, done=done)
        outcomes = {name: outcome for name in seen if (outcome := self.tasks[name]) is not None}
        told = self.rules.told(job, outcomes, start)
        move = DRIVEN[0](job, outcomes, start, LIMITS)
        self.rules.check_move(job, told, move or Move(job), {*self.tasks, *self.nothing}, set(seen) - set(outcomes))
        if move is None:
            self.rules.check_idle(job, told)
            return False
        self.make(move)
        return True

    def _start(self) -> Mapping[str, Any] | JobError | str:
        """As the driver asks."""
        if self.record.status is not JobStatus.QUEUED or self.record.stop is not None:
            return ""
        if self.record.is_batch:
            return {}
        if self._happens("cannot"):
            return JobError("model_not_found", "There is none.")
        return self.rng.choice(["model", "model", "storage"]) if self._happens("absent") else BEGUN

    def make(self, move: Move | None) -> bool:
        """Does with it what the script does; whether there was one."""
        if move is None:
            return False
        for task_id in move.forget:
            self.tasks.pop(task_id, None)
            self.nothing.discard(task_id)
        for task_id in move.cancel:
            if task_id in self.tasks and self.tasks[task_id] is None:
                self.tasks[task_id] = _embedded(0)
        for task in move.new_tasks:
            if task.task_id not in self.nothing:
                self.tasks.setdefault(task.task_id, None)
        self.done |= move.done
        self.job = replace(self.job, record=move.record, pages=dict(sorted(move.pages.items())))
        self.rules.check(self.job, self.done, set(self.tasks))
        return True

    def settle(self) -> None:
        """Moves until nothing moves."""
        for _ in range(100):
            if not self.drive():
                return
        raise AssertionError("it moves for ever")

    def wait(self, seconds: float = 61) -> None:
        """Time passes."""
        self.job = replace(self.job, now_ms=self.job.now_ms + round(seconds * 1000))

    def wait_a_while(self) -> None:
        """Or to the last moment of a batch."""
        last_ms = self.job.created_ms + WINDOW_MS - 1 - self.job.now_ms
        self.wait(
            last_ms / 1000 if last_ms > 0 and self.rng.random() < 0.1 else self.rng.choice([0.001, 1, 8, 70, 300])
        )

    def cancel(self) -> None:
        """Its owner does."""
        self.make(cancel_job(self.job))

    def delete(self) -> None:
        """Its owner does."""
        self.make(delete_job(self.job))

    def fill(self) -> None:
        """Its owner's account has no room for what the next move keeps."""
        if not self.record.is_batch and not self.record.status.terminal:
            self.make(no_room(self.job))

    def retry(self) -> bool:
        """Its owner tries an ingestion again; whether there is anything to try."""
        move = retry_job(self.job) if isinstance(self.job, Ingestion) else None
        if move is not None:
            self.rules.retried(self.job.pages)
        return self.make(move)

    def lose(self) -> None:
        """Redis has lost a task; or somebody has cancelled it."""
        if self.tasks:
            self._lose(self.rng.choice(sorted(self.tasks)))

    def _lose(self, task_id: str) -> None:
        del self.tasks[task_id]
        self.rules.lost.add(task_id)
        if self.rng.random() < 0.5 and not task_id.endswith(Stage.EMBED):
            self.nothing.add(task_id)

    def strike(self) -> None:
        """One task is lost, a load if there is one, and another one fails for good, before the driver looks."""
        ready = [task_id for task_id, outcome in self.tasks.items() if outcome is None]
        ready.sort(key=lambda task_id: not task_id.endswith(Stage.LOAD))
        failed = self.rng.choice(ready[1:] or [Stage.EMBED])
        if not failed.endswith(Stage.EMBED):
            self._lose(ready[0])
            self.tasks[failed] = StageOutcome(error=JobError(_OF_ALL[0], "Never."))

    # ---- workers

    def work(self) -> bool:
        """One task comes to something; whether there was one."""
        ready = [task_id for task_id, outcome in self.tasks.items() if outcome is None]
        if not ready:
            return False
        task_id = self.rng.choice(ready)
        _, number, stage = task_id.rsplit("-", 2)
        self.ran.append(f"{number} {stage}")
        self.tasks[task_id] = self._outcome(int(number), Stage(stage))
        return True

    def _happens(self, what: str) -> bool:
        return self.rng.random() < self.trouble.get(what, 0)

    def _outcome(self, number: int, stage: Stage) -> StageOutcome:
        page = self.job.pages.get(number, Page())
        if stage is not Stage.EMBED:
            if self._happens("away"):
                return StageOutcome(away=self.rng.choice(["storage", "sink"]))
            if self._happens("lost"):
                return StageOutcome(lost=True)
            if self._happens("fatal"):
                return StageOutcome(error=JobError(self.rng.choice(_OF_ALL), "Never."))
            if self._happens("fault") and (stage is Stage.PARSE or self.rng.random() < 0.1):
                return StageOutcome(error=JobError(self.rng.choice(_OF_A_PAGE), "It is gone."))
        made: StageOutcome = getattr(self, f"_{stage}")(number, page)
        return made

    def _name(self) -> str:
        self.names += 1
        return f"o{self.names}"

    def _list(self, _: int, __: Page) -> StageOutcome:
        number = self.rng.choice([0, 1, 8, self.rng.randint(0, 16), 16] if self.size > 9 else [0, 1, 2])
        sizes = [self.rng.randint(1, 9) for _ in range(number)]
        pages = [{"obj": self._name(), "documents": size, "bytes": 10 * size} for size in sizes]
        cursor = None if self.rules.listed > self.size or self.rng.random() < 0.2 else {"at": self._name()}
        return StageOutcome({"pages": pages, "cursor": cursor, "dataset_id": "" if self.record.dry_run else "d"})

    def _parse(self, _: int, page: Page) -> StageOutcome:
        if self.record.is_batch:
            if self._happens("fault"):
                return StageOutcome({"errors": [{"code": "empty_file", "message": "It is empty."}]})
            file = {"obj": "", "rows": self._name(), "model": "m", "documents": 5, "chunks": 9, "chunk_tokens": 0}
            return StageOutcome(file | {"pieces": [(4, 9, 0, 9), (5, 9, 9, 9)]})
        size = page.size_bytes
        most = page.documents if page.was is None else page.was.counts.failed
        left = self.rng.randrange(most) if most and self.rng.random() < 0.2 else 0
        documents = max(0, page.documents - left + self.rng.choice([0, 0, -1, 3]))  # LIST has estimated
        made: dict[str, Any] = {"documents": documents}
        if left:
            size -= 10 * left
            rest = Counts(documents=left, failed=left, bytes=10 * left, kept=self.rng.randint(1, 99))
            made["rest"] = {"obj": self._name(), "documents": left, "bytes": 10 * left, "counts": [*rest]}
            made |= {"src": self._name(), "src_kept": self.rng.randint(1, 99), "bytes": size}
        if self.record.dry_run:
            failed = self.rng.randint(min(1, documents), documents) if self._happens("failed") else 0
            kept = self.rng.randint(1, 99)
            counts = Counts(documents=documents, loaded=documents - failed, failed=failed, bytes=size, kept=kept)
            return StageOutcome(made | {"obj": self._name(), "counts": [*counts]})
        chunks = self.rng.choice([0, 1, documents, 2 * documents, 3 * documents])
        pieces = [(chunks, chunks, 0, 9)] if chunks else []
        rows = self._name() if chunks else ""
        made |= {"obj": self._name(), "rows": rows, "chunks": chunks, "chunk_tokens": chunks, "pieces": pieces}
        return StageOutcome(made)

    def _embed(self, _: int, page: Page) -> StageOutcome:
        rows = self.rng.randint(0, page.chunks) if self._happens("short") else page.chunks
        failed = self.rng.randint(0, rows) if self._happens("short") else 0
        return _embedded(rows, failed, changed=self._happens("changed"))

    def _load(self, number: int, page: Page) -> StageOutcome:
        record = self.record
        embedded = self.tasks.get(record.task_id(number, Stage.EMBED))
        if self._happens("again") or (page.chunks and embedded is None):
            return StageOutcome({"again": True})
        if embedded is not None and embedded.made["model_changed"] and not record.is_batch:
            return StageOutcome(error=JobError("model_changed", "Workers came to serve another model."))
        all_fail = page.fault or self._happens("failed")
        failed = page.documents if all_fail else self.rng.randint(0, page.documents) if self._happens("failed") else 0
        counts = Counts(
            documents=page.documents, loaded=page.documents - failed, failed=failed, chunks=page.chunks,
            loaded_chunks=page.chunks, tokens=page.tokens, bytes=page.size_bytes, kept=self.rng.randint(1, 99),
        )  # fmt: skip
        made = {"obj": self._name(), "counts": [*counts]}
        return StageOutcome(made | {"files": self._files()} if record.is_batch else made)

    def _files(self) -> Mapping[str, Any]:
        kinds = self.rng.choice([("output",), ("output", "error")])
        made = {
            kind: FileRecord(
                id=f"file-{kind}", owner="o", filename=kind, purpose=Purpose.BATCH_OUTPUT, size_bytes=1,
                created_ms=1, expires_ms=2, stored=self._name(),
            )
            for kind in kinds
        }  # fmt: skip
        return {kind: file.model_dump() for kind, file in made.items()}

    def _finish(self, _: int, __: Page) -> StageOutcome:
        return StageOutcome({"deleted": self.rng.randint(1, 9), "empty_roots": ["path"]})


def _embedded(rows: int, failed: int = 0, *, changed: bool = False) -> StageOutcome:
    return StageOutcome({"rows": rows, "failed": failed, "tokens": 2 * rows, "model_changed": changed})


def to_the_end(world: DrivenWorld) -> None:
    """Good workers, and time."""
    world.trouble = NONE
    for _ in range(2000):
        world.settle()
        if world.record.status.terminal:
            return
        if not world.work():
            world.wait()
    raise AssertionError(f"{world.record.status} for ever: {world.job.pages}, {world.tasks}")
