"""A job that takes long: sending a large file to a slow bucket is work, and its owner pays for the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.ingestion.context import StageContext
from tasks.ingestion.job_runner import STAGES, JobRunner
from tasks.ledger.client import Ledger
from tasks.ledger.overview import read_account
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.jobs import Stage
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import Streams
from tasks.worker.process.hangs import HangWatch
from tests.integration.documents.conftest import DocumentsClient
from tests.processes import wait_until
from tests.worker_child import a_child

PATIENCE_S, PIECE_S, PIECES = 10, 8, 5


@contextmanager
def stream(redis_client: "redis.Redis", storage: str, **changed: Any) -> Iterator[Streams]:
    """One stream of jobs."""
    ledger, child = Ledger(redis_client), a_child("hand")
    stop = child.shared.stopping
    work = JobRunner(ledger, Storage.open(storage), child.settings, stop=stop, **changed)
    streams = Streams(child, ledger, DOCUMENTS, work, idle_s=0.1)
    try:
        yield streams
    finally:
        child.shared.stop()
        streams.finish(30)


def test_each_piece_of_an_upload_counts_as_progress(
    redis_client: "redis.Redis", documents: DocumentsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = 0.0, []

    class Slow:
        def write(self, _: bytearray) -> None:
            nonlocal now
            seen.append(hangs())
            now += PIECE_S

        def close(self) -> None:
            pass

    monkeypatch.setattr("obstore.open_writer", lambda *_, **__: Slow())
    task_id = documents.submit_job("send", "large")
    with stream(redis_client, "memory://slow") as streams:
        hangs = HangWatch(streams.progress[0].reading, PATIENCE_S, lambda: now)
        streams.wake(rang=False)
        wait_until(lambda: not streams._awake, message="sleep")
    assert documents.answer(task_id) == {}
    assert seen == [False] * (PIECES + 1)  # the last one ends it


def test_the_owner_of_a_job_pays_for_the_time_it_took(
    redis_client: "redis.Redis", documents: DocumentsClient, tmp_path: Path
) -> None:
    now = iter((100.0, 140.0, 200.0, 200.1))
    with stream(redis_client, str(tmp_path), clock=lambda: next(now)) as streams:
        for name, debt in (("long", 39), ("short", 0)):
            documents.submit_job("send", name)
            streams.wake(rang=False)
            wait_until(lambda: not streams._awake, message="sleep")
            account = Ledger(redis_client).run(read_account("anonymous"))
            assert account.numbers.get("debt:@documents", 0) == pytest.approx(debt)


@pytest.fixture(autouse=True)
def _send(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage writes one object."""

    def send(context: StageContext) -> dict[str, Any]:
        with context.storage.writing(context.name("x")) as writer:
            for _ in range(PIECES):
                writer.write(bytes(2**20 if context.job.record.request["name"] == "large" else 1))
        return {}

    monkeypatch.setitem(STAGES, ("batch", Stage.PARSE), send)
