"""The deterministic fake encoder (`EMBEDQ_COMPUTE=fake`): for tests and load trials, never for search.

A token is a word between white space; two more stand for the special tokens. The vector is a hash of the tokens that
were kept, equal on every machine. Words that contain one of these injure the process on purpose, so that recovery can
be tried:

| trigger | in the forward pass |
|---|---|
| `!!kill!!` | the process dies of SIGKILL |
| `!!hang!!` | the pass never ends |
| `!!freeze!!` | the same, and no thread of the process runs any more |
| `!!break!!` | the device is lost: EncoderBroken |
| `!!memory-error!!` | MemoryError, also when the text is alone |
| `!!fail!!` | RuntimeError, also when the text is alone |
| `!!nan!!` | the vector of this text is NaN |
"""

import ctypes
import hashlib
import json
import os
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tasks.encoder.interface import EncoderBroken, Float32Array, Layout, TextRules, Tokens
from tasks.encoder.prompts import prompts_by_purpose
from tasks.encoder.self_test import TEXTS
from tasks.model import Model

PROMPTS: Mapping[str, str] = {"query": "query: ", "document": "document: "}
_SPECIAL = (0, 1)
_BLANKS = r"[\x1c-\x1f]"
"""White space for Python alone. Everybody agrees on the other characters that it takes for white space."""
_NAN_TRIGGER = "!!nan!!"
_HOUR_S = 3600
_KEPT_WORDS = 2**16
"""Hashes of words that are remembered: the service is on trial, and not the fake."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> NoReturn:
    while True:
        time.sleep(_HOUR_S)


def _freeze() -> NoReturn:
    while True:
        ctypes.PyDLL(None).sleep(_HOUR_S)  # keeps the interpreter's lock


def _break() -> NoReturn:
    raise EncoderBroken("the fake device was told to break")


def _run_out_of_memory() -> NoReturn:
    raise MemoryError


def _fail() -> NoReturn:
    raise RuntimeError("the fake encoder was told to fail")


_INJURIES: Mapping[str, Callable[[], None]] = {
    "!!kill!!": _kill,
    "!!hang!!": _hang,
    "!!freeze!!": _freeze,
    "!!break!!": _break,
    "!!memory-error!!": _run_out_of_memory,
    "!!fail!!": _fail,
}
_TRIGGER_IDS = {trigger: -1 - index for index, trigger in enumerate((*_INJURIES, _NAN_TRIGGER))}
"""Negative, so that no hash of a word can meet them."""


class FakeSettings(BaseSettings):
    """What a trial sets for it, as `EMBEDQ_FAKE_TOKENS_PER_S` and so on."""

    model_config = SettingsConfigDict(env_prefix="EMBEDQ_FAKE_", env_file=".env", env_ignore_empty=True, extra="ignore")

    dimension: int = Field(default=384, ge=1, le=16_384)
    max_tokens: int = Field(default=256, ge=8)
    load_s: float = Field(default=0, ge=0, le=600)
    """Seconds that loading takes."""
    tokens_per_s: float = Field(default=0, ge=0)
    """0: as fast as it goes."""


class FakeEncoder:
    """An encoder without a model.

    Args:
        model: the name it claims.
        dimension: length of its vectors.
        max_tokens: longest text in tokens, special ones included; at least 3.
        tokens_per_s: a forward pass takes its padded tokens divided by this; 0: no time.
        streams: as in `Encoder`.
        sleep: how time passes, in seconds.
    """

    def __init__(
        self,
        model: str = "fake",
        *,
        dimension: int = 384,
        max_tokens: int = 256,
        tokens_per_s: float = 0,
        streams: int = 1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        query_prompt, document_prompt = prompts_by_purpose(PROMPTS)
        self.info = Model(
            model=model,
            revision="fake",
            dimension=dimension,
            max_tokens=max_tokens,
            prompts=tuple(PROMPTS),
            device="cpu",
            compute="fake",
            precision="float32",
            query_prompt=query_prompt,
            document_prompt=document_prompt,
        )
        self.streams = streams
        self.row_widths: tuple[int, ...] = ()
        self.needs_tokens = True
        self.reference_texts = TEXTS
        self._tokens_per_s = tokens_per_s
        self._sleep = sleep
        self.reference = self._vectors([text.features["input_ids"] for text in self.tokenize(TEXTS, None)])

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        """One token per word, and two special ones."""
        prompt = PROMPTS[prompt_name] if prompt_name else ""
        return [self._tokenize(prompt + text) for text in texts]

    def text_rules(self) -> TextRules:
        """See `Encoder.text_rules`: a tokenizer to which every word is unknown, so it is one token."""
        special = {"id": "[S]", "ids": [1], "tokens": ["[S]"]}
        ends = {"SpecialToken": {"id": "[S]", "type_id": 0}}
        template = [ends, {"Sequence": {"id": "A", "type_id": 0}}, ends]
        splitters = [
            {"type": "WhitespaceSplit"},
            {"type": "Split", "pattern": {"Regex": _BLANKS}, "behavior": "Removed", "invert": False},
        ]
        tokenizer: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": template,
                "pair": template,
                "special_tokens": {"[S]": special},
            },
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "[S]": 1}, "unk_token": "[UNK]"},
        }
        return TextRules(json.dumps(tokenizer).encode(), PROMPTS)

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        """Unit vectors float32 [n, dimension]; triggers act."""
        rows = [text.features["input_ids"] for text in texts]
        if min(map(min, rows)) < 0:  # there is one
            for trigger, injure in _INJURIES.items():
                if any(_TRIGGER_IDS[trigger] in ids for ids in rows):
                    injure()
        if self._tokens_per_s:
            self._sleep(layout.padded_tokens / self._tokens_per_s)
        return self._vectors(rows)

    def _tokenize(self, text: str) -> Tokens:
        words = text.split()
        kept = words[: self.info.max_tokens - len(_SPECIAL)]
        ids = [_SPECIAL[0], *map(_word_id, kept), _SPECIAL[1]]
        return Tokens({"input_ids": ids}, length=len(ids), full_length=len(words) + len(_SPECIAL))

    def _vectors(self, rows: Sequence[Sequence[int]]) -> Float32Array:
        dimension = self.info.dimension
        digests = [hashlib.shake_128(struct.pack(f"<{len(ids)}q", *ids)).digest(2 * dimension) for ids in rows]
        # Whole numbers up to the square root, so that every machine gets the same bits. Odd ones, so none is zero.
        components = np.frombuffer(b"".join(digests), "<i2").reshape(len(rows), dimension).astype(np.int64) | 1
        lengths = np.sqrt(np.einsum("ij,ij->i", components, components).astype(np.float64))
        vectors: Float32Array = (components / lengths[:, None]).astype(np.float32)
        vectors[[_TRIGGER_IDS[_NAN_TRIGGER] in ids for ids in rows]] = np.nan
        return vectors


@lru_cache(maxsize=_KEPT_WORDS)
def _word_id(word: str) -> int:
    for trigger, trigger_id in _TRIGGER_IDS.items():
        if trigger in word:
            return trigger_id
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
