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


def test_a_misspelt_field_is_refused_whatever_it_holds() -> None:
    for value in (2, None):
        error = refusal({"input": 7, "dimensoins": value})
        assert (error.code, error.param) == ("unknown_parameter", "dimensoins")
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


@pytest.mark.parametrize("kind", [EmbeddingsBody, EmbedBody, TaskBody])
def test_other_servers_words_are_understood_or_refused(kind: type[EmbeddingsBody]) -> None:
    def read(**fields: object) -> EmbeddingsBody:
        return read_body(kind, {"input": "a"} | fields, max_inputs=1)

    for word, truncate in (("NONE", False), ("none", False), ("END", True), (None, True), (False, False)):
        assert read(truncate=word).truncate is truncate
    for word in ("START", "yes", ""):  # another vector than they would have
        with raises_code("invalid_value", match=r"'END'.*'NONE'") as caught:
            read(truncate=word)
        assert caught.value.param == "truncate"
    for kind_of_input in ("", 7, ["query"], {"type": "query"}):
        assert read(input_type=kind_of_input).input_type is None
    if kind is not EmbedBody:
        body = read(output_dimension=8, task="query", user="me", stream=True)
        assert (body.dimensions, body.input_type) == (8, "query")
    if kind is EmbeddingsBody:
        assert read(encoding_format="").encoding_format == "float"


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
