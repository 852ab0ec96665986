"""The documents queue and the storage beside the worker under test."""

from pathlib import Path

import orjson
import pytest
import redis

from tasks.item import Options
from tasks.ledger.client import Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_result
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.submit import submit
from tasks.ledger.task import Admission, Lane, NewTask, Result
from tasks.records.batches import BatchRecord, new_batch_id
from tasks.records.jobs import Stage, create_job
from tasks.records.stage_tasks import StageCall
from tasks.records.store import ANY_ROOM
from tasks.storage.storage import Storage
from tests.ledger_client import LedgerClient

TRIAL = "tests.integration.documents.trial"


class DocumentsClient(LedgerClient):
    """One caller on the documents queue."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger, DOCUMENTS)

    def submit_job(self, kind: str, job_id: str) -> str:
        """Stores a task that runs what the trial calls so; its id."""
        asked = {"trial": kind, "name": job_id, "input_file_id": "file-none", "completion_window": "24h"}
        record = BatchRecord(id=new_batch_id(), owner="anonymous", request=asked, ttl_ms=600_000, window_ms=600_000)
        self.ledger.run(create_job(record, ANY_ROOM))
        submission = NewTask(
            task_id=new_task_id(),
            queue=DOCUMENTS,
            lane=Lane.BULK,
            owner="anonymous",
            pieces=[StageCall("batch", record.id, 0, Stage.PARSE).to_piece()],
            options=Options(),
            ttl_ms=600_000,
            admission=Admission(max_backlog_s=1e6),
        )
        return self.ledger.run(submit(submission)).task_id

    def committed(self, task_id: str) -> Result:
        """What the job left in the ledger."""
        found = self.ledger.run(read_result(task_id))
        assert found is not None
        return found

    def answer(self, task_id: str) -> dict[str, object]:
        """What the job returned, once it has."""
        self.ended(task_id)
        (piece,) = self.committed(task_id).pieces
        answer: dict[str, object] = orjson.loads(piece.data)
        return answer


@pytest.fixture
def documents(redis_client: "redis.Redis") -> DocumentsClient:
    return DocumentsClient(Ledger(redis_client))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The one that roles started in the same folder use by default."""
    return Storage.open(str(tmp_path / ".embedq" / "storage"))


def runs(storage: Storage, job_id: str) -> int:
    """How often a job has been started."""
    return len(list(storage.stored(f"runs/{job_id}")))
