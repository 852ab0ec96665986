"""The fake encoder is a product: equal on every machine, and it injures as documented."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Float32Array
from tasks.encoder.micro_batches import own_rows


def vectors(encoder: FakeEncoder, *texts: str) -> Float32Array:
    tokens = encoder.tokenize(texts, None)
    return encoder.forward(tokens, own_rows(list(range(len(tokens))), [one.length for one in tokens]).layout)


def test_vectors_are_distinct_unit_vectors_and_the_same_on_every_machine() -> None:
    golden = np.array([0.9693956, 0.06373154, -0.02740002, 0.23549889], dtype=np.float32)
    np.testing.assert_array_equal(vectors(FakeEncoder(dimension=4), "hello wörld"), golden[None])
    rows = vectors(FakeEncoder(), *(f"text {n}" for n in range(200)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    assert np.abs((rows @ rows.T)[~np.eye(200, dtype=bool)]).max() < 0.4


def test_the_simulated_speed_is_padded_tokens_per_second() -> None:
    slept: list[float] = []
    vectors(FakeEncoder(tokens_per_s=1000, sleep=slept.append), "a b c", "a")
    assert slept == [2 * 5 / 1000]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        *(("", 2), (" \n", 2), ("\0", 3), ("a b  c\n", 5), ("w " * 8, 10), ("a\x1cb\x1d\x1e\x1fc", 5), ("[S] x", 4)),
        *(("a\x0cb\x85c\u2028d", 6), ("a\u00a0b\u3000c", 5), ("a\u200bb", 3)),
    ],
)
def test_tokens_are_words_and_two_for_its_tokenizer_too(text: str, length: int) -> None:
    encoder = FakeEncoder(max_tokens=8)
    rules = encoder.text_rules()
    for prompt, more in ((None, 0), ("query", 1)):
        [tokens] = encoder.tokenize([text], prompt)
        assert (tokens.length, tokens.full_length) == (min(8, length + more), length + more)
        before = rules.prompts[prompt] if prompt else ""
        assert len(Tokenizer.from_str(rules.tokenizer.decode()).encode(before + text).ids) == length + more
