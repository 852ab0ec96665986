"""The table of `docs/models.md`: kinds of model, and which way serves them. Each is built with small random weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tests.heavy import safetensors_torch, sentence_modules, torch
from tests.integration.encoder import folders
from tests.integration.encoder.folders import (
    BERT,
    HEADS,
    T5,
    WIDTH,
    Edit,
    Modules,
    Save,
    byte_pairs,
    changed,
    fast,
    pickled,
    pooled,
    saved,
    static_module,
    unigrams,
    word_pieces,
)

MAX_TOKENS = 48


def _nothing(_folder: Path) -> None:
    """The edit that leaves a folder as it is."""


@dataclass(frozen=True)
class Architecture:
    """A kind of model.

    Attributes:
        name: as in the table.
        save: makes such a model.
        way: which serves it.
        remark: what is particular about it; why it is refused.
        refusal: part of the message.
        complete: adds to the folder, after it was loaded, what the library needs to load it too.
        routine: it is compared in each run of all tests.
    """

    name: str
    save: Save
    way: Literal["OpenVINO", "torch", "refused"] = "OpenVINO"
    remark: str = ""
    refusal: str = ""
    complete: Edit = _nothing
    routine: bool = False


_UNTYPED = {"model_input_names": ["input_ids", "attention_mask"]}
_BYTES = partial(fast, base=byte_pairs, **_UNTYPED)
_UNIGRAMS = partial(fast, base=unigrams, **_UNTYPED)
_T5_WORDS = partial(_UNIGRAMS, BERT, "$A [SEP]")
_DECODER_WORDS = partial(_BYTES, BERT, "$A [SEP]", padding_side="left")


def _saved(kind: str = "Bert", words: Callable[[], Any] = fast, *, edit: Edit = _nothing, **made: Any) -> Save:
    def save(folder: Path) -> None:
        usual = {"max_tokens": MAX_TOKENS, "max_position_embeddings": 96}
        folders.save(folder, kind, words(), **(usual | made))
        edit(folder)

    return save


def _then(*makes: Callable[[], Any]) -> Modules:
    return lambda: [*pooled()(), *(make() for make in makes)]


def _normalize() -> Any:
    return sentence_modules.Normalize()  # asked for when it is called: tests collect without torch


# ---- folders ---------------------------------------------------------------------------------------------------------


@folders.edits
def _halved(folder: Path, dtype: str) -> None:
    folders.tensors(lambda weights: {name: one.to(getattr(torch, dtype)) for name, one in weights.items()})(folder)
    changed("config.json", dtype=dtype)(folder)


def _as_version_2(folder: Path) -> None:
    def rename(modules: list[Any]) -> None:
        for module, kind in zip(modules, ("Transformer", "Pooling"), strict=True):
            module["type"] = f"sentence_transformers.models.{kind}"

    folders.listed(rename)(folder)
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    for name, content in (
        ("sentence_bert_config.json", {"max_seq_length": MAX_TOKENS, "do_lower_case": False}),
        ("config_sentence_transformers.json", {"__version__": {"pytorch": "1.9.0"}}),
        ("1_Pooling/config.json", pooling),
    ):
        (folder / name).write_text(json.dumps(content))


@folders.edits
def _cuts(folder: Path, tokens: int, stride: int) -> None:
    cut = {"direction": "Right", "max_length": tokens, "strategy": "LongestFirst", "stride": stride}
    changed("tokenizer.json", truncation=cut)(next(folder.rglob("tokenizer.json")).parent)


def _static(*more: Callable[[], Any], edit: Edit = _nothing, **model: Any) -> Save:
    def save(folder: Path) -> None:
        saved(folder, [static_module(), *(make() for make in more)], **model)
        edit(folder)

    return save


def save_model2vec(folder: Path, *, modules: bool = True, quantized: bool = False) -> None:
    """A folder of model2vec. `quantized`: several tokens share a vector."""
    folder.mkdir()
    torch.manual_seed(7)
    tokenizer = word_pieces(BERT)
    rows = tokenizer.get_vocab_size()
    tensors = {"embeddings": torch.randn(rows, WIDTH)}
    if quantized:
        tensors |= {"embeddings": torch.randn(61, WIDTH), "weights": torch.rand(rows, dtype=torch.float64)}
        tensors |= {"mapping": torch.arange(rows) % 61}
    safetensors_torch.save_file(tensors, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "seq_length": 1000000}
    (folder / "config.json").write_text(json.dumps(config))
    if modules:
        _list_modules(folder)


def _list_modules(folder: Path) -> None:
    kinds = {"StaticEmbedding": ".", "Normalize": "1_Normalize"}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def save_router(folder: Path) -> None:
    """A static model for queries and a BERT for documents, each with a prompt."""
    documents = folders.modules_of(folder, max_tokens=MAX_TOKENS)
    router = sentence_modules.Router.for_query_document(query_modules=[static_module()], document_modules=documents)
    saved(folder, [router, _normalize()], prompts={"query": "query: ", "document": "passage: "})


def _bag_of_words(folder: Path) -> None:
    saved(folder, [sentence_modules.BoW(["hello", "there"])])


# ---- the table -------------------------------------------------------------------------------------------------------

_E5 = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "passage"}
_TEMPLATE = "{% for message in messages %}[CLS]{{ message.role }}\n{{ message.content }}[SEP]\n{% endfor %}"
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_decoder = partial(_saved, modules=pooled("lasttoken"))
_GPT2: dict[str, Any] = {"n_embd": WIDTH, "n_head": 4}
_QWEN3 = partial(_decoder, "Qwen3", **HEADS)
_OTHER_BATCH = "the library gives other vectors for the same text in another batch"


def _bert(name: str, remark: str = "", *, routine: bool = False, **made: Any) -> Architecture:
    return Architecture(f"BERT, {name}", _saved(**made), remark=remark, routine=routine)


def _encoder(name: str, kind: str, words: Callable[[], Any] = fast, remark: str = "", **made: Any) -> Architecture:
    return Architecture(name, _saved(kind, words, **made), remark=remark)


def _causal(name: str, kind: str, remark: str = "", **sizes: Any) -> Architecture:
    return Architecture(name, _decoder(kind, _DECODER_WORDS, **sizes), remark=remark)


def _phi3(switch: int) -> Save:
    return _decoder(
        *("Phi3", _DECODER_WORDS),
        num_key_value_heads=2,
        original_max_position_embeddings=switch,
        rope_parameters=_LONGROPE,
    )


def _dense_on_tokens() -> Sequence[Any]:
    return [sentence_modules.Dense(WIDTH, WIDTH, module_input_name="token_embeddings"), *pooled()()]


def _weighted_layers() -> Sequence[Any]:
    return [sentence_modules.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1), *pooled()()]


_LENGTH_OF_20 = {"processing_kwargs": {"text": {"max_length": 20}}}
_BARE_TEXTS = {"processing_kwargs": {"text": {"add_special_tokens": False}}}
_CASED = partial(fast, base=partial(word_pieces, cased=True))
_DENSE = _then(lambda: sentence_modules.Dense(WIDTH, 8), _normalize)

_BERTS = (
    _bert("first token", modules=pooled("cls")),
    _bert("mean"),
    _bert("largest and mean", modules=pooled(("max", "mean"))),
    _bert("mean weighted by position", modules=pooled("weightedmean")),
    _bert("sum by the root of the length", modules=pooled("mean_sqrt_len_tokens")),
    _bert("Dense and Normalize", "Tanh between them", routine=True, modules=_DENSE),
    _bert("LayerNorm", modules=_then(lambda: sentence_modules.LayerNorm(WIDTH))),
    _bert("Dense on tokens", "before pooling", modules=_dense_on_tokens),
    _bert("prompts", "one of them the default", model=_E5),
    _bert(
        *("prompts left out of the mean", "as in Instructor"),
        routine=True,
        modules=pooled(include_prompt=False),
        model=_E5,
    ),
    _bert("no maximum in its folder", "the network's own counts", max_tokens=None),
    _bert("cut on the left", words=partial(fast, truncation_side="left")),
    _bert("cut by `processing_kwargs`", transformer=_LENGTH_OF_20),
    _bert("`add_special_tokens: false`", "in `processing_kwargs`", transformer=_BARE_TEXTS),
    _bert("`truncate_dim` and prompts", "cut last", model=_E5 | {"truncate_dim": 8}),
    _bert("cased with `do_lower_case`", words=_CASED, transformer={"do_lower_case": True}),
    _bert("weights in float16", "computed in float32", edit=_halved("float16")),
    _bert("weights in bfloat16", "computed in float32", edit=_halved("bfloat16")),
    _bert("`pytorch_model.bin`", edit=pickled),
    _bert("folder of sentence-transformers 2", edit=_as_version_2),
    _bert("tokenizer with a stride", edit=_cuts(16, 4)),
)

_ENCODERS = (
    _encoder("DistilBERT", "DistilBert", partial(fast, **_UNTYPED), dim=WIDTH, hidden_dim=64, n_heads=4),
    _encoder("MPNet", "MPNet", _BYTES),
    _encoder("RoBERTa", "Roberta", _BYTES),
    _encoder("XLM-RoBERTa", "XLMRoberta", _UNIGRAMS),
    _encoder("CamemBERT", "Camembert", _UNIGRAMS),
    _encoder("ELECTRA", "Electra", embedding_size=16),
    _encoder("ALBERT", "Albert", _UNIGRAMS, embedding_size=16),
    _encoder("MobileBERT", "MobileBert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    _encoder(
        *("DeBERTa-v2", "DebertaV2", _UNIGRAMS),
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["p2c", "c2p"],
    ),
    Architecture("T5 encoder", _saved("T5Encoder", _T5_WORDS, **T5), routine=True),
    _encoder("mT5 encoder", "MT5", _T5_WORDS, **T5, feed_forward_proj="gated-gelu"),
    _encoder("ERNIE", "Ernie"),
    _encoder("Megatron-BERT", "MegatronBert"),
    _encoder("RemBERT", "RemBert", _UNIGRAMS, input_embedding_size=16),
    _encoder("RoFormer", "RoFormer"),
    _encoder("XLM-RoBERTa-XL", "XLMRobertaXL", _UNIGRAMS),
    _encoder("BigBird, full attention", "BigBird", _UNIGRAMS, attention_type="original_full"),
    _encoder("NomicBERT", "NomicBert"),
    _encoder("Jina v3", "JinaEmbeddingsV3", _UNIGRAMS),
    _encoder("EuroBERT", "EuroBert", _BYTES, **HEADS),
    Architecture(
        "ModernBERT, full and local attention",
        _saved("ModernBert", _BYTES, local_attention=8),
        remark="texts longer than the window",
        routine=True,
    ),
    _encoder("ModernBERT, full attention", "ModernBert", _BYTES, local_attention=128),
    _encoder("GTE", "Gte", _UNIGRAMS),
    Architecture("Longformer", _saved("Longformer", _BYTES, attention_window=8), "torch"),
    Architecture(
        "BERT, WeightedLayerPooling",
        _saved(output_hidden_states=True, modules=_weighted_layers),
        "torch",
        remark="reads all layers",
    ),
)

_DECODERS = (
    Architecture(
        "GPT-2",
        _decoder("GPT2", partial(_DECODER_WORDS, padding_side="right"), **_GPT2),
        remark="padded on the right",
    ),
    _causal("Llama", "Llama", **HEADS),
    _causal(
        *("Llama, dynamic RoPE", "Llama", "texts past its original length"),
        **HEADS,
        max_position_embeddings=16,
        rope_parameters=_DYNAMIC,
    ),
    _causal("Mistral", "Mistral", "sliding window", **HEADS, sliding_window=8),
    _causal("Qwen2", "Qwen2", num_key_value_heads=2),
    _causal("Qwen3", "Qwen3", **HEADS),
    Architecture(
        "Qwen3, mean without the prompt", _QWEN3(_DECODER_WORDS, modules=pooled(include_prompt=False), model=_E5)
    ),
    Architecture("Phi-3, longrope, up to its switch", _phi3(96)),
    Architecture(
        "Qwen3, chat template",
        _QWEN3(partial(_DECODER_WORDS, chat_template=_TEMPLATE), model=_E5),
        remark='`"message"` in `modality_config` of sentence-transformers 6',
        routine=True,
    ),
    Architecture(
        "Qwen3, chat template that changes a text",
        _QWEN3(partial(_DECODER_WORDS, chat_template=_TEMPLATE.replace("}}", "| replace('?', '!') }}"))),
        remark="one that changes punctuation",
    ),
    _causal("OPT", "OPT", ffn_dim=64, word_embed_proj_dim=WIDTH),
    _causal("GPT-NeoX", "GPTNeoX"),
    _causal("Phi", "Phi"),
    _causal("Granite", "Granite"),
    _causal("SmolLM3", "SmolLM3", num_key_value_heads=2),
    _causal("Gemma", "Gemma", **HEADS),
    _causal("Gemma 2", "Gemma2", **HEADS, sliding_window=8),
    Architecture(
        "Gemma 3, both directions",
        _saved("Gemma3Text", _DECODER_WORDS, **HEADS, sliding_window=8, use_bidirectional_attention=True),
        "torch",
        remark="EmbeddingGemma",
    ),
)


def _read(name: str, save: Save, remark: str = "", complete: Edit = _nothing) -> Architecture:
    return Architecture(name, save, "torch", remark=remark, complete=complete, routine=True)


_STATIC = (
    _read("StaticEmbedding", _static(), "no maximum"),
    _read("StaticEmbedding, Normalize, prompts, `truncate_dim`", _static(_normalize, truncate_dim=8, **_E5)),
    _read("StaticEmbedding, tokenizer that cuts", _static(edit=_cuts(20, 0))),
    _read("model2vec", save_model2vec),
    _read("model2vec without `modules.json`", partial(save_model2vec, modules=False), complete=_list_modules),
    _read("model2vec, quantized vocabulary", partial(save_model2vec, quantized=True), "`mapping` and `weights`"),
)


def _refused(name: str, save: Save, refusal: str, remark: str) -> Architecture:
    return Architecture(name, save, "refused", remark, refusal)


_BLOCKS = {"max_position_embeddings": 512, "block_size": 4, "num_random_blocks": 1, "max_tokens": 128}
_REFUSED = (
    _refused(
        *("Router", save_router, "several models behind a Router"),
        "one model for queries, another one for documents: save each route as a model and serve both",
    ),
    _refused(
        "tokenizer without padding token",
        _QWEN3(_DECODER_WORDS, edit=changed("tokenizer_config.json", pad_token=None)),
        "cannot be loaded as an embedding model",
        "the library cannot encode several texts with it either",
    ),
    _refused(
        "BigBird, block-sparse",
        _saved("BigBird", _UNIGRAMS, **_BLOCKS),
        "failed its self-test",
        "the library itself gives other vectors for the same text in another batch",
    ),
    _refused("Phi-3, longrope, past its switch", _phi3(16), "failed its self-test", _OTHER_BATCH),
    _refused(
        "GPT-2, padded on the left",
        _decoder("GPT2", _DECODER_WORDS, **_GPT2),
        "failed its self-test",
        f"its positions count padding: {_OTHER_BATCH}",
    ),
    _refused(
        "ConvBERT",
        _saved("ConvBert", embedding_size=WIDTH),
        "failed its self-test",
        f"its convolution reads padding: {_OTHER_BATCH}",
    ),
    _refused("bag of words", _bag_of_words, "begins with BoW", "neither a transformer nor static token vectors"),
)

ARCHITECTURES = (*_BERTS, *_ENCODERS, *_DECODERS, *_STATIC, *_REFUSED)

# ---- its copy in the documentation -----------------------------------------------------------------------------------

_BEGIN, _STOP = "<!-- table of architectures -->", "<!-- end of table -->"


def with_table(page: str) -> str:
    """The page with the table in its place."""
    before, rest = page.split(_BEGIN)
    after = rest.split(_STOP)[1]
    lines = [f"| {kind.name} | {kind.way} | {kind.remark} |".replace("  ", " ") for kind in ARCHITECTURES]
    table = "\n".join(["| model | served by | |", "|---|---|---|", *lines])
    return f"{before}{_BEGIN}\n\n{table}\n\n{_STOP}{after}"


if __name__ == "__main__":
    PAGE = Path(__file__).parents[3] / "docs" / "models.md"
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
