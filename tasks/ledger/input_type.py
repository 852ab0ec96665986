"""What texts are for, in the words of other vendors' clients, as the name of one of a model's prompts."""

from collections.abc import Collection

_QUERY = ("query",)
_DOCUMENT = ("document", "passage")
_PROMPTS = {
    "query": _QUERY,
    "search_query": _QUERY,
    "document": _DOCUMENT,
    "passage": _DOCUMENT,
    "search_document": _DOCUMENT,
    "retrieval.query": _QUERY,
    "retrieval.passage": _DOCUMENT,
    "retrieval_query": _QUERY,
    "retrieval_document": _DOCUMENT,
}


def prompt_for(input_type: str, prompts: Collection[str]) -> str | None:
    """The prompt for texts of this type, one of the same name first; None when the model has none for them.

    That is no error: clients send the field whatever the model is, and most models need no prompt.
    """
    names = (input_type, *_PROMPTS.get(input_type.lower(), ()))
    return next((name for name in names if name in prompts), None)
