"""Model folders that are odd or broken: served with the library's vectors, or refused with the cause and the remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tasks.encoder.check_model_folder import revision_of
from tests.heavy import torch
from tests.integration.encoder import folders as made
from tests.processes import PATIENCE_S, Roles
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.model


def prefixed(prefix: str) -> made.Edit:
    return made.tensors(lambda weights: {prefix + name: weight for name, weight in weights.items()})


UNFIT: Mapping[str, tuple[made.Edit, str]] = {
    "a tensor is missing": (made.without(made.LAST), made.LAST),
    "a norm is missing": (made.without("encoder.layer.0.output.LayerNorm.bias"), r"layer\.0\.output\.LayerNorm\.bias"),
    "a prefix": (prefixed("wrapped."), r"(embeddings|encoder)\.\w+"),
    "a layer too many": (made.changed("config.json", num_hidden_layers=3), r"encoder\.layer\.2\."),
    "a layer too few": (made.changed("config.json", num_hidden_layers=1), r"encoder\.layer\.1\."),
    "another kind": (made.changed("config.json", model_type="distilbert", dim=32, n_heads=4), r"layer\.\d\.\w+"),
    "another shape": (made.tensors(lambda weights: weights | {made.LAST: weights[made.LAST][:, :-1]}), made.LAST),
}


@pytest.mark.parametrize("name", UNFIT)
def test_weights_that_are_not_those_of_the_network_are_refused(name: str, broken: made.Broken) -> None:
    edit, tensor = UNFIT[name]
    made.check_refusal(broken(edit), tensor)


FIT: Mapping[str, made.Edit] = {
    "no pooler, old buffers, a second tower, a stale index": made.both(
        made.without("pooler"),
        made.tensors(lambda weights: weights | {"embeddings.position_ids": torch.arange(640)[None]}),
        made.tensors(lambda weights: weights | {f"teacher.{name}": weight for name, weight in weights.items()}),
        made.written("model.safetensors.index.json", "{}"),
    ),
    "names of the class": prefixed("bert."),
    "a head, pickled": made.both(made.headed, made.pickled),
    "shards": made.sharded,
    "a folder of its own": made.transformer_apart,
    "a vocabulary file": made.vocabulary_file(),
}


@pytest.mark.parametrize("name", FIT)
def test_weights_that_no_vector_needs_may_be_missing_or_there(name: str, broken: made.Broken) -> None:
    folder = broken(FIT[name])
    made.check_vectors(made.vectors_of(made.served(folder), made.TEXTS), made.truth(folder, made.TEXTS))


def test_a_checkpoint_of_a_language_model_is_served_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = made.bare("Qwen2ForCausalLM", tmp_path / "model", **made.HEADS)
    made.check_vectors(made.vectors_of(made.served(folder), made.TEXTS), made.truth(folder, made.TEXTS))
    assert f"EMBEDQ_MODEL={folder} has no modules.json" in caplog.text


AGAIN = r"\b(again|anew|complete|copy|download|fetch)"
DENSE = made.changed("2_Dense/config.json", in_features=32, out_features=32)
DAMAGED: Mapping[str, tuple[made.Edit, tuple[str, ...]]] = {
    "no tokenizer": (made.removed("tokenizer*"), ("no vocabulary", r"tokenizer\.json")),
    "a vocabulary that is cut": (made.vocabulary_file(5), ("no vocabulary", r"tokenizer\.json")),
    "weights are a pointer": (made.pointer(made.WEIGHTS), (r"model\.safetensors", "git lfs pull")),
    "the tokenizer is a pointer": (made.pointer(made.TOKENIZER), (r"tokenizer\.json", "git lfs pull")),
    "a module's weights are a pointer": (
        made.both(made.extended("Dense"), DENSE, made.pointer("2_Dense/model.safetensors")),
        (r"2_Dense/model\.safetensors", "git lfs pull"),
    ),
    "empty weights": (made.written(made.WEIGHTS, ""), (r"model\.safetensors", "empty|0 bytes", AGAIN)),
    "cut weights": (made.halved(made.WEIGHTS), (r"model\.safetensors", AGAIN)),
    "cut pickled weights": (made.both(made.pickled, made.halved("pytorch_model.bin")), (r"pytorch_model\.bin", AGAIN)),
    "a cut tokenizer": (made.halved(made.TOKENIZER), (r"tokenizer\.json", AGAIN)),
    "a shard is missing": (
        made.both(made.sharded, made.removed("model-00002-*")),
        (r"model-00002-of-\d+\.safetensors", AGAIN),
    ),
    "no weights": (made.removed(made.WEIGHTS), ("no weights", r"model\.safetensors")),
    "only ONNX": (made.moved(made.WEIGHTS, "onnx/model.onnx"), ("ONNX", r"model\.safetensors")),
    "only OpenVINO": (made.moved(made.WEIGHTS, "openvino/openvino_model.bin"), ("OpenVINO", r"model\.safetensors")),
    "an adapter": (made.adapter, (r"\bpeft\b", r"\bmerge")),
    "GPTQ": (
        made.changed("config.json", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}),
        ("gptq", "quantiz"),
    ),
    "half a configuration": (made.halved("config.json"), (r"config\.json", "JSON", AGAIN)),
    "half a list of modules": (made.halved("modules.json"), (r"modules\.json", "JSON", AGAIN)),
    "an empty configuration": (made.written("config.json", ""), (r"config\.json", "JSON|empty", AGAIN)),
    "no pooling": (made.removed(made.POOLING), (r"1_Pooling/config\.json", AGAIN)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused_with_the_file_and_the_remedy(name: str, broken: made.Broken) -> None:
    edit, words = DAMAGED[name]
    made.check_refusal(broken(edit), *words, r"^(?!.*(Choose another model|no folder|embedq.worker))")


WITH_CODE_OF_ITS_OWN = made.both(
    made.listed(lambda modules: modules[-1].update(type="custom_pooling.CustomPooling")),
    made.written("custom_pooling.py", "raise SystemExit('code of a model ran without consent')\n"),
)


@pytest.mark.parametrize(
    ("damage", "words", "form"),
    [
        (made.without(made.LAST), (re.escape(made.LAST),), "json"),
        (WITH_CODE_OF_ITS_OWN, ("set EMBEDQ_TRUST_REMOTE_CODE=true",), "text"),
    ],
    ids=["missing tensor", "code of its own"],
)
def test_the_worker_of_such_a_folder_ends_with_one_line(
    damage: made.Edit, words: Sequence[str], form: str, broken: made.Broken, roles: Roles
) -> None:
    folder = broken(damage)
    worker = roles.worker(start=False, compute="auto", device="cpu", model=str(folder), log_format=form)
    worker.launch()
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    log = worker.log()
    [line] = [line for line in log.splitlines() if f"EMBEDQ_MODEL={folder}" in line]
    made.check_line(line, *words)
    assert not re.search(r"Traceback|\x1b|LOAD REPORT|Loading weights|MISSING|\+-|\| *Status", log), log
    if form == "json":
        assert all(isinstance(json.loads(each), dict) for each in log.splitlines())


OTHER_KINDS: Mapping[str, tuple[made.Save, str]] = {
    "CrossEncoder": (made.reranker, "reranker"),
    "bare XLM-RoBERTa": (
        lambda folder: made.bare("XLMRobertaForSequenceClassification", folder, made.ROBERTA, num_labels=1),
        "reranker",
    ),
    "SPLADE": (made.splade, "sparse"),
    "ColBERT": (made.multi_vector, "multi-vector"),
}


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_a_model_that_is_no_embedding_model_is_refused_by_its_kind(name: str, tmp_path: Path) -> None:
    save, kind = OTHER_KINDS[name]
    save(tmp_path / "model")
    made.check_refusal(tmp_path / "model", kind)
    if name == "SPLADE":  # as older versions of the library saved it: its own file does not say what it is
        made.changed(made.PROMPTS, model_type=None)(tmp_path / "model")
        made.check_refusal(tmp_path / "model", kind)


UNREAD = [
    *("notes.txt", "README.md", "LICENSE.txt", ".gitattributes", ".git/config.json", "eval/results.json"),
    *("training_args.bin", "trainer_state.json", "checkpoint-500/model.safetensors", "checkpoint-500/config.json"),
    *("onnx/model.onnx", "onnx/config.json", "openvino/openvino_model.bin"),
    "pytorch_model.bin",  # beside model.safetensors
]
READ: Sequence[made.Edit] = (
    made.tensors(lambda weights: weights | {made.LAST: weights[made.LAST] + 1}),
    made.changed(made.TOKENIZER, added=[]),
    made.changed("tokenizer_config.json", truncation_side="left"),
    made.changed("config.json", layer_norm_eps=0.5),
    made.extended("Normalize"),
    made.changed(made.POOLING, pooling_mode="cls"),
    made.changed("sentence_bert_config.json", max_seq_length=16),
    made.changed(made.PROMPTS, prompts={"query": "the "}),
)


def test_files_that_are_not_read_leave_the_revision(whole: Path, broken: made.Broken) -> None:
    assert revision_of(broken(made.both(*map(made.written, UNREAD)))) == revision_of(whole)


def test_files_that_are_read_change_the_revision(broken: made.Broken) -> None:
    folder = broken(made.both())
    seen = {revision_of(folder)}
    for number, edit in enumerate(READ):
        edit(folder)
        assert revision_of(folder) not in seen, number
        seen.add(revision_of(folder))
