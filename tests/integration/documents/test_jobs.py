"""A real documents worker: what becomes of jobs, whatever dies."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import redis

from tasks.errors import NotStored
from tasks.ingestion.job_runner import STAGES, JobRunner
from tasks.ingestion.repeating_thread import Repeating
from tasks.item import Options
from tasks.ledger.client import Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.overview import read_account
from tasks.ledger.read import read_result
from tasks.ledger.redis_keys import DOCUMENTS, JOBS_CHANNEL
from tasks.ledger.submit import submit
from tasks.ledger.task import Admission, Lane, NewTask, Result, State
from tasks.records.batches import BatchRecord, new_batch_id
from tasks.records.jobs import Stage, create_job
from tasks.records.stage_tasks import StageCall
from tasks.records.store import ANY_ROOM
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import Streams
from tasks.worker.idle_wait import Wakeup
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, RedisServer, Roles, wait_until
from tests.worker_child import a_child

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


QUICK: dict[str, Any] = {"lease_s": 2}


def test_a_job_that_fails_unforeseen_is_given_up_after_three_more_tries(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    worker = roles.documents(module=TRIAL)
    bad = documents.submit_job("broken", "secret-text")
    good = documents.submit_job("echo", "good")
    assert documents.ended(bad).state is State.FAILED
    assert documents.committed(bad).errors[0].code == "worker_lost"
    assert runs(storage, "secret-text") == 4
    assert documents.ended(good).state is State.COMPLETED
    assert "ZeroDivisionError" in worker.log()
    assert "secret-text" not in worker.log()


def test_what_is_away_is_what_a_job_comes_to(roles: Roles, documents: DocumentsClient) -> None:
    worker = roles.documents(module=TRIAL, **QUICK)
    assert documents.answer(documents.submit_job("away", "job")) == {"away": "storage"}
    wait_until(lambda: documents.overview().storage_outage, message="the worker says so")
    documents.answer(documents.submit_job("echo", "job"))
    wait_until(lambda: documents.overview().storage_outage is None, message="that it goes on")
    assert "a job waits: The storage is away." in worker.log()


def test_a_stop_gives_the_job_back_and_does_not_wait_for_it(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    worker = roles.documents(module=TRIAL)
    task = documents.submit_job("slow", "job")
    wait_until(lambda: runs(storage, "job") == 1, message="the first run")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    overview = documents.overview()
    assert (overview.leases, overview.workers, overview.counters.get("lost_leases", 0)) == (0, (), 0)
    assert documents.task(task).state is State.IN_PROGRESS
    storage.write("go/job", b"1")
    worker.start()
    assert documents.ended(task).state is State.COMPLETED


def test_the_documents_queue_is_no_model(roles: Roles, documents: DocumentsClient) -> None:
    api = roles.api()
    task = documents.submit_job("echo", "job")
    with api.client() as client:
        # No worker has ever lived: who looks after the queues in the web tier is who rings.
        wait_until(lambda: 'embedq_bells_total{model="@documents"}' in client.get("/metrics").text)
        roles.documents(module=TRIAL)
        assert documents.answer(task)["id"] == "job"
        wait_until(lambda: 'embedq_workers{model="@documents"} 1.0' in client.get("/metrics").text)
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [
            "sentence-transformers/all-MiniLM-L6-v2"
        ]
        refused = client.post("/v1/embeddings", json={"model": "@documents", "input": "a text"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (httpx.codes.NOT_FOUND, "model_not_found")
        ready = client.get("/health/ready")
        assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert ready.json()["error"]["param"] == "worker"


def _taken(storage: Storage) -> int:
    try:
        return int(storage.read("rounds"))
    except NotStored:
        return 0


def test_rounds_go_on_whatever_they_raise_and_after_an_outage(
    private_redis: RedisServer, private_roles: Roles, storage: Storage
) -> None:
    worker = private_roles.documents(module=TRIAL)
    wait_until(lambda: _taken(storage) >= 2, message="the rounds")
    private_redis.kill()
    wait_until(lambda: "the driver waits: ConnectionError" in worker.log(), message="a round that misses Redis")
    child = worker.child_pid
    private_redis.start()
    before = _taken(storage)
    wait_until(lambda: _taken(storage) > before, message="a round after the outage")
    with private_redis.client() as connection:
        documents = DocumentsClient(Ledger(connection))
        assert documents.answer(documents.submit_job("echo", "job"))["id"] == "job"
    assert worker.child_pid == child
    assert worker.log().count("the driver waits: ZeroDivisionError") == 2, "once before and once after"


def test_a_driver_that_hangs_loses_its_process_and_the_sweep_holds_up_nothing(roles: Roles, storage: Storage) -> None:
    worker = roles.worker(module=TRIAL, start=False, lease_s=2)
    worker.command.append("1")
    child = worker.start().child_pid
    wait_until(lambda: any(storage.stored("sweeps")), message="a sweep that never ends")
    before = _taken(storage)
    wait_until(lambda: _taken(storage) >= before + 2, message="rounds beside it")
    storage.write("hang/driver", b"1")
    wait_until(lambda: "the work has stood still for too long" in worker.log(), message="the notice")
    wait_until(lambda: worker.child_pid != child, message="another process")
    wait_until(lambda: 0 < _taken(storage) < before + 2, message="its rounds")


def test_a_new_job_wakes_a_driver_that_has_nothing_to_do(redis_client: redis.Redis) -> None:
    first, second, ledger = threading.Event(), threading.Event(), Ledger(redis_client)

    def note(_: Callable[[], None]) -> None:
        (second if first.is_set() else first).set()

    rounds = Repeating("driver", note, every_s=3600, bell=Wakeup(ledger, JOBS_CHANNEL))
    rounds.start()
    assert first.wait(PATIENCE_S)
    asked = {"input_file_id": "file-none", "completion_window": "24h"}
    record = BatchRecord(id=new_batch_id(), owner="o", request=asked, ttl_ms=1000, window_ms=1000)
    ledger.run(create_job(record, ANY_ROOM))
    assert second.wait(PATIENCE_S), "it was not woken"
    rounds.finish()


def test_the_owner_of_a_job_pays_for_the_time_it_took(
    redis_client: "redis.Redis", documents: DocumentsClient, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, ("batch", Stage.PARSE), lambda _: {})
    now, ledger, child = iter((100.0, 140.0, 200.0, 200.1)), Ledger(redis_client), a_child("hand")
    work = JobRunner(ledger, storage, child.settings, stop=child.shared.stopping, clock=lambda: next(now))
    streams = Streams(child, ledger, DOCUMENTS, work, idle_s=0.1)
    for name, debt in (("long", 39), ("short", 0)):
        documents.submit_job("nothing", name)
        streams.wake(rang=False)
        wait_until(lambda: not streams._awake, message="sleep")
        assert ledger.run(read_account("anonymous")).numbers.get("debt:@documents", 0) == pytest.approx(debt)
    child.shared.stop()
    streams.finish(30)
