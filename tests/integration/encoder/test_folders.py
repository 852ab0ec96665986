"""Model folders that are odd or broken: served with the library's vectors, or refused with the cause and the remedy."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stack.testing import PATIENCE_S, Roles
from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, ModelLoadError, Text, Vector
from tasks.encoder.load import load, revision_of
from tasks.item import ItemError, Options
from tests.heavy import sentence_modules, sentence_transformers, torch
from tests.integration.encoder import folders as made
from tests.integration.encoder.folders import BERT, LAST, ROBERTA, TOKENIZER, WEIGHTS, Edit, fast
from worker_config.settings import CONFIGURATION_EXIT_CODE, SettingsError, load_settings

pytestmark = pytest.mark.model

Broken = Callable[[Edit], Path]
Save = Callable[[Path], object]
TEXTS = ("how is the refund paid", "what", "the order of the days is in the queue for return")
LONG = "the of and to in is for on with how what who " * 8
POOLING, PROMPTS = "1_Pooling/config.json", "config_sentence_transformers.json"


def served(model: Path | str, **settings: Any) -> Encoder:
    return load(load_settings(model=str(model), **({"precision": "float32", "device": "cpu"} | settings)))


def check_refusal(model: Path | str, *words: str) -> None:
    """It is refused in one line that says all of these."""
    with pytest.raises(ModelLoadError) as caught:
        served(model)
    check_line(str(caught.value), *words)


def check_line(line: str, *words: str) -> None:
    assert "\n" not in line
    assert "\x1b" not in line
    missing = [word for word in words if not re.search(word, line, re.IGNORECASE)]
    assert not missing, f"{missing} not said by: {line}"


def vectors_of(encoder: Encoder, texts: Sequence[str], options: Options = Options()) -> list[Vector]:
    return encode(encoder, [Text(text, options) for text in texts], max_padded_tokens=512)[0]


def truth(folder: Path, texts: Sequence[str], *, prompt: str = "", window: int | None = None) -> npt.NDArray[Any]:
    """The library's vectors, each text alone: float32 [n, d], as its modules leave them."""
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    if window is not None:
        model.max_seq_length = window
    return np.stack([model.encode([text], prompt=prompt, show_progress_bar=False)[0] for text in texts])


def check_vectors(found: Sequence[Vector], expected: npt.NDArray[Any]) -> None:
    assert [vector.error for vector in found] == [None] * len(expected)
    for vector, row in zip(found, expected, strict=True):
        assert vector.vector is not None
        norms = float(np.linalg.norm(vector.vector) * np.linalg.norm(row))
        assert float(vector.vector @ row) / norms >= 0.999999 if norms else not (vector.vector.any() or row.any())


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


# ---- F1: more tokens than positions ----------------------------------------------------------------------------------

LEARNED = {
    "BERT": ("Bert", BERT, {"max_position_embeddings": 40}, 64),
    "ELECTRA": ("Electra", BERT, {"max_position_embeddings": 40, "embedding_size": 32}, 64),
    "ALBERT": ("Albert", BERT, {"max_position_embeddings": 40, "embedding_size": 16}, 64),
    "DistilBERT": ("DistilBert", BERT, {"max_position_embeddings": 40, "dim": 32, "hidden_dim": 64, "n_heads": 4}, 64),
    "GPT-2": ("GPT2", BERT, {"n_positions": 40, "n_embd": 32, "n_head": 4}, 64),
    "OPT": ("OPT", BERT, {"max_position_embeddings": 40, "ffn_dim": 64, "word_embed_proj_dim": 32}, 64),
    "RoBERTa": ("Roberta", ROBERTA, {"max_position_embeddings": 42}, None),
    "XLM-RoBERTa": ("XLMRoberta", ROBERTA, {"max_position_embeddings": 42}, 64),
    "CamemBERT": ("Camembert", ROBERTA, {"max_position_embeddings": 42}, None),
    "MPNet": ("MPNet", ROBERTA, {"max_position_embeddings": 42}, None),
}


@pytest.mark.parametrize("compute", ["auto", "torch"])
@pytest.mark.parametrize("name", LEARNED)
def test_texts_are_cut_where_the_positions_of_the_network_end(
    name: str, compute: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, special, sizes, window = LEARNED[name]
    words = fast(special, None if special is ROBERTA else "[CLS] $A [SEP]")
    folder = made.save(tmp_path / "model", kind, words, window=window, **sizes)
    encoder = served(folder, compute=compute)
    assert encoder.info.max_tokens == 40
    claimed = str(window or sizes["max_position_embeddings"])
    assert [line for line in warnings_of(caplog) if re.search(rf"\b{claimed}\b", line) and re.search(r"\b40\b", line)]
    texts = [*TEXTS, LONG, " ".join(LONG.split()[:38]), " ".join(LONG.split()[:39])]
    found = vectors_of(encoder, texts)
    assert [vector.truncated for vector in found] == [False] * 3 + [True, False, True]
    check_vectors(found, truth(folder, texts, window=40))


def test_a_network_without_a_table_of_positions_keeps_its_maximum(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "model", "Qwen2", window=64, max_position_embeddings=40, num_key_value_heads=4)
    encoder = served(folder)
    assert encoder.info.max_tokens == 64
    check_vectors(vectors_of(encoder, [*TEXTS, LONG]), truth(folder, [*TEXTS, LONG]))


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("T5Encoder", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
        ("XLNet", {"d_inner": 64}),
    ],
)
def test_a_network_of_any_length_has_a_maximum_all_the_same(
    kind: str, sizes: Mapping[str, int], tmp_path: Path
) -> None:
    encoder = served(made.save(tmp_path / "model", kind, **sizes))
    assert 512 <= encoder.info.max_tokens <= 32_768


# ---- F2: more tokens than rows ---------------------------------------------------------------------------------------


def with_words(*words: str, **save: Any) -> Save:
    """Words are added to the tokenizer, and no rows to the network."""

    def build(folder: Path) -> None:
        tokenizer = fast()
        rows = len(tokenizer)
        tokenizer.add_tokens(list(words))
        made.save(folder, words=tokenizer, vocab_size=rows, **save)

    return build


ROWS = len(made._VOCABULARY) + len(BERT)
TOO_FEW_ROWS: Mapping[str, tuple[Save, tuple[int, int]]] = {
    "BERT": (with_words("zebra", "okapi"), (ROWS + 2, ROWS)),
    "prompts": (
        with_words("[Q]", "[D]", model={"prompts": {"query": "[Q] ", "document": "[D] "}}),
        (ROWS + 2, ROWS),
    ),
    "static": (lambda folder: made.static(folder, ROWS - 3), (ROWS, ROWS - 3)),
    "half a table": (lambda folder: made.save(folder, vocab_size=60), (ROWS, 60)),
    "decoder": (
        lambda folder: made.save(folder, "Qwen2", pooling="lasttoken", vocab_size=ROWS - 1, num_key_value_heads=4),
        (ROWS, ROWS - 1),
    ),
}


@pytest.mark.parametrize("name", TOO_FEW_ROWS)
def test_a_tokenizer_with_more_tokens_than_the_network_has_rows_is_refused(name: str, tmp_path: Path) -> None:
    build, numbers = TOO_FEW_ROWS[name]
    build(tmp_path / "model")
    check_refusal(tmp_path / "model", *(rf"\b{number}\b" for number in numbers), "tokenizer")


def test_more_rows_than_tokens_are_served(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "model", vocab_size=ROWS + 30)
    check_vectors(vectors_of(served(folder), TEXTS), truth(folder, TEXTS))


# ---- F3: texts that hold special tokens ------------------------------------------------------------------------------

PADDED = (
    "a {pad} b",
    "how is {pad}{pad} the refund paid",
    "{pad}",
    "the {end} order {start} of {mask} days",
    "{pad} a",
)


@pytest.mark.parametrize("compute", ["auto", "torch"])
@pytest.mark.parametrize("kind", ["XLMRoberta", "Roberta", "Camembert", "MPNet", "XLMRobertaXL", "Bert"])
def test_texts_may_hold_special_tokens(kind: str, compute: str, tmp_path: Path) -> None:
    special = BERT if kind == "Bert" else ROBERTA
    names = {
        "pad": special[0 if special is BERT else 1],
        "start": special[2 if special is BERT else 0],
        "end": special[3 if special is BERT else 2],
        "mask": special[4],
    }
    folder = made.save(tmp_path / "model", kind, fast(special))
    texts = [*TEXTS, *(text.format(**names) for text in PADDED)]
    check_vectors(vectors_of(served(folder, compute=compute), texts), truth(folder, texts))


def test_texts_may_hold_the_padding_token_of_a_decoder(tmp_path: Path) -> None:
    words = fast(BERT, "$A [SEP]", padding_side="left", pad_token="[SEP]")
    folder = made.save(tmp_path / "model", "Qwen2", words, pooling="lasttoken", num_key_value_heads=4)
    texts = [*TEXTS, "a [SEP] b", "[SEP]", "the [SEP][SEP]"]
    check_vectors(vectors_of(served(folder), texts), truth(folder, texts))


# ---- F4: weights that do not fit -------------------------------------------------------------------------------------

UNFIT: Mapping[str, tuple[Edit, str]] = {
    "a tensor is missing": (made.without(LAST), LAST),
    "a norm is missing": (made.without("encoder.layer.0.output.LayerNorm.bias"), r"layer\.0\.output\.LayerNorm\.bias"),
    "words are missing": (made.without("embeddings.word"), r"embeddings\.word_embeddings\.weight"),
    "a prefix": (made.prefixed("wrapped."), r"(embeddings|encoder)\.\w+"),
    "a layer too many": (made.changed("config.json", num_hidden_layers=3), r"encoder\.layer\.2\."),
    "a layer too few": (made.changed("config.json", num_hidden_layers=1), r"encoder\.layer\.1\."),
    "another kind": (made.changed("config.json", model_type="distilbert", dim=32, n_heads=4), r"layer\.\d\.\w+"),
    "another kind, alike": (made.changed("config.json", model_type="mpnet"), r"layer\.\d\.\w+"),
    "another shape": (made.reshaped(LAST), LAST),
    "another width": (made.changed("config.json", intermediate_size=48), r"layer\.\d\.(intermediate|output)\.dense"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_weights_that_are_not_those_of_the_network_are_refused(name: str, broken: Broken) -> None:
    edit, tensor = UNFIT[name]
    check_refusal(broken(edit), tensor)


FIT: Mapping[str, Edit] = {
    "no pooler": made.without("pooler"),
    "old buffers": made.added(embeddings__position_ids=lambda: torch.arange(640)[None]),
    "names of the class": made.prefixed("bert."),
    "a head": made.headed,
    "pickled": made.pickled,
    "shards": made.sharded,
}


@pytest.mark.parametrize("name", FIT)
def test_weights_that_no_vector_needs_may_be_missing_or_there(name: str, broken: Broken) -> None:
    folder = broken(FIT[name])
    check_vectors(vectors_of(served(folder), TEXTS), truth(folder, TEXTS))


@pytest.mark.parametrize(
    ("head", "kind", "sizes"),
    [
        ("BertForMaskedLM", "Bert", {}),
        ("RobertaForMaskedLM", "Roberta", {}),
        ("Qwen2ForCausalLM", "Qwen2", {"num_key_value_heads": 4}),
        ("T5ForConditionalGeneration", "T5", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    ],
)
def test_a_checkpoint_of_a_language_model_is_served(
    head: str, kind: str, sizes: Mapping[str, int], tmp_path: Path
) -> None:
    folder = made.bare(head, tmp_path / "model", ROBERTA if kind == "Roberta" else BERT, **sizes)
    check_vectors(vectors_of(served(folder), TEXTS), truth(folder, TEXTS))


# ---- F5 and F11: damaged folders -------------------------------------------------------------------------------------

AGAIN = r"\bagain\b|complete"
DAMAGED: Mapping[str, tuple[Edit, tuple[str, ...]]] = {
    "no tokenizer": (made.removed("tokenizer*"), ("no vocabulary", r"tokenizer\.json")),
    "a tokenizer's settings alone": (made.removed(TOKENIZER), ("no vocabulary", r"tokenizer\.json")),
    "a vocabulary that is cut": (made.cut_vocabulary_file, ("no vocabulary", r"tokenizer\.json")),
    "weights are a pointer": (made.pointer(WEIGHTS), (r"model\.safetensors", "git lfs pull")),
    "pickled weights are a pointer": (
        made.both(made.removed(WEIGHTS), made.pointer("pytorch_model.bin")),
        (r"pytorch_model\.bin", "git lfs pull"),
    ),
    "the tokenizer is a pointer": (made.pointer(TOKENIZER), (r"tokenizer\.json", "git lfs pull")),
    "a module's weights are a pointer": (
        made.both(made.pointer("2_Dense/model.safetensors"), made.written("2_Dense/config.json", "{}")),
        (r"2_Dense/model\.safetensors", "git lfs pull"),
    ),
    "empty weights": (made.written(WEIGHTS, b""), (r"model\.safetensors", "empty|0 bytes", AGAIN)),
    "cut weights": (made.halved(WEIGHTS), (r"model\.safetensors", AGAIN)),
    "cut pickled weights": (made.both(made.pickled, made.halved("pytorch_model.bin")), (r"pytorch_model\.bin", AGAIN)),
    "a cut tokenizer": (made.halved(TOKENIZER), (r"tokenizer\.json", AGAIN)),
    "a shard is missing": (
        made.both(made.sharded, made.removed("model-00002-*")),
        (r"model-00002-of-\d+\.safetensors", AGAIN),
    ),
    "a shard is a pointer": (
        made.both(made.sharded, lambda folder: made.pointer(next(folder.glob("model-00002-*")).name)(folder)),
        (r"model-00002-of-\d+\.safetensors", "git lfs pull"),
    ),
    "no weights": (made.removed(WEIGHTS), ("no weights", r"model\.safetensors")),
    "only ONNX": (made.moved(WEIGHTS, "onnx/model.onnx"), ("ONNX", r"model\.safetensors")),
    "only OpenVINO": (made.moved(WEIGHTS, "openvino/openvino_model.bin"), ("OpenVINO", r"model\.safetensors")),
    "an adapter": (made.adapter, (r"\bpeft\b", r"\bmerge")),
    "GPTQ": (
        made.changed("config.json", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}),
        ("gptq", "quantiz"),
    ),
    "bitsandbytes": (
        made.changed("config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
        ("bitsandbytes", "quantiz"),
    ),
    "half a configuration": (made.halved("config.json"), (r"config\.json", "JSON", AGAIN)),
    "half a list of modules": (made.halved("modules.json"), (r"modules\.json", "JSON", AGAIN)),
    "an empty configuration": (made.written("config.json", b""), (r"config\.json", "JSON|empty", AGAIN)),
    "no pooling": (made.removed(POOLING), (r"1_Pooling/config\.json", AGAIN)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused_with_the_file_and_the_remedy(name: str, broken: Broken) -> None:
    edit, words = DAMAGED[name]
    check_refusal(broken(edit), *words, r"^(?!.*(Choose another model|no folder|was not found: it is))")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads all files")
@pytest.mark.parametrize("name", [WEIGHTS, "config.json", TOKENIZER, POOLING])
def test_a_file_that_cannot_be_read_is_named(name: str, broken: Broken) -> None:
    check_refusal(
        broken(lambda folder: (folder / name).chmod(0)), re.escape(name), r"\bread\b", "permission|chmod|user"
    )


def test_a_vocabulary_file_alone_is_served(broken: Broken) -> None:
    folder = broken(made.vocabulary_file)
    check_vectors(vectors_of(served(folder), TEXTS), truth(folder, TEXTS))


@pytest.mark.parametrize(
    ("damage", "words"),
    [(made.pointer(WEIGHTS), ("git lfs pull",)), (made.without(LAST), (re.escape(LAST),))],
    ids=["pointer", "missing tensor"],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_worker_of_such_a_folder_ends_with_one_line(
    damage: Edit, words: Sequence[str], form: str, broken: Broken, roles: Roles
) -> None:
    folder = broken(damage)
    worker = roles.worker(start=False, device="cpu", model=str(folder), log_format=form)
    worker.launch()
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    log = worker.log()
    [line] = [line for line in log.splitlines() if f"EMBEDQ_MODEL={folder}" in line]
    check_line(line, *words)
    assert not re.search(r"Traceback|\x1b|LOAD REPORT|Loading weights|MISSING|\+-|\| *Status", log), log
    if form == "json":
        assert all(isinstance(json.loads(each), dict) for each in log.splitlines())


# ---- F6: models of another kind --------------------------------------------------------------------------------------


def nameless(save: Save) -> Save:
    """As older versions of the library saved it: its own file does not say what it is."""

    def build(folder: Path) -> None:
        save(folder)
        made.changed(PROMPTS, model_type=None)(folder)

    return build


OTHER_KINDS: Mapping[str, tuple[Save, str]] = {
    "CrossEncoder": (made.reranker, "reranker"),
    "bare BERT": (lambda folder: made.bare("BertForSequenceClassification", folder, num_labels=1), "reranker"),
    "bare XLM-RoBERTa": (
        lambda folder: made.bare("XLMRobertaForSequenceClassification", folder, ROBERTA, num_labels=1),
        "reranker",
    ),
    "SPLADE": (made.splade, "sparse"),
    "SPLADE without model_type": (nameless(made.splade), "sparse"),
    "ColBERT": (made.multi_vector, "multi-vector"),
}


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_a_model_that_is_no_embedding_model_is_refused_by_its_kind(name: str, tmp_path: Path) -> None:
    save, kind = OTHER_KINDS[name]
    save(tmp_path / "model")
    check_refusal(tmp_path / "model", kind)


# ---- F7 and F13: prompts ---------------------------------------------------------------------------------------------

_Q, _P, _D, _C = "query: ", "the text: ", "model: ", "queue: "
PROMPT_SETS: Mapping[str, tuple[dict[str, str], str | None, str, str]] = {
    "none": ({}, None, "", ""),
    "query and passage": ({"query": _Q, "passage": _P}, None, "query", "passage"),
    "placeholder of the library": ({"query": _Q, "document": "", "passage": _P}, None, "query", "passage"),
    "placeholders of the library": ({"query": "", "document": ""}, None, "", ""),
    "all": ({"query": _Q, "document": _D, "passage": _P}, None, "query", "document"),
    "corpus": ({"query": _Q, "corpus": _C}, None, "query", "corpus"),
    "corpus alone": ({"corpus": _C}, None, "", "corpus"),
    "query alone": ({"query": _Q}, None, "query", ""),
    "query is the default": ({"query": _Q}, "query", "query", ""),
    "passage is the default": ({"query": _Q, "passage": _P}, "passage", "query", "passage"),
    "another default": ({"query": _Q, "sts": _C}, "sts", "query", ""),
}


@pytest.mark.parametrize("name", PROMPT_SETS)
def test_the_prompts_of_queries_and_of_documents_are_known(name: str, broken: Broken) -> None:
    prompts, default, query, document = PROMPT_SETS[name]
    folder = broken(made.changed(PROMPTS, prompts=prompts, default_prompt_name=default))
    encoder = served(folder)
    for found, expected in ((encoder.info.query_prompt, query), (encoder.info.document_prompt, document)):
        assert found == expected or not expected
        options = Options(prompt_name=found)
        check_vectors(vectors_of(encoder, TEXTS, options), truth(folder, TEXTS, prompt=prompts.get(expected, "")))


@pytest.mark.parametrize("name", ["query", "passage", "sts"])
@pytest.mark.parametrize("tokens", [30, 40])
def test_a_prompt_that_fills_the_window_is_refused(name: str, tokens: int, broken: Broken) -> None:
    prompt = " ".join(LONG.split()[:tokens]) + " "
    edits = (
        made.changed("sentence_bert_config.json", max_seq_length=32),
        made.changed(PROMPTS, prompts={name: prompt}),
    )
    check_refusal(broken(made.both(*edits)), rf"\b{name}\b", rf"\b({tokens}|{tokens + 2})\b", r"\b32\b")


@pytest.mark.parametrize(("tokens", "warned"), [(29, True), (24, True), (20, False), (3, False)])
def test_a_prompt_that_leaves_little_of_the_window_is_a_warning(
    tokens: int, warned: bool, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"query": " ".join(LONG.split()[:tokens]) + " ", "document": ""}
    edits = (made.changed("sentence_bert_config.json", max_seq_length=32), made.changed(PROMPTS, prompts=prompts))
    folder = broken(made.both(*edits))
    encoder = served(folder)
    assert any("prompt" in line and "query" in line for line in warnings_of(caplog)) == warned
    found = vectors_of(encoder, ["what", "who"], Options(prompt_name="query"))
    check_vectors(found, truth(folder, ["what", "who"], prompt=prompts["query"]))


# ---- F8 and F9: the revision -----------------------------------------------------------------------------------------

UNREAD: Mapping[str, Edit] = {
    **{
        name: made.written(name)
        for name in (
            "notes.txt",
            "README.md",
            "LICENSE.txt",
            ".gitattributes",
            ".git/config.json",
            "eval/results.json",
            "training_args.bin",
            "trainer_state.json",
            "checkpoint-500/model.safetensors",
            "checkpoint-500/config.json",
            "onnx/model.onnx",
            "onnx/config.json",
            "openvino/openvino_model.bin",
            "pytorch_model.bin",  # beside model.safetensors
        )
    },
}
READ: Mapping[str, Edit] = {
    "weights": made.tensors(lambda weights: weights | {LAST: weights[LAST] + 1}),
    "tokenizer": made.changed(TOKENIZER, added=[]),
    "its settings": made.changed("tokenizer_config.json", truncation_side="left"),
    "network": made.changed("config.json", layer_norm_eps=0.5),
    "modules": made.changed("modules.json.part", modules=[]),
    "pooling": made.changed(POOLING, pooling_mode="cls"),
    "maximum": made.changed("sentence_bert_config.json", max_seq_length=16),
    "prompts": made.changed(PROMPTS, prompts={"query": "the "}),
}


@pytest.mark.parametrize("name", UNREAD)
def test_files_that_are_not_read_leave_the_revision(name: str, whole: Path, broken: Broken) -> None:
    assert revision_of(str(broken(UNREAD[name]))) == revision_of(str(whole))


@pytest.mark.parametrize("name", READ)
def test_files_that_are_read_change_the_revision(name: str, whole: Path, broken: Broken) -> None:
    folder = broken(READ[name])
    assert revision_of(str(folder)) != revision_of(str(whole))


@pytest.mark.parametrize("form", [made.pickled, made.sharded, made.vocabulary_file])
def test_other_forms_of_weights_and_vocabulary_count_too(form: Edit, broken: Broken) -> None:
    folder = broken(form)
    before = revision_of(str(folder))
    name = {made.pickled: "pytorch_model.bin", made.sharded: "model-00002-*", made.vocabulary_file: "vocab.txt"}[form]
    file = next(folder.glob(name))
    file.write_bytes(file.read_bytes() + b"z\n")
    assert revision_of(str(folder)) != before


def test_the_base_of_an_adapter_counts_too(whole: Path, broken: Broken, tmp_path: Path) -> None:
    base = Path(shutil.copytree(whole, tmp_path / "base"))
    folder = broken(lambda copy: made.adapter(copy, base=str(base)))
    before = revision_of(str(folder))
    made.written("notes.txt")(base)
    assert revision_of(str(folder)) == before
    READ["weights"](base)
    assert revision_of(str(folder)) != before


def test_the_encoder_has_the_revision_of_its_folder(whole: Path) -> None:
    assert served(whole).info.revision == revision_of(str(whole))


# ---- F10 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan", None])
def test_what_vectors_are_compared_by_is_known(similarity: str | None, broken: Broken) -> None:
    folder = broken(made.changed(PROMPTS, similarity_fn_name=similarity))
    assert served(folder).info.similarity == (similarity or "cosine")


# ---- F12: texts without tokens ---------------------------------------------------------------------------------------

NO_TOKENS = ("\u200b", "\u00ad", "   ", "", "\u200b\u00ad")


def outcomes(encoder: Encoder) -> list[list[Vector]]:
    """Of these texts alone, and beside others."""
    beside = vectors_of(encoder, [TEXTS[0], *NO_TOKENS, TEXTS[1]])
    assert beside[0].vector is not None
    return [[vectors_of(encoder, [text])[0] for text in NO_TOKENS], beside[1:-1]]


@pytest.mark.parametrize("compute", ["auto", "torch"])
@pytest.mark.parametrize("pooling", ["lasttoken", "mean"])
def test_a_text_without_tokens_is_refused_whoever_is_beside_it(pooling: str, compute: str, tmp_path: Path) -> None:
    words = fast(BERT, "$A", padding_side="left")
    folder = made.save(tmp_path / "model", "Qwen3", words, pooling=pooling, num_key_value_heads=4, head_dim=8)
    for found in outcomes(served(folder, compute=compute)):
        errors = [vector.error or ItemError("", "") for vector in found]
        assert [error.code for error in errors] == ["no_tokens"] * len(NO_TOKENS)
        for error in errors:
            check_line(error.message, "no tokens")


@pytest.mark.parametrize("save", [made.save, made.static])
def test_a_text_without_tokens_of_its_own_is_served_by_others(save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(folder)
    for found in outcomes(served(folder)):
        check_vectors(found, truth(folder, NO_TOKENS))


# ---- C1: names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [".", "./"])
def test_the_working_directory_is_served_by_its_name(model: str, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    assert served(model).info.model == whole.name
    assert load_settings(model=model).served_model_name == whole.name


@pytest.mark.parametrize("served_name", [(), ("mine",)])
@pytest.mark.parametrize("model", ["org/name:main", "https://huggingface.co/org/name", "hf.co/org/name"])
def test_a_name_of_another_form_is_refused_with_how_to_pin(model: str, served_name: tuple[str, ...]) -> None:
    with pytest.raises((ModelLoadError, SettingsError)) as caught:
        served(model, served_name=served_name)
    check_line(str(caught.value), r"EMBEDQ_MODEL", r"\borg/name@")
