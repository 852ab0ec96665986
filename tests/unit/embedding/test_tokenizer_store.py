"""The model worker's tokenizer on its way into the storage."""

from pathlib import Path

import pytest

from stack.testing import wait_until
from tasks.embedding.tokenizer_store import TokenizerStore
from tasks.encoder.fake import PROMPTS, FakeEncoder
from tasks.encoder.interface import TextRules
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files, read_prompts, read_tokenizer
from tasks.storage.storage import Storage


class CountedEncoder(FakeEncoder):
    """Counts how often it is asked for its tokenizer."""

    asked = 0

    def text_rules(self) -> TextRules:
        self.asked += 1
        return super().text_rules()


def test_tokenizer_and_prompts_are_stored_once(tmp_path: Path) -> None:
    storage, encoder = Storage.open(str(tmp_path)), CountedEncoder()
    store = TokenizerStore(lambda: storage, encoder)
    store.start()
    wait_until(lambda: store.checks)
    store.stop()
    assert read_tokenizer(storage, "fake") == encoder.text_rules().tokenizer
    assert read_prompts(storage, "fake").texts == PROMPTS
    again = TokenizerStore(lambda: storage, encoder)
    again.start()
    wait_until(lambda: again.checks)
    again.stop()
    assert encoder.asked == 2  # by the first one, and by this test


def test_what_vanishes_from_the_storage_is_stored_again(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    store = TokenizerStore(lambda: storage, FakeEncoder(), retry_s=0.001, check_every_s=0.001)
    store.start()
    for n in range(2):
        wait_until(lambda: has_model_files(storage, "fake"))
        (tmp_path / "models").rename(tmp_path / f"gone-{n}")
    wait_until(lambda: has_model_files(storage, "fake"))
    store.stop()
    wait_until(lambda: store.done)


def test_a_storage_that_is_away_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    def late() -> Storage:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StorageUnavailable("away", retry_after_s=1)
        return Storage.open(str(tmp_path))

    store = TokenizerStore(late, FakeEncoder(), retry_s=0.001)
    store.start()
    wait_until(lambda: store.checks)
    store.stop()
    assert has_model_files(Storage.open(str(tmp_path)), "fake")
    assert [record.message for record in caplog.records] == ["ingestions wait for the tokenizer to be stored: away"]


def test_a_stop_ends_the_trying() -> None:
    def away() -> Storage:
        raise StorageUnavailable("away", retry_after_s=1)

    store = TokenizerStore(away, FakeEncoder())
    store.start()
    store.stop()
    wait_until(lambda: store.done)


def test_a_tokenizer_that_cannot_be_written_down_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable(FakeEncoder):
        def text_rules(self) -> TextRules:
            raise ValueError("no JSON for this one")

    storage = Storage.open(str(tmp_path))
    store = TokenizerStore(lambda: storage, Unreadable())
    store.start()
    wait_until(lambda: store.done)
    assert not has_model_files(storage, "fake")
    assert "documents cannot be cut for this model" in caplog.text
