"""Texts to tokens, with the model's own fast tokenizer.

The library's `preprocess` gives the same tokens, and takes four times as long for a single query: it builds tensors,
and asks at every call what can be asked once. Only models that make a chat message of each text go through it.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

import numpy as np

from tasks.encoder.interface import Int64Array, TextRules, Tokens
from tasks.encoder.long_text import WindowReader

_MASK = "attention_mask"
_NO_PROMPT = ""
"""The name of what stands before a text where no prompt is named."""
_WHOLE = {"text": {"truncation": False, "max_length": None}}
"""Arguments of the library under which nothing is cut."""


class Tokenizer:
    """The tokenizer of a model that begins with a transformer, prompts included.

    Args:
        model: a SentenceTransformer; its tokenizer is this one's afterwards.
    """

    def __init__(self, model: Any) -> None:
        self._prompts: dict[str, str] = dict(model.prompts)
        self._default: str | None = model.default_prompt_name
        example = model.preprocess(["a"])  # it also sets where the tokenizer cuts
        self.names: tuple[str, ...] = tuple(name for name, value in example.items() if _per_token(value))
        """The features that the transformer gets."""
        prompts = dict.fromkeys(self._prompts.values()) if _pooling_skips_prompt(model) else ()
        self._prompt_lengths: dict[str, int | None] = {
            prompt: model.preprocess(["a"], prompt=prompt).get("prompt_length") for prompt in prompts
        }
        tokenizer = model.tokenizer
        self._backend = tokenizer.backend_tokenizer
        if not _adds_special_tokens(model[0]):
            self._backend.post_processor = _ending(0)
        self._special_tokens: int = tokenizer.num_special_tokens_to_add(pair=False)
        self._pads_left = tokenizer.padding_side == "left"
        self._fill = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
        # The model's own `max_seq_length` may be more: a folder's `processing_kwargs` win over it.
        self._cut: dict[str, Any] = self._backend.truncation or {}
        self._messages = _Messages(model) if "message" in model[0].modality_config else None
        self._without_row: frozenset[int] = frozenset()
        self.take()

    @property
    def max_tokens(self) -> int | None:
        """Where texts are cut, special tokens included; None: nowhere."""
        return self._cut.get("max_length")

    def numbers(self) -> tuple[set[int], set[int]]:
        """Of all tokens, and of the special ones among them."""
        return _numbers(self._backend)

    def fit(self, rows: int, max_tokens: int) -> None:
        """Keeps to what the network has: rows, one for each token, and tokens of a text."""
        self._without_row = frozenset(number for number in self.numbers()[0] if number >= rows)
        self._cut = {**self._cut, "max_length": max_tokens}
        self.take()

    def take(self) -> None:
        """Makes the tokenizer cut, and not pad, as here: each call of the library has set both for itself."""
        self._backend.no_padding()
        if self._cut:
            self._backend.enable_truncation(**self._cut)
        self._read = WindowReader(self._backend)

    def __call__(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        """See `Encoder.tokenize`."""
        name = prompt_name if prompt_name is not None else self._default
        prompt = self._prompts[name] if name is not None else ""
        if self._messages is not None:
            tokens = [self._messages(text, prompt, self.max_tokens) for text in texts]
        else:
            prompt_length = self._prompt_lengths.get(prompt)
            read = self._read(texts, prompt)
            tokens = [self._tokens(encoding, prompt_length, exact=exact) for encoding, exact in read]
        if self._without_row and any(not self._without_row.isdisjoint(one.features["input_ids"]) for one in tokens):
            raise IndexError("a special token for which the network has no row")  # OpenVINO would not say so
        return tokens

    def rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        rules = json.loads(self._backend.to_str())
        rules["truncation"] = rules["padding"] = None
        prompts, default = self._prompts, self._default
        if self._messages is not None:
            frames = {name: self._messages.frame(prompt) for name, prompt in {_NO_PROMPT: "", **prompts}.items()}
            decoded = self._backend.decode_batch([before for before, _ in frames.values()], skip_special_tokens=False)
            prompts = dict(zip(frames, decoded, strict=True))
            default = default or _NO_PROMPT
            rules["post_processor"] = json.loads(_ending(frames[_NO_PROMPT][1]).__getstate__())
        return TextRules(json.dumps(rules, ensure_ascii=False).encode(), prompts, default)

    def pad(self, texts: Sequence[Tokens]) -> dict[str, Int64Array]:
        """The features as arrays [n, longest], filled up on the side that the model expects."""
        lengths = np.array([text.length for text in texts])
        positions = np.arange(lengths.max())
        longest = len(positions)
        is_token = positions >= longest - lengths[:, None] if self._pads_left else positions < lengths[:, None]
        padded = {}
        for name in self.names:
            if name == _MASK:
                padded[name] = is_token.astype(np.int64)
                continue
            padded[name] = np.full(is_token.shape, self._fill.get(name, 0), dtype=np.int64)
            padded[name][is_token] = np.fromiter(chain.from_iterable(text.features[name] for text in texts), np.int64)
        return padded

    def _tokens(self, encoding: Any, prompt_length: int | None, *, exact: bool) -> Tokens:
        features = {"input_ids": encoding.ids}
        if "token_type_ids" in self.names:
            features["token_type_ids"] = encoding.type_ids
        length = len(encoding.ids)
        # The overflow comes in pieces, each with its own special tokens.
        rest = sum(len(piece) - self._special_tokens for piece in encoding.overflowing)
        return Tokens(features, length, length + rest, full_length_exact=exact, prompt_length=prompt_length)


class StaticTokenizer:
    """The same of a static model: there are no special tokens, no padding, and mostly no longest text.

    Args:
        model: a SentenceTransformer that begins with `StaticEmbedding`; its tokenizer is this one's afterwards.
    """

    names: tuple[str, ...] = ("input_ids", "offsets")

    def __init__(self, model: Any) -> None:
        self._prompts: dict[str, str] = dict(model.prompts)
        self._default: str | None = model.default_prompt_name
        self._backend = model[0].tokenizer
        self.max_tokens: int | None = (self._backend.truncation or {}).get("max_length")
        """Where texts are cut; None: nowhere, unless the tokenizer's own file says so."""

    def numbers(self) -> tuple[set[int], set[int]]:
        """Of all tokens, and of the special ones among them."""
        return _numbers(self._backend)

    def __call__(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        """See `Encoder.tokenize`."""
        name = prompt_name if prompt_name is not None else self._default
        prompt = self._prompts[name] if name is not None else ""
        encodings = self._backend.encode_batch_fast([prompt + text for text in texts], add_special_tokens=False)
        return [
            Tokens({"input_ids": one.ids}, len(one.ids), len(one.ids) + sum(map(len, one.overflowing)))
            for one in encodings
        ]

    def rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        rules = json.loads(self._backend.to_str())
        # Whoever counts with it adds special tokens; this model reads none, whatever the file says.
        rules["truncation"] = rules["padding"] = rules["post_processor"] = None
        return TextRules(json.dumps(rules, ensure_ascii=False).encode(), self._prompts, self._default)

    def pad(self, texts: Sequence[Tokens]) -> dict[str, Int64Array]:
        """The tokens of all texts in one row, and where each text begins in it: nothing is filled up."""
        lengths = [text.length for text in texts]
        tokens = chain.from_iterable(text.features["input_ids"] for text in texts)
        return {
            "input_ids": np.fromiter(tokens, dtype=np.int64, count=sum(lengths)),
            "offsets": np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        }


class _Messages:
    """Texts that the library makes chat messages of (`"message"` in `modality_config`), one after the other."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._lock = threading.Lock()  # the library sets at each call where its tokenizer cuts and pads

    def __call__(self, text: str, prompt: str, max_tokens: int | None = None) -> Tokens:
        """The tokens of the message around one text, which the library cuts at so many."""
        with self._lock:
            found = self._model.preprocess([text], prompt=prompt)
            features: Mapping[str, list[int]] = {
                name: value[0].tolist() for name, value in found.items() if _per_token(value) and name != _MASK
            }
            full_length = length = len(features["input_ids"])
            if length == max_tokens:
                whole = self._model.preprocess([text], prompt=prompt, processing_kwargs=_WHOLE)
                full_length = whole["input_ids"].shape[1]
        return Tokens(features, length, full_length, prompt_length=found.get("prompt_length"))

    def frame(self, prompt: str) -> tuple[list[int], int]:
        """The tokens that stand before each text, and the number of those behind it."""
        one, other = (list(self(text, prompt).features["input_ids"]) for text in ("a", "7"))
        return one[: _common(one, other)], _common(one[::-1], other[::-1])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal numbers both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _per_token(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 2  # noqa: PLR2004 - texts by tokens


def _numbers(backend: Any) -> tuple[set[int], set[int]]:
    special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}
    return set(backend.get_vocab(with_added_tokens=True).values()), special


def _ending(count: int) -> Any:
    """A post-processor that puts so many tokens behind each text and none in front of it: what is counted."""
    from tokenizers.processors import TemplateProcessing  # noqa: PLC0415 - a companion of torch

    end = {"id": "end", "ids": [0] * count, "tokens": ["end"] * count}
    return TemplateProcessing(single=["$A", "end"] if count else ["$A"], special_tokens=[end])


def _adds_special_tokens(transformer: Any) -> bool:
    # The library gives both to its tokenizer, `common` last.
    arguments = transformer.processing_kwargs
    return bool({**arguments.get("text", {}), **arguments.get("common", {})}.get("add_special_tokens", True))


def _pooling_skips_prompt(model: Any) -> bool:
    from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: PLC0415 - a companion of torch

    return any(isinstance(module, Pooling) and not module.include_prompt for module in model)
