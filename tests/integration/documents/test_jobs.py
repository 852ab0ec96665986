"""A real documents worker: what the web tier says of it, who wakes it, and how it shares its time and stops."""

import signal
import threading
from collections.abc import Callable
from functools import partial

import httpx
import psutil
import redis

from tasks.ingestion.repeating_thread import Repeating
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS, JOBS_CHANNEL
from tasks.records.batches import BatchRecord, new_batch_id
from tasks.records.files import put_file
from tasks.records.ingestions import IngestionRecord, IngestionStatus, new_ingestion_id, read_ingestion
from tasks.records.jobs import create_job
from tasks.records.store import ANY_ROOM
from tasks.storage.storage import Storage
from tasks.worker.idle_wait import Wakeup
from tests.made_files import made_file
from tests.processes import PATIENCE_S, Roles, wait_until
from worker_config.settings import DEFAULT_MODEL


def test_the_documents_queue_is_no_model(roles: Roles) -> None:
    api = roles.api()
    roles.documents()
    with api.client() as client:
        wait_until(lambda: 'embedq_workers{model="@documents"} 1.0' in client.get("/metrics").text)
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [DEFAULT_MODEL]
        refused = client.post("/v1/embeddings", json={"model": "@documents", "input": "a text"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (httpx.codes.NOT_FOUND, "model_not_found")
        ready = client.get("/health/ready")
        assert (ready.status_code, ready.json()["error"]["param"]) == (httpx.codes.SERVICE_UNAVAILABLE, "worker")


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


def test_one_owners_page_that_does_not_end_delays_nobody_else(roles: Roles, redis_client: redis.Redis) -> None:
    folder, ledger = roles.folder / "storage", Ledger(redis_client)
    roles.worker(storage_url=str(folder))
    documents = roles.documents(storage_url=str(folder), parse_timeout_s=PATIENCE_S)

    def ingest(owner: str, name: str, data: bytes) -> str:
        file = made_file(len(data), owner=owner, filename=name)
        Storage.open(str(folder)).write(file.stored, data)
        ledger.run(put_file(file))
        asked = {"source": {"files": [file.id]}, "sink": {"type": "dataset"}, "mode": "skip_unchanged"}
        request = asked | {"model": DEFAULT_MODEL}
        made = IngestionRecord(
            id=new_ingestion_id(), owner=owner, request=request, model=DEFAULT_MODEL, ttl_ms=3_600_000
        )
        return ledger.run(create_job(made, ANY_ROOM))

    def ended(ingestion_id: str) -> bool:
        found = ledger.run(read_ingestion(ingestion_id))
        assert found is not None
        assert found.record.owner == "hostile" or found.status is not IngestionStatus.FAILED
        return found.status.terminal

    def parsers() -> list[psutil.Process]:
        found = psutil.Process(documents.child_pid).children()
        return [child for child in found if child.is_running() and "sandbox_child" in " ".join(child.cmdline())]

    hostile = [ingest("hostile", "long.html", b"<main>" * 40_000) for _ in range(3)]  # busy for a second or so
    [parser] = wait_until(parsers, message="a page is parsed")
    parser.suspend()
    for n in range(3):
        small = ingest("small", f"{n}.txt", b"a short text")
        wait_until(partial(ended, small), message="the end of another owner's")
    assert parsers() == [parser], "its owner has one stream of two"
    assert not any(map(ended, hostile))

    documents.send(signal.SIGTERM)
    assert documents.wait() == 0
    assert not parser.is_running()
    queue = ledger.run(overview(DOCUMENTS))[DOCUMENTS]
    assert (queue.leases, queue.workers, queue.counters.get("lost_leases", 0)) == (0, (), 0), "it is given back"
    documents.start()
    for each in hostile:
        wait_until(partial(ended, each), message="the end of the others")
