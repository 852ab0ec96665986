"""A job that takes long: sending a large file to a slow bucket is work, and its owner pays for the time."""

from pathlib import Path
from typing import Any

import pytest
import redis
from fsspec.implementations.memory import MemoryFileSystem

from tasks.documents.claims import JobWork
from tasks.documents.context import JobContext
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.storage.storage import Storage
from tests.integration.documents.conftest import DocumentsClient
from worker_config.settings import load_settings

PATIENCE_S, PIECE_S, PIECES = 10, 8, 5


def test_each_piece_of_an_upload_counts_as_progress(
    redis_client: "redis.Redis", documents: DocumentsClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now, seen = 0.0, []
    progress = Progress()
    hangs = progress.hang_watch(PATIENCE_S, outside_s=PATIENCE_S, clock=lambda: now)

    def slow(_: MemoryFileSystem, lpath: str, rpath: str, callback: Any, **__: Any) -> None:
        nonlocal now
        for _ in range(PIECES):
            seen.append(hangs())
            now += PIECE_S
            callback.relative_update(1)

    monkeypatch.setattr(MemoryFileSystem, "put_file", slow)
    ledger, settings = Ledger(redis_client), load_settings(run_dir=str(tmp_path))
    work = JobWork(
        ledger,
        Storage.open("memory://slow"),
        settings,
        jobs={"send": send},
        committer=Committer(ledger, DOCUMENTS, patience_s=10, stop=lambda: False),
        progress=progress,
        stop=lambda: False,
    )
    task_id = documents.submit_job("send", "file")
    work(_claim(ledger), lambda **_: pytest.fail("a job is not interrupted"))
    assert documents.answer(task_id) == {}
    assert seen == [False] * PIECES


def test_the_owner_of_a_job_pays_for_the_time_it_took(
    redis_client: "redis.Redis", documents: DocumentsClient, tmp_path: Path
) -> None:
    ledger, now = Ledger(redis_client), iter((100.0, 140.0, 200.0, 200.1))
    work = JobWork(
        ledger,
        Storage.open(str(tmp_path)),
        load_settings(run_dir=str(tmp_path)),
        jobs={"send": send},
        committer=Committer(ledger, DOCUMENTS, patience_s=10, stop=lambda: False),
        progress=Progress(),
        stop=lambda: False,
        clock=lambda: next(now),
    )
    for name, cost in (("long", b"40"), ("short", b"41")):
        documents.submit_job("send", name)
        work(_claim(ledger), lambda **_: pytest.fail("a job is not interrupted"))
        assert redis_client.hget(f"eq:q:{DOCUMENTS}:state", "pass_bulk:anonymous") == cost


def send(context: JobContext, job_id: str) -> bytes:
    """Writes one object."""
    context.storage.write(f"files/{job_id}", b"x")
    return b"{}"


def _claim(ledger: Ledger) -> Claim:
    asked = ClaimRequest(worker="hand", token="hand/1", budget=10**9, max_units=1, lease_ms=15_000)
    return ledger.run(claim(DOCUMENTS, asked))
