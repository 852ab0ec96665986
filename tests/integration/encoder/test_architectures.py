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
from tasks.encoder.self_test import worst_cosine
from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.item import UNLIMITED_TOKENS, Options, Vector
from tests.heavy import sentence_transformers, torch
from tests.integration.encoder.architectures import (
    ARCHITECTURES,
    MAX_TOKENS,
    Architecture,
    save_model2vec,
    save_router,
)
from tests.integration.encoder.folders import BERT, served
from tests.source_tree import CHECKOUT

pytestmark = pytest.mark.model

_LETTERS = "the quick, brown fox jumps over a lazy dog. what is a queue? hello there!"
_LONGEST = (_LETTERS * 2)[: int(1.3 * MAX_TOKENS)].replace(" ", "x")
TEXTS = [
    *("b", "hello there", "what is a queue?", "zz, yy!", "Hello There"),
    *(_LETTERS[:40], _LONGEST, _LONGEST * 4, "hello there, " * 300),
]
"""From 1 token to so many that only a beginning is tokenized."""
LEAST_COSINE = 0.999999
LARGEST_DIFFERENCE = 1e-4
"""Of a component, beside the largest component of the model's vectors."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.name, marks=[] if kind.routine else [pytest.mark.thorough]) for kind in ARCHITECTURES],
)
def test_a_kind_of_model_is_served_as_the_table_says(kind: Architecture, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    kind.save(folder)
    if kind.way == "refused":
        with pytest.raises(ModelLoadError, match=kind.refusal):
            served(folder, compute="auto")
        return
    encoder = served(folder, compute="auto")
    assert encoder.info.compute == kind.way.lower()
    kind.complete(folder)
    library = sentence_transformers.SentenceTransformer(
        str(folder), device="cpu", model_kwargs={"dtype": torch.float32}
    )
    compare(encoder, library)


def test_the_routes_of_a_router_are_served_after_what_the_documentation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_router(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    page = (CHECKOUT / "docs" / "models.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    exec(example.replace("some/asymmetric-model", str(tmp_path / "model")), {})  # noqa: S102 - of our own page
    library = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for route, expected in (("query", library.encode_query(TEXTS)), ("document", library.encode_document(TEXTS))):
        encoder = served(tmp_path / f"model-for-{route}", compute="torch" if route == "document" else "auto")
        items = [Text(text, Options(normalize=False, prompt_name=route)) for text in TEXTS]
        vectors = rows(encode(encoder, items, max_padded_tokens=2 * MAX_TOKENS)[0])
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)


def test_a_text_of_any_length_is_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model2vec(folder)
    encoder = served(folder, compute="auto")
    [outcome], stats = encode(encoder, [Text("hello " * 50_000)], max_padded_tokens=1024)
    assert (outcome.tokens, outcome.truncated, stats.forward_passes) == (250_000, False, 1)
    with pytest.raises(ModelLoadError, match=r"is a static model.*EMBEDQ_COMPUTE=openvino is for transformers"):
        served(folder, compute="openvino")


def compare(encoder: Encoder, library: Any) -> None:
    """Vectors, counts and flags with each prompt, also of texts that hold special tokens."""
    names = (None, *encoder.info.prompts)
    # Others, which the class of a tokenizer adds when it is loaded, have no row in the network.
    special = set(getattr(library.tokenizer, "all_special_tokens", [])).intersection(BERT)
    texts = [*TEXTS, *(f"the {token} order{token}{token} {token}" for token in sorted(special))]
    items = [Text(text, Options(normalize=False, prompt_name=name)) for name in names for text in texts]
    outcomes, _ = encode(encoder, items, max_padded_tokens=2 * MAX_TOKENS)
    for at, name in enumerate(names):
        compare_prompt(encoder, library, name, texts, outcomes[at * len(texts) :][: len(texts)])


def compare_prompt(
    encoder: Encoder, library: Any, prompt_name: str | None, texts: Sequence[str], outcomes: Sequence[Vector]
) -> None:
    vectors = rows(outcomes)
    expected = np.asarray(library.encode(texts, prompt_name=prompt_name, show_progress_bar=False), dtype=np.float32)
    assert worst_cosine(expected[:1], expected[1:2]) < 0.99  # a comparison that could not fail would prove nothing
    assert vectors.shape[1] == expected.shape[1] == encoder.info.dimension
    assert worst_cosine(vectors, expected) >= LEAST_COSINE
    assert np.abs(vectors - expected).max() <= LARGEST_DIFFERENCE * np.abs(expected).max()
    chosen = prompt_name or library.default_prompt_name
    prompt = library.prompts[chosen] if chosen else ""
    read, whole = lengths(library, prompt, texts), lengths(library, prompt, texts, cut=False)
    assert [outcome.tokens for outcome in outcomes] == read
    assert [outcome.truncated for outcome in outcomes] == [n < m for n, m in zip(read, whole, strict=True)]
    assert max(read) <= encoder.info.max_tokens
    assert (encoder.info.max_tokens == UNLIMITED_TOKENS) == (read == whole)
    rules = encoder.text_rules()
    chosen = rules.default_prompt if prompt_name is None else prompt_name
    counter = TokenCounter(rules.tokenizer, "" if chosen is None else rules.prompts[chosen])
    assert [counter.count(text) for text in texts] == whole


def rows(outcomes: Sequence[Vector]) -> Float32Array:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])


def lengths(library: Any, prompt: str, texts: Sequence[str], *, cut: bool = True) -> list[int]:
    if "offsets" in library.preprocess(["a"]):
        tokenizer = library.tokenizer if cut else Tokenizer.from_str(library.tokenizer.to_str())
        if not cut:
            tokenizer.no_truncation()
        return [len(tokenizer.encode(prompt + text, add_special_tokens=False)) for text in texts]
    options = {} if cut else {"processing_kwargs": {"text": {"truncation": False, "max_length": None}}}
    return [library.preprocess([text], prompt=prompt, **options)["input_ids"].shape[1] for text in texts]
