"""The table of `docs/models.md`: kinds of model, and which way serves them. Each is built with small random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

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
Way: TypeAlias = Literal["OpenVINO", "torch", "refused"]


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
    way: Way = "OpenVINO"
    remark: str = ""
    refusal: str = ""
    complete: Edit = _nothing
    routine: bool = False


_UNTYPED: dict[str, Any] = {"model_input_names": ["input_ids", "attention_mask"]}
_BYTES = partial(fast, base=byte_pairs, **_UNTYPED)
_UNIGRAMS = partial(fast, base=unigrams, **_UNTYPED)
_T5_WORDS = partial(_UNIGRAMS, BERT, "$A [SEP]")
_DECODER_WORDS = partial(_BYTES, BERT, "$A [SEP]", padding_side="left", pad_token="[SEP]")


def _then(*makes: Callable[[], Any]) -> Modules:
    return lambda: [*pooled()(), *(make() for make in makes)]


def _normalize() -> Any:
    return sentence_modules.Normalize()  # asked for when it is called: tests collect without torch


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


_E5: dict[str, Any] = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "passage"}
_TEMPLATE = "{% for message in messages %}[CLS]{{ message.role }}\n{{ message.content }}[SEP]\n{% endfor %}"
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_GPT2: dict[str, Any] = {"n_embd": WIDTH, "n_head": 4}
_LENGTH_OF_20 = {"processing_kwargs": {"text": {"max_length": 20}}}
_BARE_TEXTS = {"processing_kwargs": {"text": {"add_special_tokens": False}}}
_CASED = partial(fast, base=partial(word_pieces, cased=True))
_POSITIONS: dict[str, Any] = {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"]}
_NARROW: dict[str, Any] = {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}
_BLOCKS: dict[str, Any] = {"max_position_embeddings": 512, "block_size": 4, "num_random_blocks": 1, "max_tokens": 128}
_PHI3: dict[str, Any] = {"num_key_value_heads": 2, "rope_parameters": _LONGROPE}
_OTHER_BATCH = "the library gives other vectors for the same text in another batch"
_FAILED = "failed its self-test"


def _row(
    name: str,
    kind: str = "Bert",
    words: Callable[[], Any] = fast,
    remark: str = "",
    *,
    way: Way = "OpenVINO",
    routine: bool = False,
    refusal: str = "",
    edit: Edit = _nothing,
    **made: Any,
) -> Architecture:
    """A model that begins with a transformer of this kind, made by `folders.save`."""

    def save(folder: Path) -> None:
        usual = {"max_tokens": MAX_TOKENS, "max_position_embeddings": 96}
        folders.save(folder, kind, words(), **(usual | made))
        edit(folder)

    return Architecture(name, save, "refused" if refusal else way, remark, refusal, routine=routine)


def _decoder(name: str, kind: str, remark: str = "", words: Callable[[], Any] = _DECODER_WORDS, **made: Any) -> Any:
    return _row(name, kind, words, remark, **({"modules": pooled("lasttoken")} | made))


def _read(name: str, save: Save, remark: str = "", complete: Edit = _nothing) -> Architecture:
    return Architecture(name, save, "torch", remark, complete=complete, routine=True)


_CHAT = partial(_DECODER_WORDS, chat_template=_TEMPLATE)
_OTHER_CHAT = partial(_DECODER_WORDS, chat_template=_TEMPLATE.replace("}}", "| replace('?', '!') }}"))

ARCHITECTURES = (
    _row("BERT, first token", modules=pooled("cls")),
    _row("BERT, mean"),
    _row("BERT, largest and mean", modules=pooled(("max", "mean"))),
    _row("BERT, mean weighted by position", modules=pooled("weightedmean")),
    _row("BERT, sum by the root of the length", modules=pooled("mean_sqrt_len_tokens")),
    _row(
        *("BERT, Dense and Normalize", "Bert", fast, "Tanh between them"),
        routine=True,
        modules=_then(lambda: sentence_modules.Dense(WIDTH, 8), _normalize),
    ),
    _row("BERT, LayerNorm", modules=_then(lambda: sentence_modules.LayerNorm(WIDTH))),
    _row(
        *("BERT, Dense on tokens", "Bert", fast, "before pooling"),
        modules=lambda: [sentence_modules.Dense(WIDTH, WIDTH, module_input_name="token_embeddings"), *pooled()()],
    ),
    _row("BERT, prompts", remark="one of them the default", model=_E5),
    _row(
        *("BERT, prompts left out of the mean", "Bert", fast, "as in Instructor"),
        routine=True,
        modules=pooled(include_prompt=False),
        model=_E5,
    ),
    _row("BERT, no maximum in its folder", remark="the network's own counts", max_tokens=None),
    _row("BERT, cut on the left", words=partial(fast, truncation_side="left")),
    _row("BERT, cut by `processing_kwargs`", transformer=_LENGTH_OF_20),
    _row("BERT, `add_special_tokens: false`", remark="in `processing_kwargs`", transformer=_BARE_TEXTS),
    _row("BERT, `truncate_dim` and prompts", remark="cut last", model=_E5 | {"truncate_dim": 8}),
    _row("BERT, cased with `do_lower_case`", words=_CASED, transformer={"do_lower_case": True}),
    _row("BERT, weights in float16", remark="computed in float32", edit=_halved("float16")),
    _row("BERT, weights in bfloat16", remark="computed in float32", edit=_halved("bfloat16")),
    _row("BERT, `pytorch_model.bin`", edit=pickled),
    _row("BERT, folder of sentence-transformers 2", edit=_as_version_2),
    _row("BERT, tokenizer with a stride", edit=_cuts(16, 4)),
    _row("DistilBERT", "DistilBert", partial(fast, **_UNTYPED), dim=WIDTH, hidden_dim=64, n_heads=4),
    _row("MPNet", "MPNet", _BYTES),
    _row("RoBERTa", "Roberta", _BYTES, routine=True),
    _row("XLM-RoBERTa", "XLMRoberta", _UNIGRAMS),
    _row("CamemBERT", "Camembert", _UNIGRAMS),
    _row("ELECTRA", "Electra", embedding_size=16),
    _row("ALBERT", "Albert", _UNIGRAMS, embedding_size=16),
    _row("MobileBERT", "MobileBert", **_NARROW),
    _row("DeBERTa-v2", "DebertaV2", _UNIGRAMS, **_POSITIONS),
    _row("T5 encoder", "T5Encoder", _T5_WORDS, routine=True, **T5),
    _row("mT5 encoder", "MT5", _T5_WORDS, **T5, feed_forward_proj="gated-gelu"),
    _row("ERNIE", "Ernie"),
    _row("Megatron-BERT", "MegatronBert"),
    _row("RemBERT", "RemBert", _UNIGRAMS, input_embedding_size=16),
    _row("RoFormer", "RoFormer"),
    _row("XLM-RoBERTa-XL", "XLMRobertaXL", _UNIGRAMS),
    _row("BigBird, full attention", "BigBird", _UNIGRAMS, attention_type="original_full"),
    _row("NomicBERT", "NomicBert"),
    _row("Jina v3", "JinaEmbeddingsV3", _UNIGRAMS),
    _row("EuroBERT", "EuroBert", _BYTES, **HEADS),
    _row(
        *("ModernBERT, full and local attention", "ModernBert", _BYTES, "texts longer than the window"),
        routine=True,
        local_attention=8,
    ),
    _row("ModernBERT, full attention", "ModernBert", _BYTES, local_attention=128),
    _row("GTE", "Gte", _UNIGRAMS),
    _row("Longformer", "Longformer", _BYTES, way="torch", attention_window=8),
    _row(
        *("BERT, WeightedLayerPooling", "Bert", fast, "reads all layers"),
        way="torch",
        output_hidden_states=True,
        modules=lambda: [sentence_modules.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1), *pooled()()],
    ),
    _decoder("GPT-2", "GPT2", "padded on the right", partial(_DECODER_WORDS, padding_side="right"), **_GPT2),
    _decoder("Llama", "Llama", **HEADS),
    _decoder(
        *("Llama, dynamic RoPE", "Llama", "texts past its original length"),
        **HEADS,
        max_position_embeddings=16,
        rope_parameters=_DYNAMIC,
    ),
    _decoder("Mistral", "Mistral", "sliding window", **HEADS, sliding_window=8),
    _decoder("Qwen2", "Qwen2", num_key_value_heads=2),
    _decoder("Qwen3", "Qwen3", **HEADS),
    _decoder("Qwen3, mean without the prompt", "Qwen3", **HEADS, modules=pooled(include_prompt=False), model=_E5),
    _decoder("Phi-3, longrope, up to its switch", "Phi3", **_PHI3, original_max_position_embeddings=96),
    _decoder(
        *("Qwen3, chat template", "Qwen3", '`"message"` in `modality_config` of sentence-transformers 6', _CHAT),
        **HEADS,
        model=_E5,
        routine=True,
    ),
    _decoder(
        *("Qwen3, chat template that changes a text", "Qwen3", "one that changes punctuation", _OTHER_CHAT), **HEADS
    ),
    _decoder("OPT", "OPT", ffn_dim=64, word_embed_proj_dim=WIDTH),
    _decoder("GPT-NeoX", "GPTNeoX"),
    _decoder("Phi", "Phi"),
    _decoder("Granite", "Granite"),
    _decoder("SmolLM3", "SmolLM3", num_key_value_heads=2),
    _decoder("Gemma", "Gemma", **HEADS),
    _decoder("Gemma 2", "Gemma2", **HEADS, sliding_window=8),
    _row(
        *("Gemma 3, both directions", "Gemma3Text", _DECODER_WORDS, "EmbeddingGemma"),
        **HEADS,
        way="torch",
        sliding_window=8,
        use_bidirectional_attention=True,
    ),
    _read("StaticEmbedding", _static(), "no maximum"),
    _read("StaticEmbedding, Normalize, prompts, `truncate_dim`", _static(_normalize, truncate_dim=8, **_E5)),
    _read("StaticEmbedding, tokenizer that cuts", _static(edit=_cuts(20, 0))),
    _read("model2vec", save_model2vec),
    _read("model2vec without `modules.json`", partial(save_model2vec, modules=False), complete=_list_modules),
    _read("model2vec, quantized vocabulary", partial(save_model2vec, quantized=True), "`mapping` and `weights`"),
    Architecture(
        *("Router", save_router, "refused"),
        remark="one model for queries, another one for documents: save each route as a model and serve both",
        refusal="several models behind a Router",
    ),
    _decoder(
        *("tokenizer without padding token", "Qwen3", "the library cannot encode several texts with it either"),
        **HEADS,
        edit=changed("tokenizer_config.json", pad_token=None),
        refusal="cannot be loaded as an embedding model",
    ),
    _row(
        *("BigBird, block-sparse", "BigBird", _UNIGRAMS),
        remark=_OTHER_BATCH.replace("library", "library itself"),
        refusal=_FAILED,
        **_BLOCKS,
    ),
    _decoder(
        *("Phi-3, longrope, past its switch", "Phi3", _OTHER_BATCH),
        **_PHI3,
        original_max_position_embeddings=16,
        refusal=_FAILED,
    ),
    _decoder(
        *("GPT-2, padded on the left", "GPT2", f"its positions count padding: {_OTHER_BATCH}"), **_GPT2, refusal=_FAILED
    ),
    _row(
        *("ConvBERT", "ConvBert", fast, f"its convolution reads padding: {_OTHER_BATCH}"),
        embedding_size=WIDTH,
        refusal=_FAILED,
    ),
    Architecture(
        "bag of words",
        lambda folder: saved(folder, [sentence_modules.BoW(["hello", "there"])]),
        "refused",
        remark="neither a transformer nor static token vectors",
        refusal="begins with BoW",
    ),
)

_BEGIN, _STOP = "<!-- table of architectures -->", "<!-- end of table -->"


def with_table(page: str) -> str:
    before, rest = page.split(_BEGIN)
    after = rest.split(_STOP)[1]
    lines = [f"| {kind.name} | {kind.way} | {kind.remark} |".replace("  ", " ") for kind in ARCHITECTURES]
    table = "\n".join(["| model | served by | |", "|---|---|---|", *lines])
    return f"{before}{_BEGIN}\n\n{table}\n\n{_STOP}{after}"


if __name__ == "__main__":
    PAGE = Path(__file__).parents[3] / "docs" / "models.md"
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
