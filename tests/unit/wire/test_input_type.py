"""Other vendors' words for a prompt."""

import pytest

from tasks.wire.foreign_fields import prompt_for


@pytest.mark.parametrize(
    ("input_type", "prompts", "expected"),
    [
        ("query", ("query", "document"), "query"),
        ("search_query", ("query", "document"), "query"),
        ("Search_Query", ("query",), "query"),
        ("document", ("query", "document"), "document"),
        ("search_document", ("query", "passage"), "passage"),
        ("passage", ("query", "document"), "document"),
        ("passage", ("passage", "document"), "passage"),
        ("document", ("passage", "document"), "document"),
        ("search_query", ("search_query", "query"), "search_query"),
        ("retrieval.query", ("query", "document"), "query"),
        ("retrieval.passage", ("passage",), "passage"),
        ("clustering", ("query", "clustering"), "clustering"),
        ("clustering", ("query",), None),
        ("query", (), None),
    ],
)
def test_the_prompt_for_a_type_of_text(input_type: str, prompts: tuple[str, ...], expected: str | None) -> None:
    assert prompt_for(input_type, prompts) == expected
