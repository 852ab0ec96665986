"""From bytes to a checked body: what is wrong is located, and a body with many faults costs no more than its first.

Other vendors' fields and words are honoured or refused by name; token numbers are what OpenAI's library says; errors
have the words of text-embeddings-inference. `test_bad_input.py` of the web tier has what is refused in other ways.
"""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from api.error_responses import TextFailed
from api.schemas.embeddings import TaskBody
from api.tei_errors import in_teis_form
from tasks import errors
from tasks.errors import EmbedqError, RequestError
from tasks.item import TextError
from tasks.wire.embeddings_body import read_body
from tasks.wire.field_aliases import in_own_words, prompt_for
from tasks.wire.json_limits import has_more_parts
from tasks.wire.token_input import texts_of_tokens, tokens
from tasks.wire.validation import parse_object
from tests.ledger_builders import a_model
from tests.raises_code import raises_code

MANY = 200_000
VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('[]{}"\\\\,:ab\n'), max_size=12),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text('[{:"\\\\x', max_size=4), below, max_size=4),
    max_leaves=30,
)


def parts(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(parts, value.values()))
    return 1 + sum(map(parts, value)) if isinstance(value, list) else 0


@given(VALUES)
def test_lists_objects_and_fields_are_counted_without_parsing(value: Any) -> None:
    data, there = json.dumps(value).encode(), parts(value)
    assert not has_more_parts(data, there)
    assert there == 0 or has_more_parts(data, there - 1)


@pytest.mark.parametrize(
    ("data", "there"),
    [
        *((b'["' + b"x" * before + b'[[["]', 1) for before in range(2**18 - 2, 2**18 + 2)),  # the edge of a block
        *((b"[" * 9, 9), (b":" * 9, 9), (b"\xff" * 9, 0), (b"", 0)),
    ],
)
def test_what_is_counted_at_the_edges(data: bytes, there: int) -> None:
    assert not has_more_parts(data, there)
    assert there == 0 or has_more_parts(data, there - 1)


@given(st.binary(max_size=60))
def test_any_bytes_give_an_object_or_one_of_our_errors(body: bytes) -> None:
    try:
        parsed = parse_object(body)
    except EmbedqError:
        return
    assert isinstance(parsed, dict)


DEEP = b'{"input":' * 300 + b'"\\ud800"' + b"}" * 300
LONG = b'{"' + b"k" * 10_000 + b'": "\\ud800"}'


@pytest.mark.parametrize(
    ("body", "param", "where"),
    [
        (b'{"a":\n\n"b" "c"}', None, "line 3 column"),
        (b'{"\xff": 1}', None, "byte 2"),
        (json.dumps({"input": ["a", "b", "c", "x\udfff"]}).encode(), "input[3]", "line 1"),
        (json.dumps({"input": "a", "metadata": {"k": "\udabc"}}).encode(), "metadata.k", "line 1"),
        (json.dumps({"metadata": {"\ud800": "v"}}).encode(), "metadata", "line 1"),
        (json.dumps({"input": ["x" * 2**20, "\ud800"]}).encode(), None, "line 1 column"),  # it is large
        (DEEP, ".".join(["input"] * 11), "line 1"),
        (LONG, "k" * 64, "line 1"),
    ],
    ids=range(8),
)
def test_what_is_wrong_is_located_in_few_words(body: bytes, param: str | None, where: str) -> None:
    with raises_code("invalid_json", "invalid_unicode", match=where) as caught:
        parse_object(body)
    assert caught.value.param == param
    assert len(caught.value.detail) < 200


def refusal(fields: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_body(TaskBody, fields, max_inputs=2048)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [  # made in the test: each process of a run would hold them all
        lambda: {"input": "a"} | {f"field {i}": i for i in range(MANY)},
        lambda: {"input": "a", "metadata": {f"key {i}": i for i in range(MANY)}},
        lambda: {"input": "a", "metadata": {"x" * MANY: 1}},
        lambda: {"input": [7] * 2048},
    ],
    ids=["unknown fields", "pairs", "a long key", "numbers"],
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


# ---- other vendors ---------------------------------------------------------------------------------------------------

E5 = a_model(prompts=("query", "document", "passage", "clustering"), query_prompt="query", document_prompt="passage")
NONE = a_model(prompts=(), query_prompt=None, document_prompt=None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"output_dimension": 8, "dimensions": 8}, {"dimensions": 8}),
        ({"output_dimension": None, "dimensions": 8}, {"dimensions": 8}),
        ({"dimension": 8, "output_dimension": 8, "dimensions": None}, {"dimensions": 8}),
        ({"truncation": False}, {"truncate": False}),
        ({"normalized": False}, {"normalize": False}),
        ({"normalize_embeddings": False}, {"normalize": False}),
        ({"task": "retrieval.query", "input_type": "document"}, {"input_type": "document"}),
        ({"text_type": "document", "task_type": {"any": "thing"}}, {"input_type": "document"}),
        ({"output_dtype": "float", "embed_dtype": "float32", "endianness": "little"}, {}),
        ({"embedding_type": "base64", "encoding_format": "float"}, {"encoding_format": "float"}),
        ({"embedding_types": ["float"], "late_chunking": False, "truncate_prompt_tokens": -1}, {}),
        ({"late_chunking": None, "return_multivector": False, "add_special_tokens": True}, {}),
        ({"user": "me", "prefix": {"a": [1]}}, {"user": "me", "prefix": {"a": [1]}}),
    ],
)
def test_what_is_meant_in_our_words(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert in_own_words(body) == expected


@pytest.mark.parametrize(
    ("words", "prompt"),
    [
        (("query", "Search_Query", "retrieval.query", "RETRIEVAL_QUERY", "s2p_query"), "query"),
        (("document", "Passage", "corpus", "search_document", "retrieval.passage", "RETRIEVAL_DOCUMENT"), "passage"),
        (("clustering",), "clustering"),
        (("classification", None), None),
    ],
)
def test_every_vendors_word_means_the_models_prompt(words: tuple[str | None, ...], prompt: str | None) -> None:
    for word in words:
        assert (prompt_for(word, E5), prompt_for(word, NONE), prompt_for(word, None)) == (prompt, None, None)
        assert prompt_for(word, E5, named="document") == "document", "what was named comes first"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.Invalid("invalid_type", "no"), 422, "Validation"),
        (errors.Invalid("empty_input", "no"), 400, "Empty"),
        (errors.Unauthenticated("no"), 401, "Validation"),
        (errors.Refused("body_too_large", "no"), 413, "Validation"),
        (errors.Refused("unsupported_media_type", "no"), 415, "Validation"),
        (TextFailed(0, TextError("input_too_long", "no")), 422, "Validation"),
        (TextFailed(0, TextError("non_finite_vector", "no")), 424, "Backend"),
        (errors.BacklogFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.StorageFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.WaitTimeout("no", retry_after_s=3), 429, "Overloaded"),
        (errors.RedisUnavailable("no", retry_after_s=3), 503, "Unhealthy"),
        (errors.InternalError("no"), 500, "Backend"),
    ],
)
def test_every_error_has_a_word_of_tei(error: errors.EmbedqError, status: int, kind: str) -> None:
    told, body = in_teis_form(error)
    assert (told, body["error_type"]) == (status, kind)


# ---- token numbers ---------------------------------------------------------------------------------------------------

SPACES = 58040
"""The longest token: 128 spaces."""
BYTE_FF, Z, W, FIRST_OF_UMLAUT = 187, 89, 86, 127
"""Each byte is a token, too."""


def test_every_number_stands_for_what_openais_library_says(cl100k: tiktoken.Encoding) -> None:
    def told(number: int) -> bytes:
        try:
            return cl100k.decode_single_token_bytes(number)
        except KeyError:
            return b""

    assert list(tokens()) == [told(number) for number in range(cl100k.n_vocab)]


def texts(given: list[Any]) -> list[str]:
    return texts_of_tokens(given, max_input_bytes=1000, max_total_bytes=1500)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([15339, 1917], ["hello world"]),
        ([Z, W, FIRST_OF_UMLAUT], ["zw\ufffd"]),  # cut inside a character
        # A broken character becomes three bytes, which count.
        ([[BYTE_FF] * 333, [Z] * 501], ["\ufffd" * 333, "z" * 501]),
    ],
)
def test_one_array_is_one_text(given: list[Any], expected: list[str]) -> None:
    assert texts(given) == expected


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([1] * 1001, "input"),
        ([SPACES] * 8, "input"),
        ([[1], [SPACES] * 8], "input[1]"),
        ([[SPACES] * 7] * 2, "input[1]"),
        ([BYTE_FF] * 334, "input"),
        ([[BYTE_FF] * 333, [Z] * 502], "input[1]"),
    ],
)
def test_what_stands_for_too_much_is_named(given: list[Any], param: str) -> None:
    with raises_code("input_too_large") as caught:
        texts(given)
    assert caught.value.param == param
