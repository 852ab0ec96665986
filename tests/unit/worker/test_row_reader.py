"""Rows of a unit: what they ask is read once where they ask for the same."""

from typing import Any

import pytest

from tasks.encoder.interface import Text
from tasks.item import Options, TextError
from tasks.storage.row_file import row_of
from tasks.worker.rows import RowReader
from tests.ledger_builders import a_model

MODEL = a_model()


def test_each_row_has_its_own_options() -> None:
    reader = RowReader(MODEL)
    asked: list[dict[str, Any]] = [{}, {}, {"dimensions": 2}, {"normalize": False}, {"prompt_name": "query"}, {}]
    read = [reader.text(row_of(f"text {n}", options, beside=n)) for n, options in enumerate(asked)]
    assert read == [Text(f"text {n}", Options(**options)) for n, options in enumerate(asked)]


class AskedModel:
    """A model that counts how often it was asked for a prompt."""

    prompts = ("query",)
    document_prompt = None

    def __init__(self) -> None:
        self.asked = 0

    @property
    def query_prompt(self) -> str:
        self.asked += 1
        return "query"


def test_what_texts_are_for_is_looked_up_once() -> None:
    model = AskedModel()
    reader = RowReader(model)
    read = [reader.text(row_of("text", {"input_type": "query"})) for _ in range(5)]
    assert read == [Text("text", Options(prompt_name="query"))] * 5
    assert model.asked == 1
    other = reader.text(row_of("text", {"input_type": "query", "dimensions": 2}))
    assert other == Text("text", Options(prompt_name="query", dimensions=2))


@pytest.mark.parametrize(
    "row", [b"", b"[]", b"{}", b'{"text":"a"}', b'{"options":{}}', b'{"text":"a","options":{"x":1}}']
)
def test_what_has_no_text_is_an_error_and_what_follows_is_not(row: bytes) -> None:
    reader = RowReader(MODEL)
    assert isinstance(reader.text(row), TextError)
    assert reader.text(row_of("text", {"normalize": False})) == Text("text", Options(normalize=False))
