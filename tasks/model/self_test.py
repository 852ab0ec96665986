"""Does the path that serves give the model's own vectors? Run once after loading, before a worker says it is ready."""

import numpy as np

from tasks.gate import Gate, accompanied
from tasks.model.encoder import Encoder, Float32Array, TextItem, WayUnusable
from tasks.model.encoding import encode

TEXTS = (
    "a",
    "How long may a request wait before it is answered?",
    "Messages carry no data: losing one, or getting one twice, is harmless.",
    "Über allen Gipfeln ist Ruh; 吾輩は猫である。 🦆",
    "def area(radius: float) -> float: return 3.14159 * radius ** 2",
    " ".join(f"Sentence {i} makes this text longer than its neighbours." for i in range(12)),
    "?",
    "42",
    "the",
    "No",
    "Wien, 1. Mai 1889",
    "rabbit fever",
    "SELECT id, name FROM users WHERE deleted_at IS NULL ORDER BY id LIMIT 10;",
    "https://example.org/a/b?c=d&e=f#g",
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "0-dimensional biomaterials show inductive properties.",
    "¿Dónde está la biblioteca? Где библиотека? أين المكتبة؟",
    "lorem ipsum " * 40,
)
"""Short, long, mixed scripts, code: together they need several micro-batches of different lengths."""

MIN_COSINE = 0.99992
"""More than the 0.9999 that is promised for every text, because these few do not include the worst one. Of 1,200 other
texts the worst one of all-MiniLM-L6-v2 in bfloat16 was at 0.99994."""
_MAX_PADDED_TOKENS = 256
_LONE = slice(1, 2)
"""A query by itself, as most are: it may be padded to a width of its own (`Encoder.lone_widths`)."""


def self_test(encoder: Encoder) -> None:
    """Compares `encode` with the encoder's reference, which for a real model is the plain float32 library.

    It does so with all texts together and with one by itself, which may be padded. With several streams it does both
    twice: a pass that is alone may go another way than one beside others.

    Raises:
        WayUnusable: a vector is missing, has the wrong length, or is less alike than `MIN_COSINE`.
    """
    for texts in (slice(None), _LONE):
        _compare(encoder, texts, Gate(single=True))
        if encoder.streams > 1:
            with accompanied() as gate:
                _compare(encoder, texts, gate)


def _compare(encoder: Encoder, texts: slice, gate: Gate) -> None:
    items, reference = [TextItem(text) for text in TEXTS[texts]], encoder.reference[texts]
    outcomes, _ = encode(encoder, items, max_padded_tokens=_MAX_PADDED_TOKENS, gate=gate)
    info = encoder.info
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
