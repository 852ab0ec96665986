"""Forward passes of a small transformer at their edges: rows that texts share, precisions, and devices that fail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.encode import NON_FINITE, encode
from tasks.encoder.interface import EncoderBroken, Float32Array, ModelLoadError, Text, WayUnusable
from tasks.encoder.micro_batches import ROW_WIDTHS, plan
from tasks.encoder.openvino import CompiledTransformer
from tasks.encoder.self_test import self_test
from tasks.encoder.tokenize import Tokenizer
from tasks.encoder.transformer import TransformerEncoder
from tasks.item import Options, Vector
from tests.heavy import sentence_transformers, torch
from tests.integration.encoder import folders

pytestmark = pytest.mark.model

NAMES = ("input_ids", "token_type_ids", "attention_mask")
TEXTS = ["".join(chr(97 + (7 * i + j) % 26) for j in range(2 + i % 19)) for i in range(40)]
RAW = Options(normalize=False)
POSITIONS = 160
"""Fewer than a wide row has tokens: positions begin anew with each text."""


def library(folder: Path) -> Any:
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


@pytest.fixture
def model(whole: Path) -> Any:
    return library(whole)


def encoder_of(model: Any, **options: Any) -> TransformerEncoder:
    usual = {"compute": "torch", "precision": "float32"}
    return TransformerEncoder(model, Tokenizer(model), name="tiny", revision="0", **(usual | options))


def expected_of(model: Any, texts: Sequence[str] = TEXTS) -> Float32Array:
    return np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


def check(outcomes: Sequence[Vector], expected: Float32Array) -> None:
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@dataclass
class FailingDevice:
    """Behind a module; fails as a device does once there is a message, and with more texts."""

    message: str | None = None
    max_texts: int = 1000

    def __call__(self, _module: Any, _given: Any, features: dict[str, Any]) -> None:
        if self.message is not None:
            raise torch.AcceleratorError(self.message)
        if len(features["sentence_embedding"]) > self.max_texts:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


def test_a_text_without_finite_vector_spoils_none_in_its_row(model: Any) -> None:
    expected = expected_of(model)
    # Of so many tokens, those with which the rows are tried out at load are others.
    model[0].model.resize_token_embeddings(5000)
    with torch.no_grad():
        model[0].model.embeddings.word_embeddings.weight[model.tokenizer.convert_tokens_to_ids("?")] = torch.nan
    encoder = encoder_of(model, compute="openvino")
    assert encoder.row_widths == ROW_WIDTHS[:1]
    assert {weight.device.type for weight in model[0].parameters()} == {"meta"}, "no weights are left"
    outcomes, stats = encode(encoder, [Text(text, RAW) for text in TEXTS], max_padded_tokens=1024)
    check(outcomes, expected)
    assert stats.forward_passes == 1
    assert stats.padded_tokens % ROW_WIDTHS[0] == 0
    assert stats.tokens / stats.padded_tokens > 0.85
    items = [Text(text, RAW) for text in ("a?", *TEXTS)]
    [broken, *outcomes], _ = encode(encoder, items, max_padded_tokens=1024)
    assert broken.error == NON_FINITE
    check(outcomes, expected)


def test_passages_in_wide_rows_have_the_embeddings_of_the_library(tmp_path: Path) -> None:
    transformer = library(folders.save(tmp_path / "model", max_position_embeddings=POSITIONS))[0]
    module = CompiledTransformer(transformer, NAMES, precision="float32", streams=1, threads=1)
    lengths = np.array([150, 70, 101, 90, 64, 7])
    [batch] = plan(lengths.tolist(), 1024, ROW_WIDTHS)
    assert (batch.layout.rows, batch.layout.width) == (2, ROW_WIDTHS[1])
    mask = (np.arange(lengths.max()) < lengths[batch.indexes][:, None]).astype(np.int64)
    words = np.random.default_rng(0).integers(5, folders.ROWS, mask.shape) * mask
    padded = {"input_ids": words, "token_type_ids": np.zeros_like(words), "attention_mask": mask}
    with torch.inference_mode():
        features = {name: torch.from_numpy(values) for name, values in padded.items()}
        expected = transformer(features)["token_embeddings"].numpy()
    found = module(padded, batch.layout)
    np.testing.assert_allclose(found[mask == 1], expected[mask == 1], rtol=1e-4, atol=1e-5)


def test_what_openvino_cannot_convert_has_a_reason_and_silences_nobody(model: Any) -> None:
    with pytest.raises(ModelLoadError, match=r"Set EMBEDQ_COMPUTE=torch.*unknown inputs pixel_values"):
        CompiledTransformer(model[0], ["input_ids", "pixel_values"], precision="float32", streams=1, threads=1)
    model[0].model.encoder.layer[0].register_forward_hook(FailingDevice("no such operation"))
    root = logging.getLogger()
    before = (root.level, root.handlers[:], root.filters[:])
    with pytest.raises(WayUnusable, match="no such operation"):
        CompiledTransformer(model[0], ["input_ids", "attention_mask"], precision="float32", streams=1, threads=1)
    assert (root.level, root.handlers, root.filters) == before


def test_half_precision_still_gives_float32_vectors_near_the_reference(model: Any) -> None:
    encoder = encoder_of(model, precision="float16")
    [outcome], _ = encode(encoder, [Text("hello")], max_padded_tokens=64)
    assert outcome.vector is not None
    assert outcome.vector.dtype == encoder.reference.dtype == np.float32
    assert model.dtype == torch.float16
    self_test(encoder)


def test_a_lost_device_blames_no_text_and_one_without_memory_is_not_lost(model: Any) -> None:
    device = FailingDevice()
    encoder = encoder_of(model)
    model[-1].register_forward_hook(device)
    device.message = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(EncoderBroken):
        encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)
    device.message = "CUDA error: out of memory"
    outcomes, stats = encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)
    assert [outcome.error and outcome.error.code for outcome in outcomes] == ["out_of_memory"] * 2
    assert stats.forward_passes == 3


def test_a_pass_that_does_not_fit_the_device_is_halved_and_loses_nothing(model: Any) -> None:
    texts = [f"text {letter}" for letter in "abcdefg"]
    expected = expected_of(model, texts)
    encoder = encoder_of(model)
    model[-1].register_forward_hook(FailingDevice(max_texts=2))
    outcomes, stats = encode(encoder, [Text(text, RAW) for text in texts], max_padded_tokens=1000)
    check(outcomes, expected)
    assert stats.forward_passes == 1 + 2 + 4
