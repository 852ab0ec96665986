"""The HTML reference from a document of the test's own."""

from typing import Any

import pytest

from api.document.reference import page

HOSTILE = "<script>alert('&\"')</script>"


def _document(schema: dict[str, Any]) -> dict[str, Any]:
    operation = {
        "summary": HOSTILE,
        "description": HOSTILE,
        "tags": [HOSTILE],
        "parameters": [{"name": HOSTILE, "in": "query", "description": HOSTILE, "schema": schema}],
        "requestBody": {"content": {HOSTILE: {"schema": {"properties": {HOSTILE: schema}}}}},
        "responses": {
            "200": {"description": HOSTILE, "content": {HOSTILE: {"schema": schema}}, "headers": {HOSTILE: {}}}
        },
    }
    return {
        "info": {"title": HOSTILE, "summary": HOSTILE},
        "paths": {f"/{HOSTILE}": {"get": operation}},
        "components": {"schemas": {HOSTILE: schema}},
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": HOSTILE, "default": HOSTILE, "description": HOSTILE, "examples": [HOSTILE]},
        {"enum": [HOSTILE]},
        {"const": HOSTILE},
        {"$ref": f"#/components/schemas/{HOSTILE}"},
        {"type": "array", "items": {"enum": [HOSTILE]}},
    ],
)
def test_nothing_of_a_document_becomes_markup(schema: dict[str, Any]) -> None:
    assert "<script" not in page(_document(schema))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "integer", "minimum": 1, "default": 20}, "integer (at least 1, default 20)"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "list of string (min. items 1)"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["a", "b"]}, "<code>&quot;a&quot;</code>, <code>&quot;b&quot;</code>"),
        ({"const": True}, "<code>true</code>"),
        ({}, "anything"),
    ],
)
def test_a_type_is_said_in_words(schema: dict[str, Any], said: str) -> None:
    assert f"<td>{said}</td>" in page(_document(schema))
