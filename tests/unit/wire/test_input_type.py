"""Other vendors' words for a prompt."""

import pytest

from tasks.wire.field_aliases import prompt_for
from tests.ledger_builders import a_model

E5 = a_model(prompts=("query", "document", "passage", "clustering"), query_prompt="query", document_prompt="passage")
NOMIC = a_model(
    prompts=("query", "document", "search_query", "search_document"),
    query_prompt="search_query",
    document_prompt="search_document",
)
NONE = a_model(prompts=(), query_prompt=None, document_prompt=None)


@pytest.mark.parametrize(
    "word", ["query", "search_query", "Search_Query", "retrieval.query", "RETRIEVAL_QUERY", "s2p_query"]
)
def test_every_vendors_word_for_queries_means_the_models_prompt_for_them(word: str) -> None:
    assert [prompt_for(word, model) for model in (E5, NOMIC, NONE)] == ["query", "search_query", None]


@pytest.mark.parametrize(
    "word",
    ["document", "passage", "Passage", "corpus", "search_document", "retrieval.passage", "RETRIEVAL_DOCUMENT"],
)
def test_every_vendors_word_for_documents_means_the_models_prompt_for_them(word: str) -> None:
    assert [prompt_for(word, model) for model in (E5, NOMIC, NONE)] == ["passage", "search_document", None]


def test_another_word_means_the_prompt_of_its_name() -> None:
    assert prompt_for("clustering", E5) == "clustering"
    assert prompt_for("clustering", NOMIC) is None


def test_a_prompt_that_was_named_comes_before_the_type() -> None:
    assert prompt_for("query", E5, named="document") == "document"
    assert prompt_for(None, E5, named="unheard-of") == "unheard-of"
    assert prompt_for("query", None, named="document") == "document"


def test_without_a_type_there_is_no_choice() -> None:
    assert prompt_for(None, E5) is None
    assert prompt_for("query", None) is None
