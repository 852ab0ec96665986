"""Other vendors' fields: honoured or refused by name, never ignored where they change a vector."""

from typing import Any

import pytest

from tasks.wire.field_aliases import in_own_words
from tests.raises_code import raises_code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"output_dimension": 8}, {"dimensions": 8}),
        ({"output_dimension": 8, "dimensions": 8}, {"dimensions": 8}),
        ({"output_dimension": None, "dimensions": 8}, {"dimensions": 8}),
        ({"output_dimension": 8, "dimensions": None}, {"dimensions": 8}),
        ({"truncation": False}, {"truncate": False}),
        ({"normalized": False}, {"normalize": False}),
        ({"task": "retrieval.query"}, {"input_type": "retrieval.query"}),
        ({"task": "retrieval.query", "input_type": "document"}, {"input_type": "document"}),
        ({"task": {"any": "thing"}}, {}),
        ({"task_type": "search_query"}, {"input_type": "search_query"}),
        ({"text_type": "document", "task_type": {"any": "thing"}}, {"input_type": "document"}),
        ({"dimension": 8}, {"dimensions": 8}),
        ({"dimension": 8, "output_dimension": 8}, {"dimensions": 8}),
        ({"normalize_embeddings": False}, {"normalize": False}),
        ({"output_dtype": "float", "embed_dtype": "float32", "endianness": "little"}, {}),
        ({"embedding_type": "float"}, {}),
        ({"embedding_type": "base64"}, {"encoding_format": "base64"}),
        ({"embedding_type": "base64", "encoding_format": "float"}, {"encoding_format": "float"}),
        ({"embedding_types": ["float"], "late_chunking": False, "truncate_prompt_tokens": -1}, {}),
        ({"late_chunking": None, "return_multivector": False, "add_special_tokens": True}, {}),
        ({"user": "me", "prefix": {"a": [1]}}, {"user": "me", "prefix": {"a": [1]}}),
    ],
)
def test_what_is_meant_in_our_words(body: dict[str, Any], expected: dict[str, Any]) -> None:
    assert in_own_words(body) == expected


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"output_dtype": "int8"}, "output_dtype"),
        ({"output_dtype": ["float"]}, "output_dtype"),
        ({"embedding_type": "ubinary"}, "embedding_type"),
        ({"embedding_types": ["float", "int8"]}, "embedding_types"),
        ({"embed_dtype": "float16"}, "embed_dtype"),
        ({"endianness": "big"}, "endianness"),
        ({"late_chunking": True}, "late_chunking"),
        ({"late_chunking": 1}, "late_chunking"),
        ({"return_multivector": True}, "return_multivector"),
        ({"add_special_tokens": False}, "add_special_tokens"),
        ({"add_special_tokens": 1}, "add_special_tokens"),
        ({"truncate_prompt_tokens": 100}, "truncate_prompt_tokens"),
        ({"output_dimension": 8, "dimensions": 9}, "output_dimension"),
        ({"normalized": False, "normalize": True}, "normalized"),
        ({"dimension": 8, "dimensions": 9}, "dimension"),
        ({"normalize_embeddings": True, "normalize": False}, "normalize_embeddings"),
        ({"truncation": True, "truncate": False}, "truncation"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    with raises_code("invalid_value", match=rf"^{field} must ") as caught:
        in_own_words(body)
    assert caught.value.param == field
