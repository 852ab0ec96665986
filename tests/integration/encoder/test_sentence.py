"""The torch encoder at its edges: what it refuses to load, precision, and a lost device."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.interface import EncoderBroken, ModelLoadError, Text
from tasks.encoder.load import load
from tasks.encoder.self_test import self_test
from tasks.encoder.tokenize import Tokenizer
from tasks.encoder.transformer import TransformerEncoder
from tasks.item import Options
from tests.heavy import failing_devices, sentence_transformers, torch
from tests.integration.encoder.tiny_model import TinyModel
from worker_config.settings import load_settings

pytestmark = pytest.mark.model

Folders = Mapping[TinyModel, Path]

RAW = Options(normalize=False)


@pytest.fixture
def library(tiny_folders: Folders) -> sentence_transformers.SentenceTransformer:
    return sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")


def encoder_of(model: sentence_transformers.SentenceTransformer, precision: str = "float32") -> TransformerEncoder:
    return TransformerEncoder(model, Tokenizer(model), name="tiny", revision="0", precision=precision)


def test_half_precision_still_gives_float32_vectors_near_the_reference(
    library: sentence_transformers.SentenceTransformer,
) -> None:
    encoder = encoder_of(library, "float16")
    [outcome], _ = encode(encoder, [Text("hello")], max_padded_tokens=64)
    assert outcome.vector is not None
    assert outcome.vector.dtype == np.float32
    assert library.dtype == torch.float16
    assert encoder.reference.dtype == np.float32
    self_test(encoder)


def test_a_lost_device_blames_no_text(library: sentence_transformers.SentenceTransformer) -> None:
    broken = failing_devices.LostDevice()
    library.append(broken)
    encoder = encoder_of(library)
    broken.message = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(EncoderBroken):
        encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)


def test_a_device_without_memory_is_not_lost(library: sentence_transformers.SentenceTransformer) -> None:
    full = failing_devices.LostDevice()
    library.append(full)
    encoder = encoder_of(library)
    full.message = "CUDA error: out of memory"
    outcomes, stats = encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)
    assert [outcome.error and outcome.error.code for outcome in outcomes] == ["out_of_memory"] * 2
    assert stats.forward_passes == 3


def test_a_pass_that_does_not_fit_the_device_is_halved_and_loses_nothing(
    library: sentence_transformers.SentenceTransformer,
) -> None:
    texts = [f"text {letter}" for letter in "abcdefg"]
    expected = library.encode(texts, show_progress_bar=False)
    small = failing_devices.SmallDevice()
    encoder = encoder_of(sentence_transformers.SentenceTransformer(modules=[*library, small], device="cpu"))
    small.max_texts = 2
    outcomes, stats = encode(encoder, [Text(text, RAW) for text in texts], max_padded_tokens=1000)
    vectors = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 1 + 2 + 4


def test_a_model_without_pooling_is_no_embedding_model(
    library: sentence_transformers.SentenceTransformer, tmp_path: Path
) -> None:
    _save_first(library, tmp_path)
    with pytest.raises(ModelLoadError, match="cannot be loaded as an embedding model"):
        load(load_settings(model=str(tmp_path), compute="torch", device="cpu"))


def test_a_model_with_code_of_its_own_needs_consent(tiny_folders: Folders, tmp_path: Path) -> None:
    folder = _copy(tiny_folders[TinyModel.CLS], tmp_path / "model")
    modules = json.loads((folder / "modules.json").read_text())
    modules[-1]["type"] = "custom_pooling.CustomPooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "custom_pooling.py").write_text("raise SystemExit('code of a model ran without consent')\n")
    with pytest.raises(ModelLoadError, match="EMBEDQ_TRUST_REMOTE_CODE"):
        load(load_settings(model=str(folder), compute="torch", device="cpu"))


def test_broken_weights_are_reported_not_served(tiny_folders: Folders, tmp_path: Path) -> None:
    folder = _copy(tiny_folders[TinyModel.CLS], tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelLoadError, match=f"EMBEDQ_MODEL={folder}"):
        load(load_settings(model=str(folder), compute="torch", device="cpu"))


def _copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def _save_first(library: sentence_transformers.SentenceTransformer, folder: Path) -> None:
    sentence_transformers.SentenceTransformer(modules=[library[0]], device="cpu").save(
        str(folder), create_model_card=False
    )
