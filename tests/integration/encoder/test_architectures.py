"""Every kind of model in the table of `docs/models.md` is served as the library serves it, or refused as it says there.

`make thorough` runs the whole table, and all other runs a part of it: compiling a model takes a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Float32Array, ModelLoadError, Text
from tasks.encoder.load import load
from tasks.encoder.self_test import worst_cosine
from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.item import UNLIMITED_TOKENS, Options, Vector
from tests.heavy import sentence_transformers, torch
from tests.integration.encoder.architectures import ARCHITECTURES, MAX_TOKENS, Architecture, save_router
from tests.source_tree import CHECKOUT
from worker_config.settings import load_settings

_LETTERS = "the quick, brown fox jumps over a lazy dog. what is a queue? hello there!"
_LONGEST = (_LETTERS * 2)[: int(1.3 * MAX_TOKENS)].replace(" ", "x")
TEXTS = [
    "b",
    "hello there",
    "what is a queue?",
    "zz, yy!",
    _LETTERS[:40],
    _LONGEST,
    "Hello There",
    _LONGEST * 4,
    "hello there, " * 300,
]
"""From 1 token to so many that only a beginning is tokenized."""

LEAST_COSINE = 0.999999
LARGEST_DIFFERENCE = 1e-4
"""Of a component, beside the largest component of the model's vectors."""


def parameters() -> list[Any]:
    return [
        pytest.param(kind, id=kind.name, marks=[pytest.mark.model, *(() if kind.routine else (pytest.mark.thorough,))])
        for kind in ARCHITECTURES
    ]


@pytest.mark.parametrize("kind", parameters())
def test_a_kind_of_model_is_served_as_the_table_says(kind: Architecture, tmp_path: Path) -> None:
    kind.save(tmp_path)
    folder = tmp_path / "model"
    if kind.way == "refused":
        with pytest.raises(ModelLoadError, match=kind.refusal):
            loaded(folder)
        return
    encoder = loaded(folder)
    assert encoder.info.compute == kind.way.lower()
    kind.complete(folder)
    library = sentence_transformers.SentenceTransformer(
        str(folder), device="cpu", model_kwargs={"dtype": torch.float32}
    )
    for prompt_name in (None, *encoder.info.prompts):
        compare(encoder, library, prompt_name)


@pytest.mark.model
def test_the_routes_of_a_router_are_served_after_what_the_documentation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_router(tmp_path)
    monkeypatch.chdir(tmp_path)
    page = (CHECKOUT / "docs" / "models.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    exec(example.replace("some/asymmetric-model", str(tmp_path / "model")), {})  # noqa: S102 - of our own page
    library = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for route, expected in (("query", library.encode_query(TEXTS)), ("document", library.encode_document(TEXTS))):
        encoder = loaded(tmp_path / f"model-for-{route}")
        items = [Text(text, Options(normalize=False, prompt_name=route)) for text in TEXTS]
        vectors = rows(encode(encoder, items, max_padded_tokens=2 * MAX_TOKENS)[0])
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)


def loaded(folder: Path) -> Encoder:
    return load(load_settings(model=str(folder), precision="float32", device="cpu"))


def compare(encoder: Encoder, library: Any, prompt_name: str | None) -> None:
    """Vectors, counts and flags of `TEXTS`, in batches of other texts than the library's."""
    items = [Text(text, Options(normalize=False, prompt_name=prompt_name)) for text in TEXTS]
    outcomes, _ = encode(encoder, items, max_padded_tokens=2 * MAX_TOKENS)
    vectors = rows(outcomes)
    expected = np.asarray(library.encode(TEXTS, prompt_name=prompt_name, show_progress_bar=False), dtype=np.float32)
    assert worst_cosine(expected[:1], expected[1:2]) < 0.99  # a comparison that could not fail would prove nothing
    assert vectors.shape[1] == expected.shape[1] == encoder.info.dimension
    assert worst_cosine(vectors, expected) >= LEAST_COSINE
    assert np.abs(vectors - expected).max() <= LARGEST_DIFFERENCE * np.abs(expected).max()
    chosen = prompt_name or library.default_prompt_name
    prompt = library.prompts[chosen] if chosen else ""
    read, whole = lengths(library, prompt), lengths(library, prompt, cut=False)
    assert [outcome.tokens for outcome in outcomes] == read
    assert [outcome.truncated for outcome in outcomes] == [n < m for n, m in zip(read, whole, strict=True)]
    assert max(read) <= encoder.info.max_tokens
    assert (encoder.info.max_tokens == UNLIMITED_TOKENS) == (read == whole)
    rules = encoder.text_rules()
    chosen = rules.default_prompt if prompt_name is None else prompt_name
    counter = TokenCounter(rules.tokenizer, "" if chosen is None else rules.prompts[chosen])
    assert [counter.count(text) for text in TEXTS] == whole


def rows(outcomes: Sequence[Vector]) -> Float32Array:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])


def lengths(library: Any, prompt: str, *, cut: bool = True) -> list[int]:
    """Tokens that the library reads of each text."""
    if "offsets" in library.preprocess(["a"]):
        tokenizer = library.tokenizer if cut else Tokenizer.from_str(library.tokenizer.to_str())
        if not cut:
            tokenizer.no_truncation()
        return [len(tokenizer.encode(prompt + text, add_special_tokens=False)) for text in TEXTS]
    options = {} if cut else {"processing_kwargs": {"text": {"truncation": False, "max_length": None}}}
    return [library.preprocess([text], prompt=prompt, **options)["input_ids"].shape[1] for text in TEXTS]
