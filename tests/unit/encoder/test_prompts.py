"""Which of a model's prompts is for queries and which for documents, by the names that authors of models give them."""

import pytest

from tasks.encoder.prompts import prompts_by_purpose

EMPTY = {"query": "", "document": ""}
"""What the library adds to the prompts of every model."""


@pytest.mark.parametrize(
    ("prompts", "query", "document"),
    [
        ({}, None, None),
        (EMPTY, "query", "document"),
        ({"query": "Q: ", "document": "D: "}, "query", "document"),
        (EMPTY | {"query": "query: ", "passage": "passage: "}, "query", "passage"),
        (EMPTY | {"query": "Q: "}, "query", "document"),
        (EMPTY | {"passage": "P: "}, "query", "passage"),
        (EMPTY | {"corpus": "C: "}, "query", "corpus"),
        (EMPTY | {"search_query": "Q: ", "search_document": "D: "}, "search_query", "search_document"),
        (EMPTY | {"web_search_query": "Q: ", "sts_query": "S: "}, "web_search_query", "document"),
        (EMPTY | {"s2p_query": "Q: ", "s2s_query": "S: "}, "s2p_query", "document"),
        (EMPTY | {"retrieval.query": "Q: ", "retrieval.passage": "D: "}, "retrieval.query", "retrieval.passage"),
        ({"document": "D: ", "passage": "P: ", "corpus": "C: "}, None, "document"),
        ({"search_query": "Q: ", "query": "other: "}, "query", None),
        ({"passage": "", "clustering": "C: "}, None, "passage"),
        ({"classification": "C: "}, None, None),
    ],
)
def test_the_prompts_for_queries_and_documents(
    prompts: dict[str, str], query: str | None, document: str | None
) -> None:
    assert prompts_by_purpose(prompts) == (query, document)
