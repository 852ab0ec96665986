"""What a worker reads from the storage and writes to it: rows, parts, its tokenizer; and how they wait for it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files
from tasks.storage.rows_file import RowsReference
from tasks.storage.storage import Storage
from tasks.worker.rows import LONGEST_PAUSE_S, NO_TROUBLE, TOLD_S, RowStore
from tasks.worker.tokenizer_store import keep_tokenizer_stored
from tests.ledger_builders import a_model
from tests.processes import wait_until

MODEL = a_model()
REFERENCES = [RowsReference(f"anonymous/batch_{n}/1.rows.0", 0, 9) for n in range(10)]


def test_rows_wait_together_and_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, asked = [100.0], []

    def away() -> Storage:
        asked.append(now[0])
        raise StorageUnavailable("It does not answer.", retry_after_s=10)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rows = RowStore(away, MODEL, "r1")
    assert rows.trouble == NO_TROUBLE
    for _ in range(400):
        assert [rows.texts(reference, 0, 4) for reference in REFERENCES] == [None] * 10
        now[0] += 0.1
    pauses = np.diff(asked)
    assert pauses[:3] == pytest.approx([1, 2, 4], abs=0.15)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S, abs=0.15)
    assert caplog.text.count("batches wait: ") == 1
    assert (rows.trouble.code, rows.trouble.detail) == ("storage_unavailable", "It does not answer.")
    now[0] += TOLD_S
    assert rows.trouble == NO_TROUBLE, "others have done these rows meanwhile"


def test_a_tokenizer_is_stored_once_the_storage_is_there_and_whenever_it_vanishes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries, stopped = iter(range(10**9)), threading.Event()

    def late() -> Storage:
        if next(tries) < 4:
            raise StorageUnavailable("away", retry_after_s=1)
        return Storage.open(str(tmp_path))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(keep_tokenizer_stored, late, FakeEncoder(), stopped, check_every_s=0.001)
        try:
            for n in range(3):
                wait_until(lambda: has_model_files(Storage.open(str(tmp_path)), "fake"))
                (tmp_path / "models").rename(tmp_path / f"gone-{n}")
        finally:
            stopped.set()
    assert running.result(30) is None
    assert [record.message for record in caplog.records] == ["ingestions wait for the tokenizer to be stored: away"]
