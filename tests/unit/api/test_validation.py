"""Which field of a body is named, and that a body with many faults costs no more than its first."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from api.schemas.embeddings import EmbedBody, TaskBody
from tasks.errors import RequestError
from tasks.wire.embeddings_body import EmbeddingsBody, read_body
from tests.raises_code import raises_code

MANY = 200_000


def refusal(fields: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_body(TaskBody, fields, max_inputs=2048)
    return caught.value


@pytest.mark.parametrize("value", [2, None], ids=["a value", "null"])
def test_a_misspelt_field_is_refused_whatever_it_holds(value: int | None) -> None:
    error = refusal({"input": 7, "dimensoins": value})

    assert error.code == "unknown_parameter"
    assert error.param == "dimensoins"
    assert "did you mean dimensions?" in error.detail


def test_an_openai_body_may_have_any_fields_besides() -> None:
    fields: dict[str, Any] = {
        "input": "a",
        "user": None,
        "dimensoins": None,
        "dimensions": None,
        "lane": 7,
        "metadata": [],
    }

    assert read_body(EmbeddingsBody, fields, max_inputs=1) == EmbeddingsBody(input=["a"])


@pytest.mark.parametrize("kind", [EmbeddingsBody, EmbedBody])
@pytest.mark.parametrize(
    ("word", "cut"), [("NONE", False), ("none", False), ("END", True), (None, True), (False, False)]
)
def test_other_servers_words_for_truncation_are_understood(kind: type[EmbeddingsBody], word: object, cut: bool) -> None:
    assert read_body(kind, {"input": "a", "truncate": word}, max_inputs=1).truncate is cut


@pytest.mark.parametrize("kind", [EmbeddingsBody, EmbedBody])
@pytest.mark.parametrize("word", ["START", "yes", ""])
def test_a_truncation_that_would_give_another_vector_is_refused(kind: type[EmbeddingsBody], word: str) -> None:
    with raises_code("invalid_value", match=r"'END'.*'NONE'") as caught:
        read_body(kind, {"input": "a", "truncate": word}, max_inputs=1)
    assert caught.value.param == "truncate"


@pytest.mark.parametrize("value", ["", 7, ["query"], {"type": "query"}])
def test_an_input_type_in_a_form_that_nobody_knows_is_ignored(value: object) -> None:
    assert read_body(EmbeddingsBody, {"input": "a", "input_type": value}, max_inputs=1).input_type is None


def test_an_empty_format_is_the_usual_one() -> None:
    assert read_body(EmbeddingsBody, {"input": "a", "encoding_format": ""}, max_inputs=1).encoding_format == "float"


def test_bodies_of_tasks_take_the_same_words() -> None:
    fields = {"input": "a", "truncate": "NONE", "output_dimension": 8, "task": "query", "user": "me", "stream": True}
    body = read_body(TaskBody, fields)
    assert (body.truncate, body.dimensions, body.input_type) == (False, 8, "query")


def test_the_first_text_that_is_none_is_named() -> None:
    error = refusal({"input": ["a", None, 7]})

    assert error.code == "invalid_type"
    assert error.param == "input[1]"


def test_metadata_is_measured_in_bytes_of_names_and_values() -> None:
    pairs = {f"{i}" * 16: "é" * 120 for i in range(10, 24)} | {"": "", "k": "x" * 287}
    error = refusal({"input": "a", "metadata": pairs | {"more": ""}})

    assert (error.code, error.param) == ("invalid_value", "metadata")
    assert "4,100 bytes" in error.detail
    assert "4,096" in error.detail
    assert read_body(TaskBody, {"input": "a", "metadata": pairs}, max_inputs=1).metadata == pairs


@pytest.mark.parametrize(
    "body",
    [  # made in the test: each process of a run would hold them all
        lambda: {"input": "a"} | {f"field {i}": i for i in range(MANY)},
        lambda: {"input": "a", "metadata": {f"key {i}": i for i in range(MANY)}},
        lambda: {"input": "a", "x" * MANY: 1},
        lambda: {"input": "a", "metadata": {"x" * MANY: 1}},
        lambda: {"input": [7] * 2048},
    ],
    ids=["unknown fields", "pairs", "a long name", "a long key", "numbers"],
)
def test_many_faults_cost_no_more_than_the_first(body: Callable[[], dict[str, Any]]) -> None:
    fields = body()
    refusal(dict(fields))  # what a first refusal loads
    tracemalloc.start()
    try:
        error = refusal(fields)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 5 * MANY, "it grows with the body"
    assert len(error.detail) < 500
