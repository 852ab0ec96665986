"""The fake encoder is a product: equal on every machine, and it injures as documented."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Float32Array
from tasks.encoder.micro_batches import own_rows


def vectors(encoder: FakeEncoder, *texts: str, prompt_name: str | None = None) -> Float32Array:
    tokens = encoder.tokenize(texts, prompt_name)
    return encoder.forward(tokens, own_rows(list(range(len(tokens))), [one.length for one in tokens]).layout)


def test_vectors_are_the_same_on_every_machine() -> None:
    golden = np.array([0.9693956, 0.06373154, -0.02740002, 0.23549889], dtype=np.float32)
    np.testing.assert_array_equal(vectors(FakeEncoder(dimension=4), "hello wörld"), golden[None])


def test_vectors_are_distinct_unit_vectors() -> None:
    rows = vectors(FakeEncoder(), *(f"text {n}" for n in range(200)))
    assert rows.shape == (200, 384)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    cosines = rows @ rows.T
    assert np.abs(cosines[~np.eye(200, dtype=bool)]).max() < 0.4


@pytest.mark.parametrize(
    ("text", "length", "full_length"),
    [("", 2, 2), (" \n", 2, 2), ("\0", 3, 3), ("one", 3, 3), ("a b c", 5, 5), ("w " * 8, 8, 10), ("x\ud800", 3, 3)],
)
def test_tokens_are_words_and_two(text: str, length: int, full_length: int) -> None:
    [tokenized] = FakeEncoder(max_tokens=8).tokenize([text], None)
    assert (tokenized.length, tokenized.full_length) == (length, full_length)
    assert len(tokenized.features["input_ids"]) == length


def test_the_simulated_speed_is_padded_tokens_per_second() -> None:
    slept: list[float] = []
    encoder = FakeEncoder(tokens_per_s=1000, sleep=slept.append)
    vectors(encoder, "a b c", "a")
    assert slept == [2 * 5 / 1000]


@pytest.mark.parametrize(
    "text",
    ["", " ", "one", "a b  c\n", "a\x1cb\x1d\x1e\x1fc", "a\x0cb\x85c\u2028d", "a\u00a0b\u3000c", "a\u200bb", "[S] x"],
)
@pytest.mark.parametrize("prompt", [None, "query"])
def test_its_tokenizer_counts_as_it_does(text: str, prompt: str | None) -> None:
    encoder = FakeEncoder()
    rules = encoder.text_rules()
    before = rules.prompts[prompt] if prompt else ""
    tokens = len(Tokenizer.from_str(rules.tokenizer.decode()).encode(before + text).ids)
    assert tokens == encoder.tokenize([text], prompt)[0].full_length
