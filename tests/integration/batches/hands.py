"""Both workers of a batch by hand, in the test's process: real ledger, real storage, real jobs, predictable vectors."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tasks.ingestion.context import Pace
from tasks.ingestion.driver import Driver
from tasks.ingestion.job_runner import JobRunner
from tasks.item import TextError, Vector
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import commit
from tasks.ledger.give_back import give_back
from tasks.ledger.heartbeat import join, watch
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Outcome, Piece
from tasks.records.batches import Batch, BatchRecord, new_batch_id, read_batch
from tasks.records.files import Purpose, put_file, read_file
from tasks.records.jobs import Job, create_job, read_tasks_of
from tasks.records.moves import Move
from tasks.records.stage_tasks import StageCall
from tasks.records.storage_identity import StorageProof
from tasks.records.store import ANY_ROOM
from tasks.storage.rows_file import RowsReference, read_rows
from tasks.storage.storage import Storage
from tasks.storage.sweep import GRACE_S, Sweep
from tasks.storage.vectors_file import VectorsWriter, vectors_name
from tests.integration.api.ledger_worker import DIMENSION, entry, vector
from tests.ledger_builders import a_worker
from tests.made_files import made_file
from worker_config.settings import load_settings

MODEL = "test/model"
HOUR_MS = 3_600_000
STEP_S = 0.25
"""Between two steps."""


def request(custom_id: str, texts: str | list[str], **body: Any) -> dict[str, Any]:
    fields = {"model": MODEL, "input": texts} | body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": fields}


class Hands:
    """One Redis, one storage. `bad` maps texts to their errors.

    `ran`: how often each stage was begun, as "{page} {stage}" of a job; those in `deadly_stages` kill their worker.
    `pace`: how much is done at a time.
    """

    def __init__(self, ledger: Ledger, folder: Path, *, storage: Storage | None = None, **settings: Any) -> None:
        self.ledger = ledger
        plain = storage or Storage.open(str(folder))
        self.storage = plain.proved(StorageProof(plain, ledger.run))
        self.settings = load_settings(**({"served_name": MODEL, "datasets": str(folder / "datasets")} | settings))
        self.bad: dict[str, TextError] = {}
        self.deadly_stages: set[str] = set()
        self.claims = 0
        self.ran: Counter[str] = Counter()
        self.clock_s = 0.0
        self.pace = Pace()
        self.driver = Driver(ledger, self.storage, self.settings, clock=lambda: self.clock_s)
        self._sweep = Sweep(ledger, self.storage, self.settings, lambda: self.clock_s)
        ledger.run(join(MODEL, a_worker("hand"), entry(MODEL), HOUR_MS))

    def serve_revision(self, revision: str) -> None:
        self.ledger.run(join(MODEL, a_worker("hand"), replace(entry(MODEL), revision=revision), HOUR_MS))

    def file(self, name: str, data: bytes, *, owner: str = "anonymous", purpose: Purpose = Purpose.USER_DATA) -> str:
        """An uploaded file's id."""
        record = made_file(len(data), filename=name, owner=owner, purpose=purpose)
        self.storage.write(record.stored, data)
        self.ledger.run(put_file(record))
        return record.id

    def create(self, requests: Sequence[dict[str, Any]] | bytes, *, owner: str = "anonymous", **changed: Any) -> str:
        data = requests if isinstance(requests, bytes) else b"\n".join(orjson.dumps(line) for line in requests)
        file_id = self.file("in.jsonl", data, owner=owner, purpose=Purpose.BATCH)
        return self.create_over(file_id, owner=owner, **changed)

    def create_over(self, file_id: str, **changed: Any) -> str:
        values: dict[str, Any] = {"owner": "anonymous", "window_ms": 24 * HOUR_MS, "ttl_ms": HOUR_MS} | changed
        asked = {"input_file_id": file_id, "completion_window": "24h"}
        asked |= {name: values.pop(name) for name in ("only_file_id", "output_expires_s", "metadata") if name in values}
        return self.ledger.run(create_job(BatchRecord(id=new_batch_id(), request=asked, **values), ANY_ROOM))

    def batch(self, batch_id: str) -> Batch:
        batch = self.ledger.run(read_batch(batch_id))
        assert batch is not None
        [seen] = self.ledger.run(read_tasks_of([batch]))
        return seen

    def move(self, change: Callable[[Any], Move | None], job: Job[Any]) -> bool:
        move = change(job)
        return move is not None and self.ledger.run(move.operation()) is not None

    def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        record = self.ledger.run(read_file(file_id))
        assert record is not None
        assert (record.purpose, record.filename[-6:]) == (Purpose.BATCH_OUTPUT, ".jsonl")
        data = self.storage.read(record.stored)
        assert len(data) == record.size_bytes
        return [orjson.loads(line) for line in data.splitlines()]

    def step(self) -> None:
        """One round of the driver, a quarter of a second after the one before."""
        self.wait(STEP_S)
        self.driver()

    def wait(self, seconds: float) -> None:
        """Lets time pass, for whoever looks at a clock."""
        self.clock_s += seconds
        self.ledger.clock_offset_ms += round(seconds * 1000)

    def look(self, after_s: float = 0.0) -> None:
        """One look of the sweep, so much later."""
        self.wait(after_s)
        self._sweep()

    def sweep(self) -> None:
        """What the sweep deletes of what it sees now, a minute later."""
        for _ in range(2):  # whoever takes a storage over waits for the next look
            self.look()
        self.wait(GRACE_S + 1)
        self.ledger.run(watch(DOCUMENTS))  # as somebody does all the time
        self.look()

    def work_documents(self, limit: int = 100) -> int:
        taken = self.claim(DOCUMENTS, limit)
        runner = JobRunner(self.ledger, self.storage, self.settings, stop=lambda: False, pace=self.pace)
        for piece in taken.pieces:
            call = StageCall.from_payload(piece.payload)
            name = f"{call.number} {call.stage}"
            self.ran[name] += 1
            if name in self.deadly_stages:
                self.ledger.run(give_back(DOCUMENTS, taken.token, blame=True))
                break
            finished = runner.outcome(piece, taken.token, self.storage, lambda: None)
            self.ledger.run(commit(DOCUMENTS, taken.token, [finished]))
        self.ledger.run(give_back(DOCUMENTS, taken.token))  # one that is committed in portions ends so
        return len(taken.pieces)

    def at_pace(self, **changed: Any) -> None:
        self.pace = replace(self.pace, **changed)

    def work_model(self, limit: int = 1000) -> int:
        taken = self.claim(MODEL, limit)
        registered = self.ledger.run(overview(MODEL))[MODEL].model
        assert registered is not None
        for piece in taken.pieces:
            done = embedded(self.storage, piece, taken.token, registered.revision, self._encode)
            self.ledger.run(commit(MODEL, taken.token, [done]))
        self.ledger.run(give_back(MODEL, taken.token))
        return len(taken.pieces)

    def work(self) -> None:
        idle = 0
        while idle < 6:
            self.step()
            idle = 0 if self.work_documents() + self.work_model() else idle + 1

    def until(self, condition: Callable[[], object], *, model: bool = True) -> None:
        for _ in range(50):
            if condition():
                return
            self.step()
            if condition():
                return
            self.work_documents()
            if model:
                self.work_model()
        raise AssertionError("it never came to this")

    def claim(self, queue: str, limit: int) -> Claim:
        self.claims += 1
        served = self.ledger.run(overview(MODEL))[MODEL].model
        asked = ClaimRequest(
            stream="hand/0",
            token=f"hand/0/{self.claims}",
            budget=10**9,
            max_pieces=limit,
            lease_ms=15_000,
            stamp=served.stamp if served and queue == MODEL else "",
        )
        return self.ledger.run(claim(queue, asked))

    def _encode(self, row: dict[str, Any]) -> Vector:
        text = row.get("text")
        if text is None or text in self.bad:
            return Vector.failed(self.bad[text] if text else TextError("invalid_request", "This row has no text."))
        dimension = int(row["options"].get("dimensions") or DIMENSION)
        return Vector(vector(text)[:dimension], tokens=1, truncated=text.startswith("long"))


def embedded(
    storage: Storage, piece: Piece, token: str, revision: str, encode: Callable[[dict[str, Any]], Vector]
) -> Outcome:
    """What a worker of the model has for a piece, when its vectors are stored. `encode`: one row."""
    reference = RowsReference.from_payload(piece.payload)
    assert reference is not None
    rows = [encode(orjson.loads(line)) for line in read_rows(storage, reference, piece.offset, piece.items)]
    name = f"{vectors_name(reference, token)}{piece.task_id}.{piece.first}"
    with storage.writing(name) as file:
        part = VectorsWriter(name, file.write, revision).add(rows)
    failed = sum(row.error is not None for row in rows)
    return Outcome(piece, part.to_json(), sum(row.tokens for row in rows), failed_in_part=failed)
