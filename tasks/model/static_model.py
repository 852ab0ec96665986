"""Static models: one vector for each token of the vocabulary, and a text is the mean of its tokens' vectors.

There is no transformer, so there is no padding and no longest text.
sentence-transformers calls the module `StaticEmbedding`; the package model2vec writes folders that it can read.
"""

import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tasks.model.device import Way
from tasks.model.encoder import ModelLoadError, TextRules, TokenizedText
from tasks.model.tokenizing import Int64Array
from worker_config.settings import Settings

_MODEL2VEC = "model2vec"
_PLAIN = Way("torch", "float32")


def is_static(model: Any) -> bool:
    """Whether a SentenceTransformer begins with a table of token vectors instead of a transformer."""
    from sentence_transformers.sentence_transformer.modules import (  # noqa: PLC0415 - the worker's parent has no torch
        StaticEmbedding,
    )

    return isinstance(model[0], StaticEmbedding)


def static_way(way: Way, settings: Settings) -> Way:
    """In which a static model is computed where a transformer would be computed in `way`.

    Raises:
        ModelLoadError: a setting asks for one that would compile a transformer.
    """
    if way.compute == "torch":
        return way
    for setting, value in (("COMPUTE", settings.compute), ("PRECISION", settings.precision)):
        if value not in {"auto", _PLAIN.compute, _PLAIN.precision}:
            raise ModelLoadError(
                f"EMBEDQ_MODEL={settings.model} is a static model: a table of token vectors, which is read by torch in "
                f"float32 on a CPU. EMBEDQ_{setting}={value} is for transformers; set it to auto."
            )
    return _PLAIN


def is_bare_model2vec(place: str) -> bool:
    """Whether it is a folder of model2vec without the `modules.json` by which the library would recognise it."""
    return not (Path(place) / "modules.json").is_file() and _configuration(place).get("model_type") == _MODEL2VEC


def load_bare_model2vec(place: str, device: str) -> Any:
    """Its SentenceTransformer, of the modules that model2vec itself names where it writes a `modules.json`."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - see is_static
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding  # noqa: PLC0415 - as above

    modules: list[Any] = [StaticEmbedding.load(place)]
    if _configuration(place).get("normalize"):
        modules.append(Normalize())
    return SentenceTransformer(modules=modules, device=device)


class StaticTokenizer:
    """The tokenizer of a static model, prompts included; does what `Tokenizer` does for a transformer.

    Args:
        model: a SentenceTransformer that begins with `StaticEmbedding`; its tokenizer is this one's afterwards.
    """

    def __init__(self, model: Any) -> None:
        self._prompts: dict[str, str] = dict(model.prompts)
        self._default: str | None = model.default_prompt_name
        self._backend = model[0].tokenizer
        self.names: tuple[str, ...] = ("input_ids", "offsets")
        """The features that the module gets."""
        self.max_tokens: int | None = (self._backend.truncation or {}).get("max_length")
        """Where texts are cut; None: nowhere, unless the tokenizer's own file says so."""

    def __call__(self, texts: Sequence[str], prompt_name: str | None) -> list[TokenizedText]:
        """See `Encoder.tokenize`."""
        name = prompt_name if prompt_name is not None else self._default
        prompt = self._prompts[name] if name is not None else ""
        prompted = [prompt + text for text in texts] if prompt else list(texts)
        encodings = self._backend.encode_batch_fast(prompted, add_special_tokens=False)
        return [_tokenized(encoding) for encoding in encodings]

    def rules(self) -> TextRules:
        """See `Encoder.text_rules`."""
        rules = json.loads(self._backend.to_str())
        # Whoever counts with it adds special tokens; this model reads none, whatever the file says.
        rules["truncation"] = rules["padding"] = rules["post_processor"] = None
        return TextRules(json.dumps(rules, ensure_ascii=False).encode(), self._prompts, self._default)

    def pad(self, batch: Sequence[TokenizedText]) -> dict[str, Int64Array]:
        """The tokens of all texts in one row, and where each text begins in it: nothing is filled up."""
        lengths = [text.length for text in batch]
        tokens = chain.from_iterable(text.features["input_ids"] for text in batch)
        return {
            "input_ids": np.fromiter(tokens, dtype=np.int64, count=sum(lengths)),
            "offsets": np.cumsum([0, *lengths[:-1]], dtype=np.int64),
        }


def _tokenized(encoding: Any) -> TokenizedText:
    ids = encoding.ids
    rest = sum(len(piece) for piece in encoding.overflowing)
    return TokenizedText({"input_ids": ids}, length=len(ids), full_length=len(ids) + rest)


def _configuration(place: str) -> dict[str, Any]:
    file = Path(place) / "config.json"
    content = json.loads(file.read_bytes()) if file.is_file() else None
    return content if isinstance(content, dict) else {}
