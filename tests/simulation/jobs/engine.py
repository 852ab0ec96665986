"""Batches and ingestions as the product runs them, by hand: the one place that knows how it does that."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.errors import EmbedqError, Unavailable
from tasks.ingestion.advance import JobLimits
from tasks.ingestion.context import Pace
from tasks.ingestion.job_runner import JobRunner
from tasks.ingestion.sources.page import PageLimits
from tasks.item import TextError, Vector
from tasks.ledger.cancel import forget
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import CommitCode, commit
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import join, stop, watch
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Outcome, Piece
from tasks.records.batches import is_batch_id, read_batch
from tasks.records.documents import Document
from tasks.records.files import file_id_of, list_files, read_file
from tasks.records.ingestions import read_ingestion
from tasks.records.jobs import all_done
from tasks.records.moves import Move, cancel_job, delete_job, retry_job
from tasks.records.store import left_of
from tasks.storage.storage import Storage
from tests.integration.api.ledger_worker import entry
from tests.integration.batches.hands import HOUR_MS, MODEL, STEP_S, embedded
from tests.integration.documents.ingestions.hands import IngestionHands
from tests.ledger_builders import a_worker

Progress = Callable[[], None]
PIECE_TEXTS = 2
OWNER = "anonymous"
ENDED = frozenset({"completed", "failed", "cancelled", "expired", ""})
LONG_MS = 10_000 * HOUR_MS
CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 16, "chunk_overlap_tokens": 0}}


@dataclass
class HeldClaim:
    """What a worker has claimed.

    Attributes:
        done: what it will commit, once it has run.
        texts: that the model has encoded for it.
        forgotten: Redis has gone back since it was claimed.
    """

    queue: str
    claim: Claim
    done: list[Outcome] = field(default_factory=list)
    ran: bool = False
    texts: list[str] = field(default_factory=list)
    forgotten: bool = False

    @property
    def jobs(self) -> list[str]:
        return [piece.task_id.split("-")[0] for piece in self.claim.pieces]


class Engine(IngestionHands):
    """Its clock stands still. What is away raises nothing here: the engine waits for it.

    Args:
        folder: of the source, `src`, and the datasets.
        encode: the model; may raise what ends its worker.
        progress: to be called while a job works; likewise.
    """

    def __init__(
        self, ledger: Ledger, storage: Storage, folder: Path, *, encode: Callable[[str], Vector], progress: Progress
    ) -> None:
        super().__init__(ledger, folder, storage=storage, ingest_roots=str(folder / "src"))
        self._encode_text, self._progress = encode, progress
        self.pace = Pace(PageLimits(files=2, records=2), listing_pages=2)
        self.driver.limits = JobLimits(6, 18)
        self.serve(on=True)

    # ---- clients

    def ask(self, what: str, job: str) -> bool:
        """Cancels, tries again, or deletes; whether it could."""
        found = self.found(job)
        if found is None or (what == "retry" and (is_batch_id(job) or found.deleted)):
            return False
        if what == "delete" and not found.record.status.terminal:
            return False
        moves: dict[str, Callable[[Any], Move | None]] = {
            "cancel": cancel_job,
            "retry": retry_job,
            "delete": delete_job,
        }
        return self.move(moves[what], found)

    # ---- workers

    def serve(self, *, on: bool) -> None:
        worker = a_worker("hand")
        self.ledger.run(join(MODEL, worker, entry(MODEL), LONG_MS) if on else stop(MODEL, worker.id))

    def wait(self, seconds: float) -> None:
        self.clock_s += max(0, seconds)
        self.ledger.frozen_ms = (self.ledger.frozen_ms or 0) + round(seconds * 1000)

    def step(self) -> None:
        self.wait(STEP_S)
        with contextlib.suppress(Unavailable):
            self.driver()

    def take(self, worker: str, queue: str) -> HeldClaim | None:
        self.claims += 1
        asked = ClaimRequest(
            stream=f"{worker}/0",
            token=f"{worker}/0/{self.claims}",
            budget=10**9,
            max_pieces=1,
            lease_ms=15_000,
            stamp=entry(MODEL).stamp if queue == MODEL else "",
        )
        taken = self.ledger.run(claim(queue, asked))
        return HeldClaim(queue, taken) if taken.pieces else None

    def run(self, held: HeldClaim) -> None:
        held.ran = True
        for piece in held.claim.pieces:
            try:
                held.done.append((self._encoded if held.queue == MODEL else self._job)(piece, held.claim.token))
            except Unavailable:
                held.done.clear()
                self.give_back(held, blame=False)

    def commit(self, held: HeldClaim) -> bool:
        codes = self.ledger.run(commit(held.queue, held.claim.token, held.done)).codes if held.done else []
        return all(code is not CommitCode.STALE for code in codes)

    def give_back(self, held: HeldClaim, *, blame: bool) -> None:
        self.ledger.run(give_back(held.queue, held.claim.token, blame=blame))

    def sweep_once(self) -> None:
        for queue in (DOCUMENTS, MODEL):
            self.ledger.run(watch(queue))
        self._sweep()

    def lose_task(self, name: str) -> None:
        task = self.ledger.run(read_task(name.removeprefix("eq:task:")))
        if task is not None:
            self.ledger.run(forget(task.queue, task.id))

    def _job(self, piece: Piece, token: str) -> Outcome:
        runner = JobRunner(self.ledger, self.storage, self.settings, stop=lambda: False, pace=self.pace)
        return runner.outcome(piece, token, self.storage, self._progress)

    def _encoded(self, piece: Piece, token: str) -> Outcome:
        try:
            return embedded(self.storage, piece, token, entry(MODEL).revision, self._vector)
        except Unavailable:
            raise
        except EmbedqError as error:  # right for a worker whose claim is lost
            return Outcome(piece, b"", errors={piece.first + n: TextError(error.code, "") for n in range(piece.items)})

    def _vector(self, row: Mapping[str, Any]) -> Vector:
        text = row.get("text")
        bad = Vector.failed(TextError("invalid_request", "This row has no text."))
        return bad if text is None else self._encode_text(text)

    # ---- what is there

    def found(self, job: str) -> Any:
        """Its batch or ingestion; None: there is none."""
        return self.ledger.run(read_batch(job)) if is_batch_id(job) else self.ledger.run(read_ingestion(job))

    def status(self, job: str) -> str:
        found = self.found(job)
        return "" if found is None or found.deleted else str(found.status)

    def waits(self, job: str) -> str:
        found = self.found(job)
        return found.record.wait.what if found and found.record.wait else ""

    def counts(self, job: str) -> Mapping[str, int]:
        counts: Mapping[str, int] = self.found(job).counts._asdict()
        return counts

    def kept(self, job: str) -> tuple[int, int]:
        """Bytes of what became of its documents: as it says, and as they are in the storage."""
        pages = self.ledger.run(all_done(job, "ingestion")).values()
        return self.found(job).record.standing().counts["stored"], sum(
            len(self.storage.read(page.obj)) for page in pages
        )

    def unexplained(self) -> int:
        """Bytes in the account of the owner that are of no file."""
        files = self.ledger.run(list_files(OWNER)).records
        of_files = sum(file.record.size_bytes for file in files if file.record)
        return self.ledger.run(left_of(OWNER)).stored_bytes - of_files

    def told(self, job: str) -> Sequence[Document]:
        """What became of documents, in the order of pages; ids may come twice."""
        return self._documents(job)

    def named(self, job: str) -> Collection[str]:
        """Objects that its record names."""
        found = self.found(job)
        if found is None:
            return set()
        if is_batch_id(job):
            files = [found.input_file_id, found.output_file_id, found.error_file_id]
            records = [self.ledger.run(read_file(file_id)) for file_id in files if file_id]
            return {record.stored for record in records if record is not None}
        if found.deleted:
            return set()
        names = {page.obj for page in self.ledger.run(all_done(job, "ingestion")).values()}
        goes_on = not found.record.status.terminal or retry_job(found) is not None
        for page in found.pages.values() if goes_on else ():
            names |= {page.src, page.obj, page.rows}
        return names - {""}

    def objects(self) -> Collection[str]:
        """Those that are of no file."""
        found = [stored.name for stored in self.storage.stored(OWNER)]
        return [name for name in found if not self._is_recorded(name)]

    def _is_recorded(self, name: str) -> bool:
        record = self.ledger.run(read_file(file_id)) if (file_id := file_id_of(name)) else None
        return record is not None and record.stored == name


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
