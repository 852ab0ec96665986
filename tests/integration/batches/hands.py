"""Both workers of a batch by hand, in the test's process: real ledger, real storage, real jobs, predictable vectors."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tasks.documents.batches.steps import step_batches
from tasks.documents.claims import failed_job
from tasks.documents.context import JobContext, Pace, Postponed, StepContext
from tasks.documents.jobs import JOBS
from tasks.documents.sweep import sweep_litter
from tasks.errors import EmbedqError, Unavailable
from tasks.item import TextError, Vector
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import commit
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import join, watch
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Outcome, Piece
from tasks.records.batches import Batch, BatchStatus, NewBatch, create_batch, new_batch_id, open_batches, read_batch
from tasks.records.document_jobs import JobCall
from tasks.records.files import Purpose, put_file, read_file
from tasks.storage.row_file import RowReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartWriter, part_name
from tests.integration.api.ledger_worker import DIMENSION, entry, vector
from tests.ledger_builders import a_worker
from tests.made_files import made_file
from worker_config.settings import load_settings

MODEL = "test/model"
HOUR_MS = 3_600_000
GRACE_S = 61.0
"""After it the sweep deletes what an end has left."""
STEP_S = 0.25
"""Between two steps."""


def request(custom_id: str, texts: str | list[str], **body: Any) -> dict[str, Any]:
    """One line of a batch."""
    fields = {"model": MODEL, "input": texts} | body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": fields}


class Hands:
    """One Redis, one storage. `bad` maps texts to their errors. The `deadly` ones kill.

    `ran`: how often each job was begun, by kind and id; those in `deadly_jobs` kill too. `asked_again`: how often steps
    asked for the next round at once. `pace`: of jobs and steps.
    `meanwhile`: happens once, in the middle of the next job.
    """

    def __init__(self, ledger: Ledger, folder: Path, *, storage: Storage | None = None, **settings: Any) -> None:
        self.ledger = ledger
        self.storage = storage or Storage.open(str(folder))
        self.settings = load_settings(**({"served_name": MODEL} | settings))
        self.bad: dict[str, TextError] = {}
        self.deadly: set[str] = set()
        self.deadly_jobs: set[str] = set()
        self.claims = 0
        self.ran: Counter[str] = Counter()
        self.clock_s = 0.0
        self.postponed = Postponed(lambda: self.clock_s)
        self.asked_again = 0
        self.pace = Pace()
        self.meanwhile: Callable[[], object] | None = None
        ledger.run(join(MODEL, a_worker("hand"), entry(MODEL), HOUR_MS))

    def serve_revision(self, revision: str) -> None:
        """Its worker comes again with another revision of the model."""
        self.ledger.run(join(MODEL, a_worker("hand"), replace(entry(MODEL), revision=revision), HOUR_MS))

    # ---- callers

    def upload(self, data: bytes, *, owner: str = "anonymous", purpose: Purpose = Purpose.BATCH) -> str:
        """A stored file's id."""
        record = made_file(len(data), owner=owner, purpose=purpose)
        self.storage.write(record.stored, data)
        self.ledger.run(put_file(record))
        return record.id

    def create(self, requests: Sequence[dict[str, Any]] | bytes, **changed: Any) -> str:
        """A batch over a new file; its id."""
        data = requests if isinstance(requests, bytes) else b"\n".join(orjson.dumps(line) for line in requests)
        return self.create_over(self.upload(data, owner=changed.get("owner", "anonymous")), **changed)

    def create_over(self, file_id: str, **changed: Any) -> str:
        """A batch over a file; its id."""
        values: dict[str, Any] = {"owner": "anonymous", "window_ms": 24 * HOUR_MS, "ttl_ms": HOUR_MS} | changed
        batch = NewBatch(new_batch_id(), input_file_id=file_id, completion_window="24h", **values)
        return self.ledger.run(create_batch(batch))

    def batch(self, batch_id: str) -> Batch:
        """It as it is now."""
        batch = self.ledger.run(read_batch(batch_id))
        assert batch is not None
        return batch

    def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        """What a file holds; nothing for none."""
        if file_id is None:
            return []
        record = self.ledger.run(read_file(file_id))
        assert record is not None
        assert (record.purpose, record.filename[-6:]) == (Purpose.BATCH_OUTPUT, ".jsonl")
        data = self.storage.read(record.stored)
        assert len(data) == record.size_bytes
        return [orjson.loads(line) for line in data.splitlines()]

    def output(self, batch_id: str) -> bytes:
        """The output file of a batch."""
        record = self.ledger.run(read_file(self.batch(batch_id).output_file_id or ""))
        assert record is not None
        return self.storage.read(record.stored)

    # ---- workers

    @property
    def step_context(self) -> StepContext:
        """What steps get."""
        return StepContext(
            self.ledger,
            self.storage,
            self.settings,
            send_bell=lambda _: None,
            stop=lambda: False,
            again=self._again,
            postponed=self.postponed,
            pace=self.pace,
        )

    def step(self) -> None:
        """One step of the documents worker, a quarter of a second after the one before."""
        self.clock_s += STEP_S
        step_batches(self.step_context)

    def sweep(self, after_s: float = GRACE_S) -> int:
        """What the sweep of the documents worker deletes so much later; how many entries it looks at."""
        self.ledger.clock_offset_ms += round(after_s * 1000)
        try:
            self.ledger.run(watch(DOCUMENTS))  # as somebody does all the time
            return sweep_litter(self.storage, self.ledger)
        finally:
            self.ledger.clock_offset_ms -= round(after_s * 1000)

    def _again(self) -> None:
        self.asked_again += 1

    def round_trips(self) -> int:
        """Takes one step; how often it asked the ledger."""
        self.ledger.client.config_resetstat()
        self.step()
        stats = self.ledger.client.info("commandstats")
        return sum(entry["calls"] for name, entry in stats.items() if name in {"cmdstat_evalsha", "cmdstat_eval"})

    def work_documents(self, limit: int = 100) -> int:
        """Runs what jobs are ready; their number."""
        taken = self.claim(DOCUMENTS, limit)
        for piece in taken.pieces:
            call = JobCall.from_payload(piece.payload)
            self.ran[f"{call.kind} {call.id}"] += 1
            if f"{call.kind} {call.id}" in self.deadly_jobs:
                self.ledger.run(give_back(DOCUMENTS, taken.token, blame=True))
                break
            try:
                finished = self._run(call, piece, taken.token)
            except Unavailable:
                self.ledger.run(give_back(DOCUMENTS, taken.token))
                break
            self.ledger.run(commit(DOCUMENTS, taken.token, [finished]))
        self.ledger.run(give_back(DOCUMENTS, taken.token))  # one that is committed in portions ends so
        return len(taken.pieces)

    def _run(self, call: JobCall, piece: Piece, token: str) -> Outcome:
        context = JobContext(
            self.ledger, self.storage, self.settings, token, self.progress, lambda: False, pace=self.pace
        )
        try:
            outcome = JOBS[call.kind](context, call.id)
        except Unavailable:
            raise
        except EmbedqError as error:
            return failed_job(piece, error)
        return Outcome(piece, outcome)

    def progress(self) -> None:
        """Called by jobs while they work."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()

    def at_pace(self, **changed: Any) -> None:
        """Jobs and steps do less at a time, or more."""
        self.pace = replace(self.pace, **changed)

    def work_model(self, limit: int = 1000) -> int:
        """Encodes what pieces are ready; their number."""
        taken = self.claim(MODEL, limit)
        registered = self.ledger.run(overview(MODEL))[MODEL].model
        assert registered is not None
        for piece in taken.pieces:
            reference = RowReference.from_payload(piece.payload)
            assert reference is not None
            lines = read_rows(self.storage, reference, reference.first + piece.offset, piece.items)
            rows = [orjson.loads(line) for line in lines]
            if any(row.get("text") in self.deadly for row in rows):
                self.ledger.run(give_back(MODEL, taken.token, blame=True))
                break
            outcomes = [self._encode(row) for row in rows]
            name = f"{part_name(reference, taken.token)}{piece.first}"
            with self.storage.writing(name) as file:
                part = PartWriter(name, file.write, registered.revision).add(outcomes)
            failed = sum(outcome.error is not None for outcome in outcomes)
            tokens = sum(outcome.tokens for outcome in outcomes)
            done = Outcome(piece, part.to_json(), tokens, failed_in_part=failed)
            self.ledger.run(commit(MODEL, taken.token, [done]))
        self.ledger.run(give_back(MODEL, taken.token))
        return len(taken.pieces)

    def work(self) -> None:
        """Steps and works until nothing moves any more."""
        idle = 0
        while idle < 3:
            self.step()
            idle = 0 if self.work_documents() + self.work_model() else idle + 1

    def until(self, condition: Callable[[], object], *, model: bool = True, documents: bool = True) -> None:
        """Steps and works until something is so."""
        for _ in range(50):
            if condition():
                return
            self.step()
            if documents:
                self.work_documents()
            if model:
                self.work_model()
        raise AssertionError("it never came to this")

    @property
    def stamp(self) -> str:
        """Of the model that is served now."""
        served = self.ledger.run(overview(MODEL))[MODEL].model
        assert served is not None
        return served.stamp

    def claim(self, queue: str, limit: int) -> Claim:
        """Takes pieces of a queue."""
        self.claims += 1
        asked = ClaimRequest(
            stream="hand/0",
            token=f"hand/0/{self.claims}",
            budget=10**9,
            max_pieces=limit,
            lease_ms=15_000,
            stamp=self.stamp if queue == MODEL else "",
        )
        return self.ledger.run(claim(queue, asked))

    def _encode(self, row: dict[str, Any]) -> Vector:
        text = row.get("text")
        if text is None or text in self.bad:
            return Vector.failed(self.bad[text] if text else TextError("invalid_request", "This row has no text."))
        dimension = int(row["options"].get("dimensions") or DIMENSION)
        return Vector(vector(text)[:dimension], tokens=1, truncated=text.startswith("long"))


def nothing_is_left(hands: Hands, batch: Batch) -> None:
    """Fails when an ended batch has left a task, an object, or work for a step."""
    assert batch.stages == {}
    hands.sweep()
    assert list(hands.storage.stored(f"batches/{batch.id}")) == []
    assert hands.ledger.run(open_batches(10)) == []


def half_way(hands: Hands, **changed: Any) -> str:
    """A batch of 10 rows of which the first piece, 4 rows, is done."""
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(10)], **changed)
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.IN_PROGRESS, model=False)
    assert hands.work_model(limit=1) == 1
    return batch_id
