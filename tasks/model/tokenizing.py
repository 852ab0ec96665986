"""Texts to tokens, with the model's own fast tokenizer.

The library's `preprocess` gives the same tokens, and takes four times as long for a single query: it builds tensors,
and asks at every call what can be asked once.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.model.chat_template import NO_PROMPT, chat_frame, ending, expects_messages
from tasks.model.encoder import TextRules, TokenizedText
from tasks.model.long_text import Reading, WindowReader

Int64Array = npt.NDArray[np.int64]

_MASK = "attention_mask"


class Tokenizer:
    """The tokenizer of a model, prompts included.

    Args:
        model: a SentenceTransformer; its tokenizer is this one's afterwards.
        marks_prompt: pooling leaves the prompt out and needs its length.
    """

    def __init__(self, model: Any, *, marks_prompt: bool) -> None:
        frame = chat_frame(model) if expects_messages(model[0]) else None
        self._prompts: Mapping[str, str] = model.prompts if frame is None else frame.prompts
        self._default: str | None = model.default_prompt_name
        if frame is not None:
            self._default = self._default or NO_PROMPT
        prompts = dict.fromkeys(model.prompts.values()) if marks_prompt else ()
        self._prompt_lengths: dict[str, int | None] = {
            prompt: model.preprocess(["a"], prompt=prompt).get("prompt_length") for prompt in prompts
        }
        self.names: tuple[str, ...] = tuple(key for key, value in model.preprocess(["a"]).items() if _per_token(value))
        """The features that the transformer gets."""
        tokenizer = model.tokenizer
        if frame is not None:
            tokenizer.backend_tokenizer.post_processor = ending(frame.end_ids)
        elif not _adds_special_tokens(model[0]):
            tokenizer.backend_tokenizer.post_processor = ending(())
        self._special_tokens: int = tokenizer.num_special_tokens_to_add(pair=False)
        self._pads_left = tokenizer.padding_side == "left"
        self._fill = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
        # Where to cut was set by the library's preprocessing above, and stays. The model's own `max_seq_length` may be
        # more: a folder's `processing_kwargs` win over it.
        self._backend = tokenizer.backend_tokenizer
        self.max_tokens: int | None = (self._backend.truncation or {}).get("max_length")
        """Where texts are cut, special tokens included; None: nowhere."""
        self._backend.no_padding()
        self._read = WindowReader(self._backend)

    def __call__(self, texts: Sequence[str], prompt_name: str | None) -> list[TokenizedText]:
        """See `Encoder.tokenize`."""
        name = prompt_name if prompt_name is not None else self._default
        prompt = self._prompts[name] if name is not None else ""
        prompt_length = self._prompt_lengths.get(prompt)
        return [self._tokenized(reading, prompt_length) for reading in self._read(texts, prompt)]

    def rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        rules = json.loads(self._backend.to_str())
        rules["truncation"] = rules["padding"] = None
        return TextRules(json.dumps(rules, ensure_ascii=False).encode(), dict(self._prompts), self._default)

    def pad(self, batch: Sequence[TokenizedText]) -> dict[str, Int64Array]:
        """The features of texts as arrays [n, longest], filled up on the side that the model expects."""
        lengths = np.array([text.length for text in batch])
        positions = np.arange(lengths.max())
        longest = len(positions)
        is_token = positions >= longest - lengths[:, None] if self._pads_left else positions < lengths[:, None]
        return {name: self._filled(name, batch, is_token) for name in self.names}

    def _filled(self, name: str, batch: Sequence[TokenizedText], is_token: npt.NDArray[np.bool_]) -> Int64Array:
        if name == _MASK:
            return is_token.astype(np.int64)
        padded = np.full(is_token.shape, self._fill.get(name, 0), dtype=np.int64)
        padded[is_token] = np.fromiter(chain.from_iterable(text.features[name] for text in batch), dtype=np.int64)
        return padded

    def _tokenized(self, reading: Reading, prompt_length: int | None) -> TokenizedText:
        encoding = reading.encoding
        features = {"input_ids": encoding.ids}
        if "token_type_ids" in self.names:
            features["token_type_ids"] = encoding.type_ids
        length = len(features["input_ids"])
        # The overflow comes in pieces, each with its own special tokens.
        rest = sum(len(piece) - self._special_tokens for piece in encoding.overflowing)
        return TokenizedText(
            features,
            length=length,
            full_length=length + rest,
            full_length_exact=reading.exact,
            prompt_length=prompt_length,
        )


def _adds_special_tokens(transformer: Any) -> bool:
    # The library gives both to its tokenizer, `common` last.
    arguments = transformer.processing_kwargs
    return bool({**arguments.get("text", {}), **arguments.get("common", {})}.get("add_special_tokens", True))


def _per_token(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 2  # noqa: PLR2004 - texts by tokens
