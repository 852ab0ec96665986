"""Which of a model's prompts is for queries, and which for documents. Pure: asked once, when the model is loaded.

Authors of models have no common name for either. The library adds an empty `query` and an empty `document` to the
prompts of every model, so a name that is there does not mean that the model has such a prompt.
"""

from collections.abc import Mapping, Sequence

_QUERY = ("query", "search_query", "retrieval.query", "retrieval_query", "web_search_query", "s2p_query")
_DOCUMENT = ("document", "passage", "corpus", "search_document", "retrieval.passage", "retrieval_document")
"""The library's own names first, in its order."""


def prompts_by_purpose(prompts: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The names of the prompts for queries and for documents.

    An empty prompt is named only where no other one is for the purpose. It says that nothing stands before such texts:
    None would mean the model's default prompt, which may be an instruction for the other purpose.

    Args:
        prompts: what is put before a text, by prompt name.
    """
    return _first(_QUERY, prompts), _first(_DOCUMENT, prompts)


def _first(names: Sequence[str], prompts: Mapping[str, str]) -> str | None:
    there = [name for name in names if name in prompts]
    return next((name for name in there if prompts[name]), there[0] if there else None)
