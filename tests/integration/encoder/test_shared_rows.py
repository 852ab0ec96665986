"""Models whose texts share rows of a pass give the vectors that the library gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.encode import NON_FINITE, encode
from tasks.encoder.interface import Text
from tasks.encoder.micro_batches import ROW_WIDTHS, plan
from tasks.encoder.openvino import CompiledTransformer, network_positions
from tasks.encoder.tokenize import Tokenizer
from tasks.encoder.transformer import TransformerEncoder
from tasks.item import Options
from tests.heavy import sentence_modules, sentence_transformers, torch, transformers
from tests.integration.encoder.architectures import TinyModel

pytestmark = pytest.mark.model

Folders = Mapping[TinyModel, Path]

NAMES = ("input_ids", "token_type_ids", "attention_mask")
TEXTS = ["".join(chr(97 + (7 * i + j) % 26) for j in range(2 + i % 19)) for i in range(40)]
RAW = Options(normalize=False)
POSITIONS = 160
"""Fewer than a wide row has tokens: positions begin anew with each text."""


def library(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def compiled(model: Any, precision: str = "float32") -> TransformerEncoder:
    tokenizer = Tokenizer(model)
    return TransformerEncoder(model, tokenizer, name="tiny", revision="0", compute="openvino", precision=precision)


def built(config_class: Any, *, tokenizer: Any, folder: Path) -> Any:
    """A small model of a type, with random weights."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    positions = POSITIONS + 2  # RoBERTa's begin behind that of padding
    config = config_class(
        intermediate_size=64, max_position_embeddings=positions, initializer_range=0.5, pad_token_id=0, **sizes
    )
    tokenizer.model_max_length = POSITIONS
    tokenizer.save_pretrained(str(folder))
    transformers.AutoModel.from_config(config).save_pretrained(str(folder))
    return sentence_transformers.SentenceTransformer(
        modules=[sentence_modules.Transformer(str(folder)), sentence_modules.Pooling(32, "mean")], device="cpu"
    )


@pytest.mark.parametrize("kind", [TinyModel.CLS, TinyModel.INSTRUCTED])
def test_vectors_of_texts_in_shared_rows_equal_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    model = library(tiny_folders[kind])
    expected = np.asarray(model.encode(TEXTS, show_progress_bar=False), dtype=np.float32)
    encoder = compiled(model)
    assert encoder.row_widths == ROW_WIDTHS[:1]
    outcomes, stats = encode(encoder, [Text(text, RAW) for text in TEXTS], max_padded_tokens=1024)
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 1
    assert stats.padded_tokens % ROW_WIDTHS[0] == 0
    assert stats.tokens / stats.padded_tokens > 0.85


def test_a_causal_model_has_a_row_for_each_text(tiny_folders: Folders) -> None:
    assert network_positions(library(tiny_folders[TinyModel.CAUSAL])[0], NAMES) is None


def test_positions_begin_where_the_type_of_model_lets_them_begin(tiny_folders: Folders, tmp_path: Path) -> None:
    tokenizer = library(tiny_folders[TinyModel.CLS]).tokenizer
    roberta = built(transformers.RobertaConfig, tokenizer=tokenizer, folder=tmp_path)
    positions = network_positions(roberta[0], ("input_ids", "attention_mask"))
    assert positions is not None
    assert positions(np.array([[5, 0, 6, 7, 0, 0]])).tolist() == [[1, 0, 2, 3, 0, 0]]  # the padding token is 0 here
    expected = np.asarray(roberta.encode(TEXTS, show_progress_bar=False), dtype=np.float32)
    outcomes, stats = encode(compiled(roberta), [Text(text, RAW) for text in TEXTS], max_padded_tokens=1024)
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 1


def test_a_text_without_finite_vector_spoils_none_in_its_row(tiny_folders: Folders) -> None:
    model = library(tiny_folders[TinyModel.DENSE])
    expected = np.asarray(model.encode(TEXTS, show_progress_bar=False), dtype=np.float32)
    # Of so many tokens, those with which the rows are tried out at load are others.
    model[0].model.resize_token_embeddings(5000)
    with torch.no_grad():
        model[0].model.embeddings.word_embeddings.weight[model.tokenizer.convert_tokens_to_ids("?")] = torch.nan
    encoder = compiled(model)
    assert encoder.row_widths == ROW_WIDTHS[:1]
    items = [Text(text, RAW) for text in ("a?", *TEXTS)]
    [broken, *outcomes], _ = encode(encoder, items, max_padded_tokens=1024)
    assert broken.error == NON_FINITE
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_passages_in_wide_rows_have_the_embeddings_of_the_library(tiny_folders: Folders, tmp_path: Path) -> None:
    tokenizer = library(tiny_folders[TinyModel.CLS]).tokenizer
    transformer = built(transformers.BertConfig, tokenizer=tokenizer, folder=tmp_path)[0]
    module = CompiledTransformer(transformer, NAMES, precision="float32", streams=1, threads=1)
    lengths = np.array([150, 70, 101, 90, 64, 7])
    [batch] = plan(lengths.tolist(), 1024, ROW_WIDTHS)
    assert (batch.layout.rows, batch.layout.width) == (2, ROW_WIDTHS[1])
    mask = (np.arange(lengths.max()) < lengths[batch.indexes][:, None]).astype(np.int64)
    words = np.random.default_rng(0).integers(5, len(tokenizer), mask.shape) * mask
    padded = {"input_ids": words, "token_type_ids": np.zeros_like(words), "attention_mask": mask}
    with torch.inference_mode():
        features = {name: torch.from_numpy(values) for name, values in padded.items()}
        expected = transformer(features)["token_embeddings"].numpy()
    found = module(padded, batch.layout)
    np.testing.assert_allclose(found[mask == 1], expected[mask == 1], rtol=1e-4, atol=1e-5)
