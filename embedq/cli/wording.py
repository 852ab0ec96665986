"""What the server says of fields of a request, in the words of the command: somebody typed options."""

import re

from embedq.errors import EmbedqClientError

_OPTIONS = {
    "source.fields.text": "--text-field",
    "source.fields.id": "--id-field",
    "source.fields.metadata": "--metadata-field",
    "chunking.static.max_chunk_size_tokens": "--chunk-tokens",
    "max_chunk_size_tokens": "--chunk-tokens",
    "chunking.static.chunk_overlap_tokens": "--overlap",
    "chunk_overlap_tokens": "--overlap",
    "sink.dataset": "--out",
    "sink.name": "the connection in --out",
    "sink.table": "the table in --out",
    "prompt_name": "--prompt-name",
    "on_conflict": "--on-conflict",
}
_FIELD = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)" for name in _OPTIONS))


def as_options(text: str) -> str:
    """The text with options where it named fields."""
    return _FIELD.sub(lambda found: _OPTIONS[found[0]], text)


def in_options(error: EmbedqClientError) -> EmbedqClientError:
    """The error with options where it named fields; its `param` stays the server's."""
    return error.reworded(as_options(error.message), error.param)
