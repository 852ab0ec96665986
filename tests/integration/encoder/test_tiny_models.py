"""Every kind of model gives through our path what `SentenceTransformer.encode` gives."""

from __future__ import annotations

import importlib
import json
import logging
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Float32Array, ModelLoadError, Text, WayUnusable
from tasks.encoder.load import load
from tasks.encoder.openvino import CompiledTransformer, cpu_precisions
from tasks.encoder.self_test import worst_cosine
from tasks.encoder.tokenize import Tokenizer
from tasks.encoder.transformer import TransformerEncoder
from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.item import Options, Vector
from tests.heavy import sentence_transformers
from tests.integration.encoder.tiny_model import MAX_TOKENS, TinyModel
from tests.thorough import some
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

COMPUTES = ["torch", "openvino"]

Folders = Mapping[TinyModel, Path]


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


@pytest.mark.model
@pytest.mark.parametrize("compute", COMPUTES)
@pytest.mark.parametrize("kind", some(TinyModel, TinyModel.DENSE, TinyModel.CAUSAL))
def test_vectors_equal_the_library(kind: TinyModel, compute: str, tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[kind], compute)
    assert encoder.info.compute == compute
    expected = library(tiny_folders[kind])
    assert worst_cosine(expected[:1], expected[1:2]) < 0.99  # a comparison that could not fail would prove nothing
    np.testing.assert_allclose(rows(ours(encoder, normalize=False)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.model
@pytest.mark.parametrize("kind", some(TinyModel, TinyModel.CAUSAL))
def test_vectors_beside_other_passes_equal_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    settings = load_settings(
        model=str(tiny_folders[kind]), compute="openvino", precision="float32", device="cpu", streams=2, threads=2
    )
    encoder, expected = load(settings), library(tiny_folders[kind])
    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(lambda _: rows(ours(encoder, normalize=False)), range(8)):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.model
@pytest.mark.parametrize("compute", COMPUTES)
def test_a_model_saved_with_cut_vectors_serves_cut_vectors(compute: str, tiny_folders: Folders, tmp_path: Path) -> None:
    sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu", truncate_dim=8).save(
        str(tmp_path)
    )
    encoder = loaded(tmp_path, compute)
    expected = library(tmp_path)
    assert encoder.info.dimension == expected.shape[1] == 8
    np.testing.assert_allclose(rows(ours(encoder, normalize=False)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.model
def test_what_a_folder_says_of_its_longest_text_wins_over_the_model(tiny_folders: Folders, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folders[TinyModel.CLS], tmp_path / "model"))
    config = folder / "sentence_bert_config.json"
    changed = json.loads(config.read_text()) | {"processing_kwargs": {"text": {"max_length": 10}}}
    config.write_text(json.dumps(changed))
    encoder = loaded(folder)
    longest = max(text.length for text in encoder.tokenize(TEXTS, None))
    assert encoder.info.max_tokens == longest == 10


@pytest.mark.model
@pytest.mark.parametrize("kind", TinyModel)
def test_cut_and_normalised_vectors_equal_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[kind])
    expected = library(tiny_folders[kind], truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(rows(ours(encoder, dimensions=5)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.model
@pytest.mark.parametrize("kind", [TinyModel.PROMPTED, TinyModel.INSTRUCTED])
@pytest.mark.parametrize("prompt_name", ["query", "passage", None])
@pytest.mark.parametrize("compute", some(COMPUTES, "torch"))
def test_prompts_are_those_of_the_library(
    kind: TinyModel, prompt_name: str | None, compute: str, tiny_folders: Folders
) -> None:
    encoder = loaded(tiny_folders[kind], compute)
    expected = library(tiny_folders[kind], prompt_name=prompt_name)
    np.testing.assert_allclose(
        rows(ours(encoder, normalize=False, prompt_name=prompt_name)), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.model
def test_the_default_prompt_is_used_without_being_named(tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[TinyModel.PROMPTED])
    np.testing.assert_array_equal(rows(ours(encoder)), rows(ours(encoder, prompt_name="passage")))
    assert ours(encoder)[0].tokens > ours(encoder, prompt_name="query")[0].tokens


@pytest.mark.model
def test_texts_of_different_prompts_mix_in_one_call(tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[TinyModel.INSTRUCTED])
    mixed = [Text("hello there", Options(prompt_name=name)) for name in ("query", None, "passage", "query")]
    outcomes, stats = encode(encoder, mixed, max_padded_tokens=1000)
    alone = [encode(encoder, [item], max_padded_tokens=1000)[0][0] for item in mixed]
    np.testing.assert_allclose(rows(outcomes), rows(alone), rtol=1e-4, atol=1e-5)
    assert stats.forward_passes == 3


@pytest.mark.model
def test_usage_is_what_the_tokenizer_counts(tiny_folders: Folders) -> None:
    tokenizer = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.DENSE]), device="cpu").tokenizer
    outcomes = ours(loaded(tiny_folders[TinyModel.DENSE]))
    counts = [len(tokenizer(text)["input_ids"]) for text in TEXTS]
    assert [outcome.tokens for outcome in outcomes] == [min(count, MAX_TOKENS) for count in counts]
    assert [outcome.truncated for outcome in outcomes] == [count > MAX_TOKENS for count in counts]


@pytest.mark.model
def test_what_a_model_says_of_itself(tiny_folders: Folders) -> None:
    info = loaded(tiny_folders[TinyModel.DENSE]).info
    assert (info.dimension, info.max_tokens, info.device) == (8, MAX_TOKENS, "cpu")
    assert (info.model, info.compute, info.precision) == ("model", "torch", "float32")
    assert loaded(tiny_folders[TinyModel.PROMPTED]).info.prompts == ("query", "document", "passage")
    assert info.revision != loaded(tiny_folders[TinyModel.CLS]).info.revision


@pytest.mark.model
@pytest.mark.parametrize(
    ("kind", "prompt_name"),
    [
        (TinyModel.CAUSAL, None),
        (TinyModel.PROMPTED, None),
        (TinyModel.PROMPTED, "query"),
        (TinyModel.PROMPTED, "passage"),
    ],
)
def test_tokens_are_those_of_the_library(kind: TinyModel, prompt_name: str | None, tiny_folders: Folders) -> None:
    library = sentence_transformers.SentenceTransformer(str(tiny_folders[kind]), device="cpu")
    expected = library.preprocess(TEXTS, prompt=library.prompts.get(prompt_name or library.default_prompt_name or ""))
    tokenizer = Tokenizer(sentence_transformers.SentenceTransformer(str(tiny_folders[kind]), device="cpu"))
    padded = tokenizer.pad(tokenizer(TEXTS, prompt_name))
    assert set(padded) == {"input_ids", "attention_mask", "token_type_ids"}
    for name, values in padded.items():
        np.testing.assert_array_equal(values, expected[name].numpy())


@pytest.mark.model
@pytest.mark.parametrize("kind", TinyModel)
def test_tokens_counted_without_the_model_are_those_it_reads(kind: TinyModel, tiny_folders: Folders) -> None:
    encoder = loaded(tiny_folders[kind])
    tokens = [text.full_length for text in encoder.tokenize(TEXTS, None)]
    assert max(tokens) > MAX_TOKENS  # what is cut off counts too
    rules = encoder.text_rules()
    assert set(rules.prompts) >= set(encoder.info.prompts)
    for name in (None, *rules.prompts):
        chosen = rules.default_prompt if name is None else name
        counter = TokenCounter(rules.tokenizer, rules.prompts[chosen] if chosen is not None else "")
        expected = [text.full_length for text in encoder.tokenize(TEXTS, name)]
        assert [counter.count(text) for text in TEXTS] == expected


@pytest.mark.model
def test_a_compiled_model_has_no_weights_left(tiny_folders: Folders) -> None:
    model = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    TransformerEncoder(model, Tokenizer(model), name="tiny", revision="0", compute="openvino")
    assert {weight.device.type for weight in model[0].parameters()} == {"meta"}


@pytest.mark.model
def test_openvino_reports_to_nobody(tiny_folders: Folders) -> None:
    loaded(tiny_folders[TinyModel.CLS], "openvino")
    with pytest.raises(ImportError):
        importlib.import_module("openvino_telemetry")


@pytest.mark.model
def test_a_compiled_model_refuses_inputs_it_does_not_know(tiny_folders: Folders) -> None:
    model = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    with pytest.raises(ModelLoadError, match=r"Set EMBEDQ_COMPUTE=torch.*unknown inputs pixel_values"):
        CompiledTransformer(model[0], ["input_ids", "pixel_values"], precision="float32", streams=1, threads=1)


@pytest.mark.model
def test_a_model_that_openvino_cannot_convert_silences_nobody(tiny_folders: Folders) -> None:
    model: Any = sentence_transformers.SentenceTransformer(str(tiny_folders[TinyModel.CLS]), device="cpu")
    model[0].model.encoder.layer[0].register_forward_hook(_fail)
    root = logging.getLogger()
    before = (root.level, root.handlers[:], root.filters[:])
    with pytest.raises(WayUnusable, match="no such operation"):
        CompiledTransformer(model[0], ["input_ids", "attention_mask"], precision="float32", streams=1, threads=1)
    assert (root.level, root.handlers, root.filters) == before


@pytest.mark.model
def test_a_folder_that_does_not_say_how_its_vectors_are_made_is_a_warning(
    tiny_folders: Folders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(tiny_folders[TinyModel.CLS], tmp_path / "model"))
    loaded(folder)
    assert "modules.json" not in caplog.text
    (folder / "modules.json").unlink()
    loaded(folder)
    assert f"EMBEDQ_MODEL={folder} has no modules.json" in caplog.text


@pytest.mark.model
@pytest.mark.parametrize("kind", some(TinyModel, TinyModel.PROMPTED))
def test_the_default_serves_every_kind(kind: TinyModel, tiny_folders: Folders) -> None:
    encoder = load(load_settings(model=str(tiny_folders[kind]), device="cpu"))
    assert encoder.info.compute == "openvino"
    assert worst_cosine(rows(ours(encoder)), library(tiny_folders[kind])) >= 0.999


@pytest.mark.model
def test_a_precision_that_is_too_coarse_for_a_model_is_left_with_a_warning(
    tiny_folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    _needs_bfloat16()
    encoder = load(load_settings(model=str(tiny_folders[TinyModel.CAUSAL]), device="cpu"))
    assert (encoder.info.compute, encoder.info.precision) == ("openvino", "float32")
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "openvino in bfloat16 on cpu failed its self-test" in warning
    assert warning.endswith("Falling back.")


@pytest.mark.model
def test_a_precision_that_is_too_coarse_for_a_model_stops_when_asked_for_by_name(tiny_folders: Folders) -> None:
    _needs_bfloat16()
    with pytest.raises(ModelLoadError, match="openvino in bfloat16 on cpu failed its self-test"):
        load(load_settings(model=str(tiny_folders[TinyModel.CAUSAL]), device="cpu", precision="bfloat16"))


def _fail(*_: object) -> None:
    raise RuntimeError("no such operation")


def _needs_bfloat16() -> None:
    if "bfloat16" not in cpu_precisions():
        pytest.skip("this CPU has no bfloat16")
