"""Rows of a unit: what they ask is checked once where they ask for the same."""

from typing import Any

import orjson
import pytest

from tasks.embedding.units import RowReader
from tasks.encoder.interface import Text
from tasks.item import Options
from tasks.storage.vector_part import RowError
from tests.ledger_builders import model_entry

MODEL = model_entry()


def row(**body: Any) -> bytes:
    return orjson.dumps({"body": body})


def test_each_row_has_its_own_options() -> None:
    reader = RowReader(MODEL)
    asked: list[dict[str, Any]] = [{}, {}, {"dimensions": 2}, {"normalize": False}, {"prompt_name": "query"}, {}]
    read = [reader.texts(row(input=f"text {n}", **body)) for n, body in enumerate(asked)]
    assert read == [[Text(f"text {n}", Options(**body))] for n, body in enumerate(asked)]


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


def test_rows_of_many_users_are_checked_once() -> None:
    model = AskedModel()
    reader = RowReader(model)
    users: list[Any] = ["eve", "bob", 5, None, {"name": "eve"}]
    read = [reader.texts(row(input="text", input_type="query", user=user)) for user in users]
    assert read == [[Text("text", Options(prompt_name="query"))]] * len(users)
    assert model.asked == 1
    other = reader.texts(row(input="text", input_type="query", user="eve", dimensions=2))
    assert other == [Text("text", Options(prompt_name="query", dimensions=2))]


def test_several_texts_and_one_are_read_alike() -> None:
    reader = RowReader(MODEL)
    one, two = Text("one", Options(dimensions=2)), Text("two", Options(dimensions=2))
    assert reader.texts(row(input=["one", "two"], output_dimension=2)) == [one, two]
    assert reader.texts(row(input="one", output_dimension=2)) == [one]


def test_what_is_ignored_may_be_as_deep_as_it_may_be_when_a_batch_is_checked() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    reader = RowReader(MODEL)
    assert reader.texts(b'{"body":{"input":"text","other":' + deep + b"}}") == [Text("text", Options())]
    assert isinstance(reader.texts(b'{"body":{"input":"text","dimensions":0,"other":' + deep + b"}}"), RowError)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "text", "normalize": 1},  # in Python it equals True
        {"input": "text", "normalize": True, "dimensions": 0},
        {"input": "", "normalize": True},
        {"input": [], "normalize": True},
        {"input": 5, "normalize": True},
        {"normalize": True},
    ],
)
def test_a_row_is_refused_behind_one_that_is_not(body: dict[str, Any]) -> None:
    reader = RowReader(MODEL)
    before = [Text("text", Options())]
    assert reader.texts(row(input="text", normalize=True)) == before
    assert isinstance(reader.texts(row(**body)), RowError)
    assert reader.texts(row(input="text", normalize=True)) == before


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"body": []}', b'{"body": "input"}', b'{"body": null}'])
def test_what_is_no_request_is_an_error(line: bytes) -> None:
    assert isinstance(RowReader(MODEL).texts(line), RowError)
