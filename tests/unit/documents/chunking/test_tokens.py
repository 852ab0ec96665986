"""Which tokenizers let numbers be added up, and where tokenizers come from."""

from pathlib import Path

import orjson
import pytest

from tasks.documents.chunking.tokens import TokenCounter, blank, load_prompt, load_tokenizer
from tasks.errors import NotReady, StorageUnavailable
from tasks.model import Model
from tasks.storage.model_files import Prompts, write_model_files
from tasks.storage.storage import Storage
from tests.unit.documents.chunking.tokenizers_of_kinds import TOKENIZERS

ENTRY = Model("model", "abc", 4, 100, ("query",), "cpu", "fake", "float32", id="served")


@pytest.mark.parametrize(
    ("name", "adds_up"), [("word-piece", True), ("fake", True), ("byte-level", False), ("unigram", False)]
)
def test_numbers_add_up_where_words_are_tokenized_alone(name: str, adds_up: bool) -> None:
    assert TokenCounter(TOKENIZERS[name]).adds_up == adds_up
    assert TokenCounter(TOKENIZERS[name], "query: ").adds_up == adds_up
    assert not TokenCounter(TOKENIZERS[name], "query:").adds_up


def test_a_token_with_a_blank_in_it_spoils_adding_up() -> None:
    tokenizer = orjson.loads(TOKENIZERS["fake"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] = [{"id": 2, "content": "New York", **flags}]
    counter = TokenCounter(orjson.dumps(tokenizer))
    assert not counter.adds_up
    assert counter.count("in New York") == counter.count("in York")


@pytest.mark.parametrize(
    ("gap", "apart"), [("", False), (" ", True), ("\x0c", False), ("\x0c\n", True), ("\x1c", False)]
)
def test_the_form_feed_keeps_no_words_apart(gap: str, apart: bool) -> None:
    assert blank(gap) == apart


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
