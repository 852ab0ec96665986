"""Fields of embedding calls in the words of other vendors' clients, as the fields and values that are meant here.

A client is set up once and pointed at many servers, so a field that it always sends must not make its calls fail. A
field that asks for another vector than the one that would come back is honoured or refused by name: a caller who reads
bytes of float32 as int8, or cuts vectors that were not cut, sees no error and gets wrong neighbours.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from tasks.errors import Invalid

_SYNONYMS = {
    "output_dimension": "dimensions",  # Voyage, Cohere, Mistral
    "dimension": "dimensions",  # DashScope
    "truncation": "truncate",  # Voyage
    "normalized": "normalize",  # Jina
    "normalize_embeddings": "normalize",  # sentence-transformers
    "task": "input_type",  # Jina; any other string than a purpose of texts is ignored, as `input_type` is
    "text_type": "input_type",  # DashScope
    "task_type": "input_type",  # Nomic, Google
}
_FLOAT_ONLY = "be 'float': vectors are float32 here; convert them in the client"
_ONLY: Mapping[str, tuple[tuple[object, ...], str]] = {
    "output_dtype": (("float", ""), _FLOAT_ONLY),  # Voyage, Mistral
    "embedding_type": (("float", "base64", ""), "be 'float', or 'base64' (of float32)"),  # Jina
    "embedding_types": (
        ([], ["float"]),
        "be ['float']: vectors are float32 here; convert them in the client",
    ),  # Cohere
    "embed_dtype": (("float32", ""), "be 'float32'; convert vectors in the client"),  # vLLM
    "endianness": (("native", "little", ""), "be 'little', the order of bytes in base64"),  # vLLM
    "late_chunking": ((False,), "be false: every text is encoded by itself"),  # Jina
    "return_multivector": ((False,), "be false: every text has one vector"),  # Jina
    "add_special_tokens": ((True,), "be true: the model was trained with its special tokens"),  # vLLM
    "truncate_prompt_tokens": ((-1,), "be -1: texts are cut at the model's maximum"),  # vLLM
}
_FOREIGN = frozenset({*_SYNONYMS, *_ONLY})


def in_own_words(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with our names in the place of others' names for the same field; `null` counts as absent.

    Raises:
        Invalid: a field cannot be honoured, or contradicts ours.
    """
    if _FOREIGN.isdisjoint(body):
        return body
    own = dict(body)
    for name, (values, rule) in _ONLY.items():
        value = own.pop(name, None)
        # The type too: in Python 0 is False and 1 is True.
        if value is not None and not any(type(value) is type(allowed) and value == allowed for allowed in values):
            raise Invalid("invalid_value", f"{name} must {rule}.", param=name)
    if body.get("embedding_type") == "base64" and not own.get("encoding_format"):
        own["encoding_format"] = "base64"
    for name, ours in _SYNONYMS.items():
        value = own.pop(name, None)
        if value is None or (ours == "input_type" and (input_type(own.get(ours)) or input_type(value) is None)):
            continue
        if own.get(ours, value) not in (None, value):
            raise Invalid("invalid_value", f"{name} must say the same as {ours}, or be left out.", param=name)
        own[ours] = value
    return own


def input_type(value: object) -> str | None:
    """The purpose of the texts; None for a value that is no string, or empty."""
    return value if isinstance(value, str) and value else None


_QUERY = frozenset({"query", "search_query", "retrieval.query", "retrieval_query", "web_search_query", "s2p_query"})
_DOCUMENT = frozenset({"document", "passage", "corpus", "search_document", "retrieval.passage", "retrieval_document"})
"""What texts are for, in the words of other vendors' clients."""


class HasPrompts(Protocol):
    """What a worker says of the prompts of the model that it has loaded."""

    @property
    def prompts(self) -> tuple[str, ...]:
        """Names that `prompt_name` may have."""

    @property
    def query_prompt(self) -> str | None:
        """The one for queries; None: the model's default prompt, if it has one."""

    @property
    def document_prompt(self) -> str | None:
        """The same for documents."""


def prompt_for(input_type: str | None, model: HasPrompts | None, *, named: str | None = None) -> str | None:
    """The model's prompt for texts of this type; None: its default prompt, if it has one.

    A type that is neither query nor document means the prompt of its name. If the model has no such prompt, that is no
    error: clients send the field whatever the model is. A prompt that was `named` comes before the type, whether the
    model has it or not.
    """
    if named is not None or input_type is None or model is None:
        return named
    if input_type.lower() in _QUERY:
        return model.query_prompt
    if input_type.lower() in _DOCUMENT:
        return model.document_prompt
    return input_type if input_type in model.prompts else None
