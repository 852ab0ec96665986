"""A job that takes long: sending a large file to a slow bucket is work, and its owner pays for the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from fsspec.implementations.memory import MemoryFileSystem

from stack.testing import wait_until
from tasks.documents.claims import JobWork
from tasks.documents.context import JobContext
from tasks.documents.sinks.parquet.receipt_index import index_of
from tasks.ledger.client import Ledger
from tasks.ledger.overview import read_account
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import Streams
from tasks.worker.process.hangs import HangWatch
from tests.integration.documents.conftest import DocumentsClient
from tests.worker_child import a_child

PATIENCE_S, PIECE_S, PIECES = 10, 8, 5


@contextmanager
def stream(redis_client: "redis.Redis", storage: str, **changed: Any) -> Iterator[Streams]:
    """One stream of jobs."""
    ledger, child = Ledger(redis_client), a_child("hand")
    stop = child.shared.stopping
    work = JobWork(ledger, Storage.open(storage), child.settings, jobs={"send": send}, stop=stop, **changed)
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

    def slow(_: MemoryFileSystem, lpath: str, rpath: str, callback: Any, **__: Any) -> None:
        nonlocal now
        for _ in range(PIECES):
            seen.append(hangs())
            now += PIECE_S
            callback.relative_update(1)

    monkeypatch.setattr(MemoryFileSystem, "put_file", slow)
    task_id = documents.submit_job("send", "file")
    with stream(redis_client, "memory://slow") as streams:
        hangs = HangWatch(streams.progress[0].reading, PATIENCE_S, lambda: now)
        streams.wake(rang=False)
        wait_until(lambda: not streams._awake, message="sleep")
    assert documents.answer(task_id) == {}
    assert seen == [False] * PIECES


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


def test_what_a_job_has_learned_of_the_storage_the_next_one_knows(
    redis_client: "redis.Redis", documents: DocumentsClient, tmp_path: Path
) -> None:
    """Receipts of a dataset are learned once: with each job anew, a million documents took four times as long."""
    storages.clear()
    with stream(redis_client, str(tmp_path)) as streams:
        for name in ("one", "two", "three"):
            documents.submit_job("send", name)
        streams.wake(rang=False)
        wait_until(lambda: len(storages) == 3 and not streams._awake, message="three jobs")
    assert len({id(index_of(storage, "docs")) for storage in storages}) == 1


storages: list[Storage] = []


def send(context: JobContext, job_id: str) -> bytes:
    """Writes one object."""
    context.storage.write(f"files/{job_id}", b"x")
    storages.append(context.storage)
    return b"{}"
