"""Where tokenizers and prompts come from."""

from pathlib import Path

import pytest

from tasks.errors import NotReady, StorageUnavailable
from tasks.ingestion.chunking.count_tokens import load_prompt, load_tokenizer
from tasks.model import Model
from tasks.storage.model_files import Prompts, write_model_files
from tasks.storage.storage import Storage
from tests.unit.ingestion.chunking.tokenizers_of_kinds import TOKENIZERS

ENTRY = Model("model", "abc", 4, 100, ("query",), "cpu", "fake", "float32", id="served")


def test_tokenizer_and_prompts_come_from_the_storage(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    write_model_files(storage, "abc", TOKENIZERS["fake"], Prompts({"query": "query: "}, "query"))
    assert load_tokenizer(storage, ENTRY) == TOKENIZERS["fake"]
    assert load_prompt(storage, ENTRY, "query") == "query: "
    assert load_prompt(storage, ENTRY, None) == "query: "


def test_without_a_default_nothing_is_put_before_texts() -> None:
    assert Prompts.from_json(Prompts({"query": "query: "}).to_json()).text(None) == ""


def test_a_tokenizer_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    with pytest.raises(NotReady, match="The tokenizer of served is not in the storage yet"):
        load_tokenizer(storage, ENTRY)
    with pytest.raises(NotReady):
        load_prompt(storage, ENTRY, None)


def test_a_storage_that_is_away_is_another_matter(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path / "disk"))
    (tmp_path / "disk" / ".incoming").rmdir()
    with pytest.raises(StorageUnavailable):
        load_tokenizer(storage, ENTRY)
