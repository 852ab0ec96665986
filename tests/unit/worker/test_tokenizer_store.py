"""The model worker's tokenizer on its way into the storage."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.encoder.fake import PROMPTS, FakeEncoder
from tasks.encoder.interface import Encoder, TextRules
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files, read_prompts, read_tokenizer
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


class CountedEncoder(FakeEncoder):
    """Counts how often it is asked for its tokenizer."""

    asked = 0

    def text_rules(self) -> TextRules:
        self.asked += 1
        return super().text_rules()


def test_tokenizer_and_prompts_are_stored_once(tmp_path: Path) -> None:
    looks = 0

    def storage() -> Storage:
        nonlocal looks
        looks += 1
        return Storage.open(str(tmp_path))

    encoder = CountedEncoder()
    with kept(storage, encoder):
        wait_until(lambda: looks > 10)
    assert encoder.asked == 1
    assert read_tokenizer(storage(), "fake") == encoder.text_rules().tokenizer
    assert read_prompts(storage(), "fake").texts == PROMPTS


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


def test_a_tokenizer_that_cannot_be_written_down_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(CountedEncoder):
        def text_rules(self) -> TextRules:
            if self.asked < 3:
                self.asked += 1
                raise ValueError("no JSON for this one")
            return super().text_rules()

    storage = Storage.open(str(tmp_path))
    with kept(lambda: storage, Late()):
        wait_until(lambda: has_model_files(storage, "fake"))
    assert caplog.text.count("documents cannot be cut for this model") == 1
