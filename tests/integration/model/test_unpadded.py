"""Passes without padding give the vectors that the library gives, here with an attention that a CPU has.

It takes what `varlen_attn` takes, and computes text by text. The kernel itself needs a card, and is not tried here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.item import Options
from tasks.model.device import Way
from tasks.model.encoder import Float32Array, TextItem, TokenizedText
from tasks.model.encoding import NON_FINITE, encode
from tasks.model.self_test import self_test
from tasks.model.sentence import SentenceEncoder
from tasks.model.transfer import OnCpu
from tasks.model.unpadded import COUNTED_WIDTHS
from tests.heavy import sentence_modules, sentence_transformers, torch, transformers
from tests.integration.model.tiny_model import TinyModel

pytestmark = pytest.mark.model

Folders = Mapping[TinyModel, Path]

TEXTS = ["".join(chr(97 + (7 * i + j) % 26) for j in range(2 + i % 19)) for i in range(40)]
RAW = Options(normalize=False)


def text_by_text(query: Any, key: Any, value: Any, *layout: Any, scale: float) -> Any:
    starts, key_starts, longest, longest_key = layout
    lengths = starts.diff()
    assert starts.dtype == torch.int32
    assert torch.equal(starts, key_starts)
    assert (starts[0], starts[-1], lengths.max(), longest) == (0, len(query), longest, longest_key)
    texts = zip(*(tensor.transpose(0, 1).split(lengths.tolist(), 1) for tensor in (query, key, value)), strict=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    return torch.cat([attend(q, k, v, scale=scale) for q, k, v in texts], 1).transpose(0, 1)


class WithAttention(OnCpu):
    """A CPU with an attention for texts in one row, and the tokens of each call of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.tokens: list[int] = []
        self.attention = self._attend
        self.off = 0.0
        self._error = error

    def _attend(self, query: Any, *others: Any, scale: float) -> Any:
        if self._error is not None:
            raise self._error
        self.tokens.append(len(query))
        found = text_by_text(query, *others, scale=scale)
        return found + self.off * found.roll(1, 0) if self.off else found


def library(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def reference(model: Any, texts: list[str]) -> Float32Array:
    return np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


def encoder_of(model: Any, cpu: OnCpu) -> SentenceEncoder:
    return SentenceEncoder(model, name="tiny", revision="0", way=Way("torch", "float32"), transfer=cpu)


def compare(encoder: SentenceEncoder, expected: Float32Array, texts: list[str]) -> None:
    outcomes, _ = encode(encoder, [TextItem(text, RAW) for text in texts], max_padded_tokens=1024)
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [TinyModel.CLS, TinyModel.DENSE, TinyModel.PROMPTED, TinyModel.INSTRUCTED])
def test_vectors_without_padding_equal_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    model, cpu = library(tiny_folders[kind]), WithAttention()
    expected = reference(model, TEXTS)
    encoder = encoder_of(model, cpu)
    assert encoder.row_widths == COUNTED_WIDTHS
    cpu.tokens.clear()
    outcomes, stats = encode(encoder, [TextItem(text, RAW) for text in TEXTS], max_padded_tokens=1024)
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 1
    assert cpu.tokens == [stats.tokens] * 2  # two layers
    self_test(encoder)


@pytest.mark.parametrize("name", ["Roberta", "XLMRoberta", "Camembert"])
def test_positions_begin_where_the_type_of_model_lets_them_begin(
    name: str, tiny_folders: Folders, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    tokenizer = library(tiny_folders[TinyModel.CLS]).tokenizer
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
        pad_token_id=0,
    )
    tokenizer.save_pretrained(str(tmp_path))
    getattr(transformers, f"{name}Model")(config).save_pretrained(str(tmp_path))
    model = sentence_transformers.SentenceTransformer(
        modules=[sentence_modules.Transformer(str(tmp_path)), sentence_modules.Pooling(32, "mean")], device="cpu"
    )
    expected, cpu = reference(model, TEXTS), WithAttention()
    encoder = encoder_of(model, cpu)
    assert encoder.row_widths == COUNTED_WIDTHS
    compare(encoder, expected, TEXTS)


def test_a_model_of_another_kind_is_padded(tiny_folders: Folders) -> None:
    model, cpu = library(tiny_folders[TinyModel.CAUSAL]), WithAttention()
    expected = reference(model, TEXTS)
    encoder = encoder_of(model, cpu)
    compare(encoder, expected, TEXTS)
    assert (encoder.row_widths, cpu.tokens) == ((), [])


@pytest.mark.parametrize(("error", "off"), [(RuntimeError("FlashAttention only supports Ampere"), 0.0), (None, 0.5)])
def test_with_an_attention_that_does_not_work_passes_are_padded(
    error: Exception | None, off: float, tiny_folders: Folders
) -> None:
    model, cpu = library(tiny_folders[TinyModel.DENSE]), WithAttention(error)
    cpu.off = off
    expected = reference(model, TEXTS)
    encoder = encoder_of(model, cpu)
    tried = len(cpu.tokens)
    assert encoder.row_widths == ()
    compare(encoder, expected, TEXTS)
    assert len(cpu.tokens) == tried


def test_a_text_without_finite_vector_spoils_none_beside_it(tiny_folders: Folders) -> None:
    model = library(tiny_folders[TinyModel.DENSE])
    expected = reference(model, TEXTS)
    # Of so many tokens, those with which passes are tried out at load are others.
    model[0].model.resize_token_embeddings(5000)
    with torch.no_grad():
        model[0].model.embeddings.word_embeddings.weight[model.tokenizer.convert_tokens_to_ids("?")] = torch.nan
    encoder = encoder_of(model, WithAttention())
    assert encoder.row_widths == COUNTED_WIDTHS
    items = [TextItem(text, RAW) for text in (*TEXTS[:20], "abcd?", *TEXTS[20:])]
    outcomes, _ = encode(encoder, items, max_padded_tokens=1024)
    assert outcomes.pop(20).error == NON_FINITE
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_torch_takes_the_call_of_its_attention() -> None:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - not in every torch

    row = torch.empty((24, 4, 8), dtype=torch.float16, device="meta")
    starts = torch.empty(4, dtype=torch.int32, device="meta")
    found = varlen_attn(row, row, row, starts, starts, 9, 9, scale=0.125)
    assert isinstance(found, torch.Tensor)
    assert found.shape == row.shape


def test_a_pass_with_a_text_without_any_token_is_padded(tiny_folders: Folders) -> None:
    cpu = WithAttention()
    encoder = encoder_of(library(tiny_folders[TinyModel.CLS]), cpu)
    texts = encoder.tokenize(TEXTS[:3], None)
    expected = encoder.forward(texts)
    empty = TokenizedText({name: [] for name in texts[0].features}, length=0, full_length=0)
    cpu.tokens.clear()
    np.testing.assert_allclose(encoder.forward([*texts, empty])[:3], expected, rtol=1e-4, atol=1e-5)
    assert cpu.tokens == []
