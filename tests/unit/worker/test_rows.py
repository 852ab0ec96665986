"""What a worker reads from the storage and writes to it: rows, parts, its tokenizer; and how they wait for it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files
from tasks.storage.storage import Storage
from tasks.worker.tokenizer_store import keep_tokenizer_stored
from tests.processes import wait_until


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
