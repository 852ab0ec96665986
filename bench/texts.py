"""Deterministic texts in the sizes that services see: passages of a document store, and short queries.

With the WordPiece tokenizer of BERT and its children a passage has 138 tokens on average (log-normal, cut at 256) and a
query 18, special tokens included. Equal seeds give equal texts on every machine.
"""

import json
import math
import random
from collections.abc import Sequence

from bench.vocabulary import LONG, PLAIN

QUERY_WORDS = 8
TOKENS_PER_WORD = 2.0
"""Measured with the tokenizer of all-MiniLM-L6-v2 over this mixture; a test keeps it true."""
_LONG_SHARE = 0.517
_MAX_TOKENS = 256
_SPECIAL_TOKENS = 2
_PASSAGE_SIGMA = 0.55
_PASSAGE_MEDIAN_TOKENS = 120.0
_SENTENCE_WORDS = (7, 15)
_INGESTED = 1_000_003
"""A seed that nothing else in a run has."""


def passages(count: int, seed: int = 0) -> list[str]:
    """Texts of several sentences with log-normal lengths."""
    source = random.Random(f"passages {seed}")  # noqa: S311 - texts must be the same every time
    return [_passage(source) for _ in range(count)]


def queries(count: int, seed: int = 0) -> list[str]:
    """Texts of eight words each."""
    source = random.Random(f"queries {seed}")  # noqa: S311 - as above
    return [" ".join(_words(source, QUERY_WORDS)) for _ in range(count)]


def ingested(count: int) -> list[str]:
    """The passages of an ingestion, for the bare encoder too. None is longer than the model reads."""
    return passages(count, _INGESTED)


def body(model: str, texts: str | Sequence[str], **more: object) -> str:
    """The JSON of one embedding request, on one line."""
    return json.dumps({"model": model, "input": texts, **more})


def _passage(source: random.Random) -> str:
    tokens = min(_MAX_TOKENS, math.exp(source.gauss(math.log(_PASSAGE_MEDIAN_TOKENS), _PASSAGE_SIGMA)))
    words = _words(source, max(1, round((tokens - _SPECIAL_TOKENS) / TOKENS_PER_WORD)))
    sentences = []
    while words:
        length = source.randint(*_SENTENCE_WORDS)
        sentences.append(" ".join(words[:length]).capitalize() + ".")
        words = words[length:]
    return " ".join(sentences)


def _words(source: random.Random, count: int) -> list[str]:
    return [source.choice(LONG if source.random() < _LONG_SHARE else PLAIN) for _ in range(count)]
