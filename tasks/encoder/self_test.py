"""Are the vectors those of the library? Tried once after loading, before a worker says that it is ready.

A library that was given a damaged folder is no reference: `check_network.py` looks at that first.
"""

from collections.abc import Sequence

import numpy as np

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Float32Array, Text, WayUnusable
from tasks.encoder.tokenize import StaticTokenizer, Tokenizer

TEXTS = (
    "a",
    "How long may a request wait before it is answered?",
    "Messages carry no data: losing one, or getting one twice, is harmless.",
    "Über allen Gipfeln ist Ruh; 吾輩は猫である。 🦆",
    "def area(radius: float) -> float: return 3.14159 * radius ** 2",
    " ".join(f"Sentence {i} makes this text longer than its neighbours." for i in range(12)),
    "SELECT id, name FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT 10;",
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "?",
    "42",
    "the",
    "No",
    "Wien, 1. Mai 1889",
    "rabbit fever",
    "https://example.org/a/b?c=d&e=f#g",
    "0-dimensional biomaterials show inductive properties.",
    "¿Dónde está la biblioteca? Где библиотека? أين المكتبة؟",
    "lorem ipsum " * 40,
)
"""Short, long, mixed scripts, code: together they need several micro-batches of different lengths. The first
`REFERENCES` stand for a revision: each has tokens in every model."""
REFERENCES = 8

MIN_COSINE = 0.99992
"""More than the 0.9999 that is promised for every text, because these few do not include the worst one. Of 1,200 other
texts the worst one of all-MiniLM-L6-v2 in bfloat16 was at 0.99994."""
_MAX_PADDED_TOKENS = 256
LONGEST_TRIED = 2048
"""Tokens of the text that fills the window of the whole network: of the attention to more, a pass takes minutes."""


def self_test(encoder: Encoder) -> None:
    """Compares `encode` with the encoder's reference, which for a real model is the plain float32 library.

    Raises:
        WayUnusable: a vector is missing, has the wrong length, or is less alike than `MIN_COSINE`.
    """
    outcomes, _ = encode(encoder, list(map(Text, encoder.reference_texts)), max_padded_tokens=_MAX_PADDED_TOKENS)
    info, reference = encoder.info, encoder.reference
    setting = f"EMBEDQ_MODEL={info.model} with {info.compute} in {info.precision} on {info.device}"
    for outcome in outcomes:
        if outcome.error is not None:
            raise WayUnusable(f"{setting} failed its self-test: {outcome.error.code}. {outcome.error.message}")
    vectors = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    if vectors.shape != reference.shape or vectors.shape[1] != info.dimension:
        raise WayUnusable(f"{setting} failed its self-test: vectors have {vectors.shape[1]} components.")
    worst = worst_cosine(vectors, reference)
    if not worst >= MIN_COSINE:
        plain = (info.compute, info.precision) == ("torch", "float32")
        fix = "Choose another model" if plain else "Set EMBEDQ_COMPUTE=torch and EMBEDQ_PRECISION=float32"
        raise WayUnusable(
            f"{setting} failed its self-test: its vectors differ from the plain float32 model "
            f"(cosine {worst:.6f}, needed {MIN_COSINE}). {fix}."
        )


def worst_cosine(left: Float32Array, right: Float32Array) -> float:
    """The smallest cosine between rows of equal index, both [n, d]; NaN if any component is.

    A row of zeros equals only a row of zeros: a static model gives it for a text of which it knows no token.
    """
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    zeros = ~a.any(axis=1) & ~b.any(axis=1)
    with np.errstate(invalid="ignore"):
        return float(np.min(np.where(zeros, 1.0, np.sum(a * b, axis=1) / norms)))


def reference_texts(tokenizer: Tokenizer | StaticTokenizer, special_tokens: Sequence[str]) -> tuple[str, ...]:
    """`TEXTS`, and those that this tokenizer makes interesting: special tokens within, nothing, a full window."""
    special = [f"a {token}{token} b {token}" for token in dict.fromkeys(special_tokens[:8])]
    longest = "the " * min(tokenizer.max_tokens or LONGEST_TRIED, LONGEST_TRIED)
    return tuple(text for text in (*TEXTS, *special, longest, "") if _is_readable(tokenizer, text))


def _is_readable(tokenizer: Tokenizer | StaticTokenizer, text: str) -> bool:
    try:
        return bool(tokenizer([text], None)[0].length) or isinstance(tokenizer, StaticTokenizer)
    except IndexError:  # a special token without a row
        return False
