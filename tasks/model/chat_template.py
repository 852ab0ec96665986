"""Models whose folder says that a text is the message of a user, which a chat template turns into what is tokenized.

sentence-transformers 6 saves them so: `"message"` in `modality_config`. Most templates put a text between a beginning
and an end that do not depend on it. Of these the beginning is a prompt like any other, and the end is special tokens
behind a text; nothing else in this project has to know of chats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NO_PROMPT = ""
"""The name of what stands before a text where no prompt is named."""

_MESSAGE = "message"
_OTHER_LENGTHS = frozenset({"padding", "truncation", "max_length", "restore_suffix"})
"""Arguments of a template that change where a text is cut."""
_PROBES = (
    "text",
    " text ",
    "\n\ntext\n",
    "",
    "a: {{ b }} {% c %}",
    "<think>a</think> b",
    "<tool_response>a</tool_response>",
)
_MARK = "\U0010fffd"
"""In no template: a code point for private use."""


@dataclass(frozen=True, slots=True)
class ChatFrame:
    """What a template puts around each text.

    Attributes:
        prompts: what stands before a text, by prompt name; `NO_PROMPT` among them.
        end_ids: the tokens of what stands behind it.
    """

    prompts: Mapping[str, str]
    end_ids: tuple[int, ...]


def expects_messages(transformer: Any) -> bool:
    """Whether the library makes messages of texts before this module sees them."""
    return _MESSAGE in transformer.modality_config


def chat_frame(model: Any) -> ChatFrame | None:
    """Of a SentenceTransformer that expects messages; None: its template does more than to frame a text."""
    transformer = model[0]
    arguments = transformer.processing_kwargs.get("chat_template", {})
    modalities = [dict(transformer.modality_config[name], format=None) for name in ("text", _MESSAGE)]
    if _OTHER_LENGTHS & arguments.keys() or transformer.processor is not transformer.tokenizer:
        return None
    if modalities[0] != modalities[1]:
        return None
    frames = {name: _around(transformer, text, arguments) for name, text in ({NO_PROMPT: ""} | model.prompts).items()}
    ends = {frame[1] for frame in frames.values() if frame is not None}
    if None in frames.values() or len(ends) != 1:
        return None
    [end] = ends
    encoding = transformer.tokenizer.backend_tokenizer.encode(end, add_special_tokens=False)
    if end and not _stands_alone(transformer.tokenizer.backend_tokenizer, encoding.ids[0]):
        return None
    return ChatFrame({name: frame[0] for name, frame in frames.items() if frame}, tuple(encoding.ids))


def ending(ids: Sequence[int]) -> Any:
    """The post-processor of a tokenizer that puts these tokens behind each text and no others around it.

    It cuts long texts so that the tokens have room. The library cuts first and then writes them over the last ones,
    which gives the same.
    """
    from tokenizers.processors import TemplateProcessing  # noqa: PLC0415 - a companion of torch

    end = {"id": "end", "ids": list(ids), "tokens": ["end"] * len(ids)}
    return TemplateProcessing(single=["$A", "end"] if ids else ["$A"], special_tokens=[end])


def _around(transformer: Any, prompt: str, arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    before, *rest = _rendered(transformer, prompt, _MARK, arguments).split(_MARK)
    if len(rest) != 1:
        return None
    framed = (_rendered(transformer, prompt, probe, arguments) == f"{before}{probe}{rest[0]}" for probe in _PROBES)
    return (before, rest[0]) if all(framed) else None


def _rendered(transformer: Any, prompt: str, text: str, arguments: Mapping[str, Any]) -> str:
    formatter = transformer.input_formatter
    messages = formatter.batch_to_message("text", {"text": [text]})[1][_MESSAGE]
    if prompt:
        messages = formatter.prepend_prompt_to_messages(messages, prompt)
    return str(transformer.tokenizer.apply_chat_template(messages[0], tokenize=False, **arguments))


def _stands_alone(backend: Any, token: int) -> bool:
    # Added tokens are split off before a text is tokenized, so what stands before them does not change them.
    added = backend.get_added_tokens_decoder().get(token)
    return added is not None and not added.lstrip and not added.single_word
