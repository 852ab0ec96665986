"""Batches and ingestions as the product runs them, by hand: the one place that knows how it does that."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tasks.errors import EmbedqError, Unavailable
from tasks.ingestion.advance import JobLimits
from tasks.ingestion.context import Pace
from tasks.ingestion.driver import Driver
from tasks.ingestion.job_runner import JobRunner
from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError, Vector
from tasks.ledger.cancel import forget
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import CommitCode, commit
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import join, stop, watch
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Outcome, Piece
from tasks.records.batches import Batch, read_batch
from tasks.records.documents import read_documents
from tasks.records.files import file_id_of, list_files, read_file
from tasks.records.ingestions import Ingestion, IngestionRecord, new_ingestion_id, read_ingestion
from tasks.records.jobs import all_done, create_job
from tasks.records.moves import cancel_job, delete_job, retry_job
from tasks.records.store import ANY_ROOM, left_of
from tasks.storage.storage import Storage
from tasks.storage.sweep import Sweep
from tests.integration.api.ledger_worker import entry
from tests.integration.batches.hands import HOUR_MS, MODEL, STEP_S, embedded
from tests.integration.documents.ingestions.hands import DATASET, IngestionHands
from tests.ledger_builders import a_worker

PAGE_DOCUMENTS = 2
"""Of a page, so that a few files make several."""
PIECE_TEXTS = 2
LEASE_MS = 15_000
MODEL_QUEUE, DOCUMENTS_QUEUE = "model", "documents"
ENDED = frozenset({"completed", "failed", "cancelled", "expired", ""})
_LONG_MS = 10_000 * HOUR_MS
_CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 16, "chunk_overlap_tokens": 0}}
_TASK = "eq:task:"


class ListedDocument(NamedTuple):
    """A document as an ingestion says it: of a part that could not be listed, what is in its place."""

    id: str
    uri: str
    status: str
    code: str | None


@dataclass
class HeldClaim:
    """What a worker has claimed. `done`: what it will commit, once it has run; the engine's own.

    `texts`: that the model has encoded for it. `forgotten`: Redis has gone back since it was claimed.
    """

    worker: str
    queue: str
    token: str
    jobs: Collection[str]
    claim: Any
    done: list[Any] = field(default_factory=list)
    ran: bool = False
    texts: list[str] = field(default_factory=list)
    forgotten: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What an engine runs in.

    Attributes:
        folder: of datasets, and of what else it keeps on the disk.
        sources: the ingest root.
        encode: the model; may raise what ends its worker.
        progress: to be called while a job works; likewise.
    """

    ledger: Ledger
    storage: Storage
    folder: Path
    sources: Path
    encode: Callable[[str], Vector]
    progress: Callable[[], None]


class Engine:
    """Batches and ingestions, moved by hand. What is away raises nothing here: the engine waits for it."""

    dataset = DATASET
    """Name of the dataset that all ingestions load."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._ledger = around.ledger
        self._hands = IngestionHands(
            self._ledger, around.folder, storage=around.storage, ingest_roots=str(around.sources)
        )
        self._storage = self._hands.storage
        self._pace = Pace(PageLimits(files=PAGE_DOCUMENTS, records=PAGE_DOCUMENTS), listing_pages=2)
        self._sweeper_s = 0.0
        limits, settings = JobLimits(6, 18), self._hands.settings
        self._driver = Driver(self._ledger, self._storage, settings, limits=limits, clock=lambda: self._sweeper_s)
        self._sweep = Sweep(self._ledger, self._storage, self._hands.settings, lambda: self._sweeper_s)
        self._claims = 0
        self.serve(on=True)

    # ---- clients

    def begin_ingestion(
        self,
        owner: str,
        mode: str,
        *,
        dry_run: bool = False,
        urls: Sequence[str] = (),
        documents: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        job = new_ingestion_id()
        asked: dict[str, Any] = {"sink": {"type": "dataset", "dataset": DATASET}, "mode": mode, "model": MODEL}
        asked |= {"chunking": _CHUNKING, **({"dry_run": True} if dry_run else {})}
        if urls:
            asked["source"] = {"urls": list(urls)}
        else:
            asked |= {"source": {"documents": len(documents)}, "listed": f"{owner}/{job}/listed.jsonl"}
            self._storage.write(asked["listed"], b"".join(orjson.dumps(one) + b"\n" for one in documents))
        record = IngestionRecord(id=job, owner=owner, request=asked, model=MODEL, ttl_ms=_LONG_MS)
        return self._ledger.run(create_job(record, ANY_ROOM))

    def begin_batch(self, owner: str, lines: Sequence[Mapping[str, Any]], window_ms: int) -> str:
        return self._hands.create([dict(line) for line in lines], owner=owner, window_ms=window_ms, ttl_ms=_LONG_MS)

    def cancel(self, job: str) -> bool:
        return self._move(job, cancel_job)

    def retry(self, job: str) -> bool:
        found = self._ingestion(job)
        if found is None or found.deleted:
            return False
        return self._move(job, retry_job)

    def delete(self, job: str) -> bool:
        return self._move(job, lambda found: delete_job(found) if found.record.status.terminal else None)

    def _move(self, job: str, change: Any) -> bool:
        found = self._batch(job) or self._ingestion(job)
        move = None if found is None else change(found)
        return move is not None and self._ledger.run(move.operation()) is not None

    # ---- workers

    def serve(self, *, on: bool) -> None:
        worker = a_worker("hand")
        self._ledger.run(join(MODEL, worker, entry(MODEL), _LONG_MS) if on else stop(MODEL, worker.id))

    def step(self) -> None:
        self.advance_time(round(STEP_S * 1000))
        with contextlib.suppress(Unavailable):
            self._driver()

    def claim(self, worker: str, queue: str) -> HeldClaim | None:
        self._claims += 1
        name = MODEL if queue == MODEL_QUEUE else DOCUMENTS
        asked = ClaimRequest(
            stream=f"{worker}/0",
            token=f"{worker}/0/{self._claims}",
            budget=10**9,
            max_pieces=1,
            lease_ms=LEASE_MS,
            stamp=entry(MODEL).stamp if name == MODEL else "",
        )
        taken = self._ledger.run(claim(name, asked))
        jobs = [piece.task_id.split("-")[0] for piece in taken.pieces]
        return HeldClaim(worker, name, taken.token, jobs, taken) if taken.pieces else None

    def run(self, held: HeldClaim) -> None:
        held.ran = True
        for piece in held.claim.pieces:
            try:
                work = self._encoded if held.queue == MODEL else self._job
                held.done.append(work(piece, held.token))
            except Unavailable:
                held.done.clear()
                self.give_back(held, blame=False)

    def commit(self, held: HeldClaim) -> bool:
        codes = self._ledger.run(commit(held.queue, held.token, held.done)).codes if held.done else []
        return all(code is not CommitCode.STALE for code in codes)

    def give_back(self, held: HeldClaim, *, blame: bool) -> None:
        self._ledger.run(give_back(held.queue, held.token, blame=blame))

    def sweep(self) -> None:
        for queue in (DOCUMENTS, MODEL):
            self._ledger.run(watch(queue))
        self._sweep()

    def advance_time(self, ms: int) -> None:
        self._sweeper_s += max(0, ms) / 1000
        self._ledger.frozen_ms = (self._ledger.frozen_ms or 0) + ms

    def lose_task(self, name: str) -> None:
        task = self._ledger.run(read_task(name))
        if task is not None:
            self._ledger.run(forget(task.queue, name))

    def _job(self, piece: Piece, token: str) -> Outcome:
        runner = JobRunner(self._ledger, self._storage, self._hands.settings, stop=lambda: False, pace=self._pace)
        return runner.outcome(piece, token, self._storage, self._around.progress)

    def _encoded(self, piece: Piece, token: str) -> Outcome:
        try:
            return embedded(self._storage, piece, token, entry(MODEL).revision, self._vector)
        except Unavailable:
            raise
        except EmbedqError as error:  # right for a worker whose claim is lost
            return Outcome(piece, b"", errors={piece.first + n: TextError(error.code, "") for n in range(piece.items)})

    def _vector(self, row: Mapping[str, Any]) -> Vector:
        text = row.get("text")
        bad = Vector.failed(TextError("invalid_request", "This row has no text."))
        return bad if text is None else self._around.encode(text)

    # ---- what is there

    def status(self, job: str) -> str:
        found = self._batch(job) or self._ingestion(job)
        return "" if found is None or found.deleted else str(found.status)

    def waits(self, job: str) -> str:
        found = self._batch(job) or self._ingestion(job)
        return found.record.wait.what if found and found.record.wait else ""

    def counts(self, job: str) -> Mapping[str, int]:
        if batch := self._batch(job):
            return batch.counts._asdict()
        found = self._ingestion(job)
        assert found is not None
        names = ("documents", "loaded", "unchanged", "failed", "cancelled", "deleted", "chunks", "tokens")
        return {name: getattr(found.counts, name) for name in names}

    def kept(self, job: str) -> tuple[int, int]:
        """Bytes of what became of its documents: as it says, and as they are in the storage."""
        found = self._ingestion(job)
        assert found is not None
        pages = self._ledger.run(all_done(job, "ingestion")).values()
        return found.record.standing().counts["stored"], sum(len(self._storage.read(page.obj)) for page in pages)

    def unexplained(self, owner: str) -> int:
        """Bytes in the account of an owner that are of no file."""
        files = self._ledger.run(list_files(owner)).records
        return self._ledger.run(left_of(owner)).stored_bytes - sum(
            file.record.size_bytes for file in files if file.record
        )

    def documents(self, job: str) -> Sequence[ListedDocument]:
        return [
            ListedDocument(line.id, line.uri, str(line.status), line.code)
            for _, page in sorted(self._ledger.run(all_done(job, "ingestion")).items())
            for line in read_documents(self._storage, page.obj)
        ]

    def batch_lines(self, job: str) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        batch = self._batch(job)
        assert batch is not None
        return self._hands.lines(batch.output_file_id), self._hands.lines(batch.error_file_id)

    def named(self, job: str) -> Collection[str]:
        names: set[str] = set()
        if batch := self._batch(job):
            files = [batch.input_file_id, batch.output_file_id, batch.error_file_id]
            records = [self._ledger.run(read_file(file_id)) for file_id in files if file_id]
            return names | {record.stored for record in records if record is not None}
        found = self._ingestion(job)
        if found is not None and not found.deleted:
            names = {page.obj for page in self._ledger.run(all_done(job, "ingestion")).values()}
            goes_on = not found.record.status.terminal or retry_job(found) is not None
            for page in found.pages.values() if goes_on else ():
                names |= {page.src, page.obj, page.rows}
        return names - {""}

    def open_tasks(self) -> Sequence[str]:
        found = self._ledger.client.scan_iter(f"{_TASK}*")
        return sorted(key.decode().removeprefix(_TASK) for key in found)

    def objects(self) -> Collection[str]:
        found = [stored.name for stored in self._storage.stored("anonymous")]
        return [name for name in found if not self._is_recorded(name)]

    def _is_recorded(self, name: str) -> bool:
        record = self._ledger.run(read_file(file_id)) if (file_id := file_id_of(name)) else None
        return record is not None and record.stored == name

    def _ingestion(self, job: str) -> Ingestion | None:
        return None if _is_batch(job) else self._ledger.run(read_ingestion(job))

    def _batch(self, job: str) -> Batch | None:
        return self._ledger.run(read_batch(job)) if _is_batch(job) else None


def _is_batch(job: str) -> bool:
    return job.startswith("batch_")


def save(ledger: Ledger) -> dict[bytes, bytes]:
    """All that Redis holds."""
    keys = list(ledger.client.scan_iter("*"))
    return {key: value for key in keys if (value := ledger.client.dump(key)) is not None}


def restore(ledger: Ledger, saved: Mapping[bytes, bytes]) -> None:
    """Redis goes back to what it was."""
    for key in ledger.client.scan_iter("*"):
        ledger.client.delete(key)
    for key, value in saved.items():
        ledger.client.restore(key, 0, value, replace=True)
