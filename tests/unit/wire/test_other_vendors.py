"""Other vendors' fields and words: honoured or refused by name, never ignored where they change a vector.

And errors in the words of text-embeddings-inference.
"""

from typing import Any

import pytest

from api.error_responses import TextFailed
from api.tei_errors import in_teis_form
from tasks import errors
from tasks.item import TextError
from tasks.wire.field_aliases import in_own_words, prompt_for
from tests.ledger_builders import a_model
from tests.raises_code import raises_code

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
    "body",
    [
        {"output_dtype": ["float"]},
        {"embed_dtype": "float16"},
        {"late_chunking": 1},
        {"return_multivector": True},
        {"add_special_tokens": 1},
        {"truncate_prompt_tokens": 100},
        {"normalized": False, "normalize": True},
        {"dimension": 8, "dimensions": 9},
        {"truncation": True, "truncate": False},
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict[str, Any]) -> None:
    name = next(iter(body))
    with raises_code("invalid_value", match=rf"^{name} must ") as caught:
        in_own_words(body)
    assert caught.value.param == name


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


@pytest.mark.parametrize(
    ("param", "detail", "expected"),
    [
        ("input", "input is missing.", "inputs is missing."),
        ("input[3]", "input[3] is empty; input[3] it is.", "inputs[3] is empty; input[3] it is."),
        ("dimensions", "dimensions of an input.", "dimensions of an input."),
    ],
)
def test_the_field_of_tei_is_called_inputs(param: str, detail: str, expected: str) -> None:
    assert in_teis_form(errors.Invalid("invalid_value", detail, param=param))[1]["error"] == expected
