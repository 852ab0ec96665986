"""A source, clients, workers and an engine; what happens to them, one thing at a time, and what must hold after it."""

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.item import TextError, Vector
from tasks.ledger import task
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import DOCUMENTS
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import MODEL, request
from tests.integration.documents.ingestions.hands import DATASET
from tests.simulation.jobs.engine import CHUNKING, ENDED, OWNER, PIECE_TEXTS, Engine, HeldClaim, restore, save
from tests.simulation.jobs.faults import Died, Faults, faulty_storage, in_the_way
from tests.simulation.jobs.witness import Witness

FILES = [("a", name) for name in "stux"] + [("b", name) for name in "xyz"]
WORKERS = ("w0", "w1", "w2")
QUEUES = (DOCUMENTS, DOCUMENTS, MODEL)
MINUTE_MS = 61_000
BACK_MS = 30_000
"""So far a Redis goes back at most: nothing is removed for a minute."""
CODES = frozenset(
    {"gone", "changed", "unreadable", "binary_file", "no_text", "empty_document", "emptied", "unknown_encoding"}
    | {"not_embedded", "worker_lost", "duplicate_document_id", "superseded", "sick", "no_match"}
)
"""Of documents."""


@dataclass
class JobSeen:
    """What a client knows of its job.

    Attributes:
        must: places that have stood still in the source since it was begun.
        rows: texts of a batch that were embedded, and their answers taken.
        doubtful: a worker died, or Redis went back, so that its record need not know all that it has done.
        retried: what it lists is not all of the source.
    """

    mode: str = ""
    dry: bool = False
    must: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    doubtful: bool = False
    retried: bool = False
    forgotten: bool = False
    """Redis has gone back to before it."""

    @property
    def batch(self) -> bool:
        return bool(self.texts)


class JobWorld:
    """See the module."""

    def __init__(self, rng: random.Random, ledger: Ledger, folder: Path) -> None:
        self.rng, self.ledger = rng, ledger
        self.faults = Faults()
        self.sick, self.killers, self.served = False, True, True
        self.source = folder / "src"
        for root in "ab":
            (self.source / root).mkdir(parents=True)
        storage = faulty_storage(folder / "storage", self.faults)
        self.engine = Engine(ledger, storage, folder, encode=self._encode, progress=self.faults.call)
        self.witness = Witness(SqliteDatasets(folder / "datasets"), OWNER, DATASET)
        self.storage_folder = folder / "storage"
        self.jobs: dict[str, JobSeen] = {}
        self.moving: list[str] = []
        self.held: dict[str, HeldClaim] = {}
        self.zombies: list[HeldClaim] = []
        self.encoded: list[str] = []
        self.saved: list[tuple[int, int, dict[bytes, bytes]]] = []
        """When, how many jobs had been begun, and what Redis held."""
        self.orphans: set[str] = set()
        """Objects of which a Redis that went back has forgotten whose they are: files have ids of their own."""
        self.now_ms = self.texts = 0

    # ---- the source

    def place(self, root: str, name: str) -> str:
        """URI of a file."""
        return f"file://{self.source}/{root}/{name}.txt"

    def change(self, root: str, name: str, content: bytes | None) -> None:
        """A file is written, or goes."""
        folder = self.source / root
        path = (folder if folder.is_dir() else self.source / f".{root}") / f"{name}.txt"
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)
        for job in self.jobs.values():
            job.must.discard(self.place(root, name))

    def break_root(self, root: str) -> None:
        """A disk goes, or comes back."""
        folder, away = self.source / root, self.source / f".{root}"
        if away.is_dir():
            away.rename(folder)
        else:
            folder.rename(away)
        for job in self.jobs.values():
            job.must = {place for place in job.must if f"/src/{root}/" not in place}

    def mend_roots(self) -> None:
        """All disks are there."""
        for root in "ab":
            if not (self.source / root).is_dir():
                self.break_root(root)

    # ---- clients

    def ingest(self, mode: str, *, dry: bool, roots: str) -> None:
        """An ingestion of some roots; "": of documents in the request."""
        source: Any = {"urls": [f"file://{self.source}/{root}/**" for root in roots]}
        there = {self.place(r, n) for r, n in FILES if r in roots and (self.source / r / f"{n}.txt").exists()}
        if not roots:
            ids = self.rng.choices(["src/a/s.txt", "src/b/y.txt", "inline", "other"], k=self.rng.randint(1, 4))
            source = [{"id": name, "text": f"inline {self.rng.randint(1, 3)}"} for name in ids]
            there = {f"inline:{name}#{line}" for line, name in enumerate(ids, 1)}
        asked: dict[str, Any] = {"mode": mode, "chunking": CHUNKING, **({"dry_run": True} if dry else {})}
        job = (self.engine.ingest if roots else self.engine.documents)(source, **asked)
        self._begun(job, JobSeen(mode, dry, there))
        self.witness.roots[job] = [f"file://{self.source}/{root}" for root in roots]
        if dry:
            self.witness.dry.add(job)

    def batch(self, window_ms: int) -> None:
        """A batch of rows that no other batch has."""
        texts = []
        for _ in range(self.rng.randint(1, 7)):
            self.texts += 1
            texts.append(f"{self.rng.choice(['row', 'row', 'row', 'row', 'sick', 'kill'])} {self.texts}")
        job = self.engine.create([request(each, each) for each in texts], window_ms=window_ms)
        self._begun(job, JobSeen(texts=texts))

    def _begun(self, job: str, seen: JobSeen) -> None:
        self.jobs[job] = seen
        self.moving.append(job)

    def client(self, what: str, job: str) -> None:
        """Cancels, tries again, or deletes."""
        if self.engine.ask(what, job):
            self.jobs[job].retried |= what == "retry"
            self.look_at_all()

    def open_jobs(self) -> list[str]:
        """Those that have not ended."""
        return [job for job in self.moving if self.engine.status(job) not in ENDED]

    # ---- the engine's processes

    @contextmanager
    def dying(self, calls: int | None) -> Iterator[None]:
        """A process that dies in so many calls, if it is not done by then."""
        self.faults.dies_in = calls
        try:
            yield
        finally:
            self.faults.dies_in = None

    def step(self, dies_in: int | None = None) -> None:
        """One step of the driver."""
        self.now_ms += 250
        with suppress(Died), self.dying(dies_in):
            self.engine.step()

    def work(self, worker: str, queue: str, dies_in: int | None = None) -> bool:
        """A worker claims, or runs what it has claimed, or commits what it has run; whether there was something."""
        held = self.held.get(worker)
        if held is None:
            found = self.engine.take(worker, queue)
            if found is not None:
                self.held[worker] = found
            return found is not None
        try:
            with self.dying(dies_in):
                if not held.ran:
                    self._run(held)
                else:
                    self._commit(held)
                    del self.held[worker]
        except Died:
            self.die(worker)
        return True

    def _run(self, held: HeldClaim) -> None:
        self.encoded = []
        loses = self.faults.sink_loses
        self.engine.run(held)
        held.texts = list(self.encoded)
        if held.forgotten:
            self.orphans |= self._attempts()
        if loses != self.faults.sink_loses or not held.done:
            self.doubt(held)

    def _commit(self, held: HeldClaim) -> None:
        taken = self.engine.commit(held)
        for job in held.jobs if taken and held.done else ():
            if self.jobs[job].batch:
                self.jobs[job].rows |= set(held.texts)

    def doubt(self, held: HeldClaim) -> None:
        """What it has done need not be known to the record of its job."""
        for job in held.jobs:
            self.jobs[job].doubtful = True

    def die(self, worker: str) -> None:
        """It is gone, and what it held; its successor says so, or the claim ends by itself."""
        held = self.held.pop(worker, None)
        if held is not None:
            self.doubt(held)
            if self.rng.random() < 0.7:
                self.engine.give_back(held, blame=True)

    def hang(self, worker: str) -> None:
        """It stands still, and goes on when nobody expects it any more."""
        if worker not in self.held:
            self.work(worker, self.rng.choice(QUEUES))
        held = self.held.pop(worker, None)
        if held is not None:
            self.doubt(held)
            self.zombies.append(held)

    def zombie(self) -> None:
        """One that stood still goes on."""
        if self.zombies:
            held = self.zombies.pop(self.rng.randrange(len(self.zombies)))
            with suppress(Died):
                if not held.ran:
                    self._run(held)
                self._commit(held)

    def _encode(self, text: str) -> Vector:
        if "kill" in text and self.killers:
            raise Died
        if "sick" in text and self.sick:
            return Vector.failed(TextError("sick", "The model is sick."))
        self.encoded.append(text)
        return Vector(vector(text), 1, truncated=False)

    def serve(self, *, on: bool) -> None:
        """The model's worker comes or goes."""
        self.served = on
        self.engine.serve(on=on)

    def sweep(self) -> None:
        """The sweep."""
        if not self.faults.storage_away:
            self.engine.sweep_once()
            self.look_at_all()

    # ---- time, and a Redis that goes back

    def tick(self, ms: int) -> None:
        """Time passes."""
        self.now_ms += max(ms, 0)
        self.engine.wait(ms / 1000)

    def save(self) -> None:
        """What Redis may come back to."""
        self.saved = [*self.saved, (self.now_ms, len(self.jobs), save(self.ledger))][-3:]

    def go_back(self) -> None:
        """Redis has lost the last seconds."""
        good = [each for each in self.saved if self.now_ms - each[0] <= BACK_MS]
        if not good:
            return
        named = self._named()
        attempts = self._attempts()
        self.saved = [each for each in self.saved if each[0] <= good[0][0]]
        _, begun, redis = good[0]
        restore(self.ledger, redis)
        self.tick(1000)  # orders stay unique
        for number, seen in enumerate(self.jobs.values()):
            seen.doubtful = True
            seen.forgotten |= number >= begun
        self.orphans |= (named | attempts) - self._named()
        for held in (*self.held.values(), *self.zombies):
            held.forgotten = True
        self.look_at_all()

    def _attempts(self) -> set[str]:
        """Files that no record has, written for batches."""
        away, self.faults.storage_away = self.faults.storage_away, False
        found = {name for name in self.engine.objects() if not any(job in name for job in self.jobs)}
        self.faults.storage_away = away
        return found

    def _named(self) -> set[str]:
        return {name for job in self.jobs for name in self.engine.named(job)}

    def lose(self) -> None:
        """Redis has lost a task, by whatever hand."""
        tasks = self.engine.open_tasks()
        if tasks:
            name = self.rng.choice(tasks)
            for job in self.jobs:
                self.jobs[job].doubtful |= job in name
            self.engine.lose_task(name)

    # ---- what must hold

    def look_at_all(self) -> None:
        """Something has happened to jobs that have ended, too."""
        self.moving = list(self.jobs)

    def check(self) -> None:
        """After each step."""
        self.witness.check()
        for job in list(self.moving):
            status = self.engine.status(job)
            if status:
                counts, names = self.engine.counts(job), self.engine.named(job)
                assert all(count >= 0 for count in counts.values()), f"{job}: {counts}"
                missing = [name for name in names if not (self.storage_folder / name).is_file()]
                assert not missing, f"{job} {status} names {missing}"
            if status in ENDED:
                self.moving.remove(job)

    def rest(self) -> None:
        """An open job that rests has a task under way, or says what it waits for."""
        if self.faults.storage_away:
            return
        for _ in range(8):
            self.step()
        tasks = self.engine.open_tasks()
        for job in self.open_jobs():
            assert self.engine.waits(job) or any(job in name for name in tasks), f"{job} waits for nothing"


@contextmanager
def jobs_world(rng: random.Random, client: Any) -> Iterator[JobWorld]:
    """A world on an empty Redis, in a folder of its own."""
    client.flushall()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(patch.object(task, "PIECE_TEXTS", PIECE_TEXTS))
        ledger = Ledger(client)
        ledger.frozen_ms = int(client.time()[0]) * 1000
        world = JobWorld(rng, ledger, folder)
        stack.enter_context(in_the_way(world.faults, world.witness))
        yield world
