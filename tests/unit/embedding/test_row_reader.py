"""Rows of a unit: what they ask is checked once where they ask for the same."""

from typing import Any

import orjson
import pytest

from tasks.embedding.units import RowReader
from tasks.item import Options
from tasks.model.encoder import TextItem
from tasks.storage.vector_part import RowError


def row(**body: Any) -> bytes:
    return orjson.dumps({"body": body})


def test_each_row_has_its_own_options() -> None:
    reader = RowReader(["query"])
    asked: list[dict[str, Any]] = [{}, {}, {"dimensions": 2}, {"normalize": False}, {"prompt_name": "query"}, {}]
    read = [reader.texts(row(input=f"text {n}", **body)) for n, body in enumerate(asked)]
    assert read == [[TextItem(f"text {n}", Options(**body))] for n, body in enumerate(asked)]


class CountedPrompts(list[str]):
    """A model's prompts. `looks`: how often they were looked through."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)


def test_rows_of_many_users_are_checked_once() -> None:
    prompts = CountedPrompts(["query"])
    reader = RowReader(prompts)
    users: list[Any] = ["eve", "bob", 5, None, {"name": "eve"}]
    read = [reader.texts(row(input="text", input_type="query", user=user)) for user in users]
    assert read == [[TextItem("text", Options(prompt_name="query"))]] * len(users)
    assert prompts.looks == 1
    other = reader.texts(row(input="text", input_type="query", user="eve", dimensions=2))
    assert other == [TextItem("text", Options(prompt_name="query", dimensions=2))]


def test_several_texts_and_one_are_read_alike() -> None:
    reader = RowReader([])
    one, two = TextItem("one", Options(dimensions=2)), TextItem("two", Options(dimensions=2))
    assert reader.texts(row(input=["one", "two"], output_dimension=2)) == [one, two]
    assert reader.texts(row(input="one", output_dimension=2)) == [one]


def test_what_is_ignored_may_be_as_deep_as_it_may_be_when_a_batch_is_checked() -> None:
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    reader = RowReader([])
    assert reader.texts(b'{"body":{"input":"text","other":' + deep + b"}}") == [TextItem("text", Options())]
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
    reader = RowReader([])
    before = [TextItem("text", Options())]
    assert reader.texts(row(input="text", normalize=True)) == before
    assert isinstance(reader.texts(row(**body)), RowError)
    assert reader.texts(row(input="text", normalize=True)) == before


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"body": []}', b'{"body": "input"}', b'{"body": null}'])
def test_what_is_no_request_is_an_error(line: bytes) -> None:
    assert isinstance(RowReader([]).texts(line), RowError)
