"""Tiny models by torch and OpenVINO at their edges. `test_architectures.py` compares each kind of model."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, EncoderBroken, Float32Array, ModelLoadError, Text, WayUnusable
from tasks.encoder.load import load
from tasks.encoder.openvino import CompiledTransformer
from tasks.encoder.self_test import self_test
from tasks.encoder.tokenize import Tokenizer
from tasks.encoder.transformer import TransformerEncoder
from tasks.item import Options, Vector
from tests.heavy import failing_devices, sentence_transformers, torch
from tests.integration.encoder.architectures import MAX_TOKENS, TinyModel
from worker_config.settings import load_settings

TEXTS = [
    "b",
    "hello there",
    "",
    "  ",
    "\0",
    "🦆",
    "what is a queue?",
    "abc " * 5,
    "long " * 40,
    "hello there",
    "zz, yy!",
]


Folders = Mapping[TinyModel, Path]
RAW = Options(normalize=False)

pytestmark = pytest.mark.model


def loaded(folder: Path, compute: str = "torch") -> Encoder:
    return load(load_settings(model=str(folder), compute=compute, precision="float32", device="cpu"))


def ours(encoder: Encoder, **options: object) -> list[Vector]:
    wanted = Options(**options)  # type: ignore[arg-type]
    return encode(encoder, [Text(text, wanted) for text in TEXTS], max_padded_tokens=64)[0]


def rows(outcomes: list[Vector]) -> Float32Array:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])


def library(folder: Path, **options: object) -> Float32Array:
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    return np.asarray(model.encode(TEXTS, show_progress_bar=False, **options), dtype=np.float32)  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", [TinyModel.PROMPTED, TinyModel.INSTRUCTED, TinyModel.DENSE])
def test_prompts_are_those_of_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[kind])
    for name in (None, *encoder.info.prompts):
        raw, cut = ours(encoder, normalize=False, prompt_name=name), ours(encoder, dimensions=5, prompt_name=name)
        expected = library(tiny_folders[kind], prompt_name=name)
        np.testing.assert_allclose(rows(raw), expected, rtol=1e-4, atol=1e-5)
        expected = library(tiny_folders[kind], prompt_name=name, truncate_dim=5, normalize_embeddings=True)
        np.testing.assert_allclose(rows(cut), expected, rtol=1e-4, atol=1e-5)


def test_texts_of_different_prompts_mix_in_one_call(tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[TinyModel.INSTRUCTED])
    mixed = [Text("hello there", Options(prompt_name=name)) for name in ("query", "document", "passage", "query")]
    outcomes, stats = encode(encoder, mixed, max_padded_tokens=1000)
    alone = [encode(encoder, [item], max_padded_tokens=1000)[0][0] for item in mixed]
    np.testing.assert_allclose(rows(outcomes), rows(alone), rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 3


def test_what_a_model_says_of_itself(tiny_folders: Folders) -> None:
    info = loaded(tiny_folders[TinyModel.DENSE]).info
    assert (info.dimension, info.max_tokens, info.device) == (8, MAX_TOKENS, "cpu")
    assert (info.model, info.compute, info.precision) == ("model", "torch", "float32")
    assert loaded(tiny_folders[TinyModel.PROMPTED]).info.prompts == ("query", "document", "passage")
    assert info.revision != loaded(tiny_folders[TinyModel.CLS]).info.revision


def test_a_compiled_model_has_no_weights_left(tiny_folders: Folders) -> None:
    model = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    TransformerEncoder(model, Tokenizer(model), name="tiny", revision="0", compute="openvino")
    assert {weight.device.type for weight in model[0].parameters()} == {"meta"}


def test_a_compiled_model_refuses_inputs_it_does_not_know(tiny_folders: Folders) -> None:
    model = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    with pytest.raises(ModelLoadError, match=r"Set EMBEDQ_COMPUTE=torch.*unknown inputs pixel_values"):
        CompiledTransformer(model[0], ["input_ids", "pixel_values"], precision="float32", streams=1, threads=1)


def test_a_model_that_openvino_cannot_convert_silences_nobody(tiny_folders: Folders) -> None:
    model: Any = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    model[0].model.encoder.layer[0].register_forward_hook(_fail)
    root = logging.getLogger()
    before = (root.level, root.handlers[:], root.filters[:])
    with pytest.raises(WayUnusable, match="no such operation"):
        CompiledTransformer(model[0], ["input_ids", "attention_mask"], precision="float32", streams=1, threads=1)
    assert (root.level, root.handlers, root.filters) == before


def test_a_folder_that_does_not_say_how_its_vectors_are_made_is_a_warning(
    tiny_folders: Folders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(tiny_folders[TinyModel.CLS], tmp_path / "model"))
    loaded(folder)
    assert "modules.json" not in caplog.text
    (folder / "modules.json").unlink()
    loaded(folder)
    assert f"EMBEDQ_MODEL={folder} has no modules.json" in caplog.text


def _fail(*_: object) -> None:
    raise RuntimeError("no such operation")


# ---- precisions and devices


@pytest.fixture
def model(tiny_folders: Folders) -> sentence_transformers.SentenceTransformer:
    return sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")


def encoder_of(model: sentence_transformers.SentenceTransformer, precision: str = "float32") -> TransformerEncoder:
    return TransformerEncoder(model, Tokenizer(model), name="tiny", revision="0", precision=precision)


def test_half_precision_still_gives_float32_vectors_near_the_reference(
    model: sentence_transformers.SentenceTransformer,
) -> None:
    encoder = encoder_of(model, "float16")
    [outcome], _ = encode(encoder, [Text("hello")], max_padded_tokens=64)
    assert outcome.vector is not None
    assert outcome.vector.dtype == np.float32
    assert model.dtype == torch.float16
    assert encoder.reference.dtype == np.float32
    self_test(encoder)


def test_a_lost_device_blames_no_text(model: sentence_transformers.SentenceTransformer) -> None:
    broken = failing_devices.LostDevice()
    model.append(broken)
    encoder = encoder_of(model)
    broken.message = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(EncoderBroken):
        encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)


def test_a_device_without_memory_is_not_lost(model: sentence_transformers.SentenceTransformer) -> None:
    full = failing_devices.LostDevice()
    model.append(full)
    encoder = encoder_of(model)
    full.message = "CUDA error: out of memory"
    outcomes, stats = encode(encoder, [Text("a"), Text("b")], max_padded_tokens=64)
    assert [outcome.error and outcome.error.code for outcome in outcomes] == ["out_of_memory"] * 2
    assert stats.forward_passes == 3


def test_a_pass_that_does_not_fit_the_device_is_halved_and_loses_nothing(
    model: sentence_transformers.SentenceTransformer,
) -> None:
    texts = [f"text {letter}" for letter in "abcdefg"]
    expected = model.encode(texts, show_progress_bar=False)
    small = failing_devices.SmallDevice()
    encoder = encoder_of(sentence_transformers.SentenceTransformer(modules=[*model, small], device="cpu"))
    small.max_texts = 2
    outcomes, stats = encode(encoder, [Text(text, RAW) for text in texts], max_padded_tokens=1000)
    vectors = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 1 + 2 + 4


def test_a_model_without_pooling_is_no_embedding_model(
    model: sentence_transformers.SentenceTransformer, tmp_path: Path
) -> None:
    sentence_transformers.SentenceTransformer(modules=[model[0]], device="cpu").save(
        str(tmp_path), create_model_card=False
    )
    with pytest.raises(ModelLoadError, match="cannot be loaded as an embedding model"):
        load(load_settings(model=str(tmp_path), compute="torch", device="cpu"))
