"""The model worker's tokenizer on its way into the storage."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Encoder
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files
from tasks.storage.storage import Storage
from tasks.worker.tokenizer_store import keep_tokenizer_stored
from tests.processes import wait_until


@contextmanager
def kept(storage: Callable[[], Storage], encoder: Encoder) -> Iterator[Future[None]]:
    """Meanwhile they are kept in the storage; ends when that has ended."""
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(keep_tokenizer_stored, storage, encoder, stopped, check_every_s=0.001)
        try:
            yield running
        finally:
            stopped.set()
    assert running.result(30) is None


def test_what_vanishes_from_the_storage_is_stored_again(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    with kept(lambda: storage, FakeEncoder()):
        for n in range(2):
            wait_until(lambda: has_model_files(storage, "fake"))
            (tmp_path / "models").rename(tmp_path / f"gone-{n}")
        wait_until(lambda: has_model_files(storage, "fake"))


def test_a_storage_that_is_away_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    def late() -> Storage:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StorageUnavailable("away", retry_after_s=1)
        return Storage.open(str(tmp_path))

    with kept(late, FakeEncoder()):
        wait_until(lambda: has_model_files(Storage.open(str(tmp_path)), "fake"))
    assert [record.message for record in caplog.records] == ["ingestions wait for the tokenizer to be stored: away"]
