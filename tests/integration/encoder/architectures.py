"""The table of `docs/models.md`: kinds of model, and which way serves them. Each is built with small random weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.processors import TemplateProcessing

from tests.heavy import safetensors_torch, sentence_modules, sentence_transformers, torch, transformers
from tests.integration.encoder.folders import changed, pickled

WIDTH = 32
MAX_TOKENS = 48
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz:.,!?"
_LARGE = 0.3
"""Standard deviation of the weights. With the usual ones random vectors are all alike, and each comparison passes."""

Edit = Callable[[Path], None]
Modules = Callable[[], Sequence[Any]]


def _nothing(_folder: Path) -> None:
    """The edit that leaves a folder as it is."""


@dataclass(frozen=True)
class Architecture:
    """A kind of model.

    Attributes:
        name: as in the table.
        save: makes such a model in an empty folder.
        way: which serves it.
        remark: what is particular about it; why it is refused.
        refusal: part of the message.
        complete: adds to the folder, after it was loaded, what the library needs to load it too.
        routine: it is compared in each run of all tests.
    """

    name: str
    save: Edit
    way: Literal["OpenVINO", "torch", "refused"] = "OpenVINO"
    remark: str = ""
    refusal: str = ""
    complete: Edit = _nothing
    routine: bool = False


# ---- tokenizers ------------------------------------------------------------------------------------------------------


def _wordpiece() -> Tokenizer:
    words = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    tokenizer = Tokenizer(WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _lowercasing() -> Tokenizer:
    tokenizer = _wordpiece()
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    return tokenizer


def _bytes() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: index for index, word in enumerate([*_SPECIAL, *alphabet, "he", "ll"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("h", "e"), ("l", "l")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram() -> Tokenizer:
    pieces = [(word, 0.0) for word in _SPECIAL]
    pieces += [(letter, -4.0) for letter in ("\u2581", *_LETTERS)]
    tokenizer = Tokenizer(Unigram([*pieces, ("\u2581he", -3.0)], unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


_BOTH, _END = "[CLS] $A [SEP]", "$A [SEP]"


def _fast(tokenizer: Tokenizer, template: str, **options: Any) -> Any:
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]") if name in template]
    tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=ids)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), _SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **(names | options))


_TYPED = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
_UNTYPED = {"model_input_names": ["input_ids", "attention_mask"]}

_TOKENIZERS: Mapping[str, Callable[..., Any]] = {
    "wordpiece": lambda **options: _fast(_wordpiece(), _BOTH, **(_TYPED | options)),
    "lowercasing": lambda **options: _fast(_lowercasing(), _BOTH, **(_TYPED | options)),
    "bytes": lambda **options: _fast(_bytes(), _BOTH, **(_UNTYPED | options)),
    "unigram": lambda **options: _fast(_unigram(), _BOTH, **(_UNTYPED | options)),
    "t5": lambda **options: _fast(_unigram(), _END, **(_UNTYPED | options)),
    "decoder": lambda **options: _fast(_bytes(), _END, **(_UNTYPED | {"padding_side": "left"} | options)),
}

# ---- networks --------------------------------------------------------------------------------------------------------

_SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 96,
}
_DECODER: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
_DISTILBERT = {"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 96}
_T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_GPT2 = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 96}


def _network(config: str, sizes: Mapping[str, Any], vocabulary: int) -> Any:
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    settings = getattr(transformers, config)(vocab_size=vocabulary, **(ids | dict(sizes)))
    kind = transformers.T5EncoderModel if config == "T5Config" else transformers.AutoModel
    network = kind(settings) if config == "T5Config" else kind.from_config(settings)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1:
                weights.normal_(0, _LARGE)
        for table in network.modules():
            if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
                table.weight[table.padding_idx] = 0
    return network.eval()


# ---- folders ---------------------------------------------------------------------------------------------------------


def _pooled(mode: Any = "mean", *, include_prompt: bool = True) -> Modules:
    return lambda: [sentence_modules.Pooling(WIDTH, mode, include_prompt=include_prompt)]


def _then(*makes: Callable[[], Any]) -> Modules:
    return lambda: [sentence_modules.Pooling(WIDTH, "mean"), *(make() for make in makes)]


def _normalize() -> Any:
    return sentence_modules.Normalize()  # asked for when it is called: tests collect without torch


@dataclass(frozen=True)
class _Saved:
    """Saves a sentence-transformers folder that begins with a transformer."""

    config: str = "BertConfig"
    sizes: Mapping[str, Any] = field(default_factory=lambda: _SIZES)
    tokenizer: str = "wordpiece"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the tokenizer."""
    modules: Modules = field(default_factory=_pooled)
    max_tokens: int | None = MAX_TOKENS
    transformer: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of the transformer's module."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of the SentenceTransformer."""
    edit: Edit = _nothing
    """What is done to the folder then."""

    def __call__(self, folder: Path) -> None:
        _save(self.parts(folder), folder / "model", **self.model)
        self.edit(folder / "model")

    def parts(self, folder: Path) -> list[Any]:
        """The modules; the folder is for what the first one is made of."""
        torch.manual_seed(7)
        fast = _TOKENIZERS[self.tokenizer](**self.options)
        fast.save_pretrained(str(folder / "parts"))
        _network(self.config, self.sizes, len(fast)).save_pretrained(str(folder / "parts"))
        first = sentence_modules.Transformer(str(folder / "parts"), max_seq_length=self.max_tokens, **self.transformer)
        return [first, *self.modules()]


def _save(modules: Sequence[Any], folder: Path, **options: Any) -> None:
    model = sentence_transformers.SentenceTransformer(modules=list(modules), device="cpu", **options)
    model.save(str(folder), create_model_card=False)


def _halved(dtype: str) -> Edit:
    def edit(folder: Path) -> None:
        file = folder / "model.safetensors"
        weights = safetensors_torch.load_file(file)
        halved = {name: weight.to(getattr(torch, dtype)) for name, weight in weights.items()}
        safetensors_torch.save_file(halved, file, metadata={"format": "pt"})
        changed("config.json", dtype=dtype)(folder)

    return edit


def _as_version_2(folder: Path) -> None:
    old = {"0": "Transformer", "1": "Pooling"}
    modules = json.loads((folder / "modules.json").read_text())
    modules = [module | {"type": f"sentence_transformers.models.{old[module['name']]}"} for module in modules]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": MAX_TOKENS, "do_lower_case": False})
    )
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"__version__": {"pytorch": "1.9.0"}}))
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / modules[1]["path"] / "config.json").write_text(json.dumps(pooling))


def _strided(folder: Path) -> None:
    cut = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 4}
    changed("tokenizer.json", truncation=cut)(folder)


def _without_padding_token(folder: Path) -> None:
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["pad_token"]
    file.write_text(json.dumps(settings))


def _static(*more: Callable[[], Any], **options: Any) -> Edit:
    def save(folder: Path) -> None:
        _save([_static_module(), *(make() for make in more)], folder / "model", **options)

    return save


def _static_that_cuts(folder: Path) -> None:
    _static()(folder)
    [file] = folder.rglob("tokenizer.json")
    cut = {"direction": "Right", "max_length": 20, "strategy": "LongestFirst", "stride": 0}
    changed(file.name, truncation=cut)(file.parent)


def _static_module() -> Any:
    torch.manual_seed(7)
    tokenizer = _lowercasing()
    return sentence_modules.StaticEmbedding(tokenizer, torch.randn(tokenizer.get_vocab_size(), WIDTH).numpy())


def save_model2vec(folder: Path, *, modules: bool = True, quantized: bool = False) -> None:
    """A folder of model2vec. `quantized`: several tokens share a vector."""
    model = folder / "model"
    model.mkdir()
    torch.manual_seed(7)
    tokenizer = _lowercasing()
    rows = tokenizer.get_vocab_size()
    tensors = {"embeddings": torch.randn(rows, WIDTH)}
    if quantized:
        tensors |= {"embeddings": torch.randn(16, WIDTH), "weights": torch.rand(rows, dtype=torch.float64)}
        tensors |= {"mapping": torch.arange(rows) % 16}
    safetensors_torch.save_file(tensors, model / "model.safetensors")
    tokenizer.save(str(model / "tokenizer.json"))
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "seq_length": 1000000}
    (model / "config.json").write_text(json.dumps(config))
    if modules:
        _list_modules(model)


def _list_modules(folder: Path) -> None:
    names = {".": "StaticEmbedding", "1_Normalize": "Normalize"}
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(names.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def save_router(folder: Path) -> None:
    """A static model for queries and a BERT for documents, each with a prompt."""
    router = sentence_modules.Router.for_query_document(
        query_modules=[_static_module()], document_modules=_Saved().parts(folder)
    )
    prompts = {"query": "query: ", "document": "passage: "}
    _save([router, sentence_modules.Normalize()], folder / "model", prompts=prompts)


def _bag_of_words(folder: Path) -> None:
    _save([sentence_modules.BoW(["hello", "there"])], folder / "model")


# ---- the table -------------------------------------------------------------------------------------------------------

_E5 = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "passage"}
_TEMPLATE = "{% for message in messages %}[CLS]{{ message.role }}\n{{ message.content }}[SEP]\n{% endfor %}"
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_decoder = partial(_Saved, tokenizer="decoder", modules=_pooled("lasttoken"))


def _bert(name: str, remark: str = "", *, routine: bool = False, **saved: Any) -> Architecture:
    return Architecture(f"BERT, {name}", _Saved(**saved), remark=remark, routine=routine)


def _encoder(name: str, config: str, tokenizer: str = "wordpiece", remark: str = "", **sizes: Any) -> Architecture:
    return Architecture(name, _Saved(f"{config}Config", _SIZES | sizes, tokenizer), remark=remark)


def _causal(name: str, config: str, remark: str = "", *, heads: bool = False, **sizes: Any) -> Architecture:
    """`heads`: fewer of keys than of queries, and of a width of their own."""
    return Architecture(name, _decoder(f"{config}Config", _SIZES | (_DECODER if heads else {}) | sizes), remark=remark)


def _phi3(switch: int) -> _Saved:
    scaled = {"num_key_value_heads": 2, "original_max_position_embeddings": switch, "rope_parameters": _LONGROPE}
    return _decoder("Phi3Config", _SIZES | scaled)


def _dense_on_tokens() -> Sequence[Any]:
    return [sentence_modules.Dense(WIDTH, WIDTH, module_input_name="token_embeddings"), *_pooled()()]


def _weighted_layers() -> Sequence[Any]:
    return [sentence_modules.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1), *_pooled()()]


BERT = (
    _bert("first token", modules=_pooled("cls")),
    _bert("mean"),
    _bert("largest and mean", modules=_pooled(("max", "mean"))),
    _bert("mean weighted by position", modules=_pooled("weightedmean")),
    _bert("sum by the root of the length", modules=_pooled("mean_sqrt_len_tokens")),
    _bert(
        "Dense and Normalize",
        "Tanh between them",
        routine=True,
        modules=_then(lambda: sentence_modules.Dense(WIDTH, 8), _normalize),
    ),
    _bert("LayerNorm", modules=_then(lambda: sentence_modules.LayerNorm(WIDTH))),
    _bert("Dense on tokens", "before pooling", modules=_dense_on_tokens),
    _bert("prompts", "one of them the default", model=_E5),
    _bert(
        "prompts left out of the mean",
        "as in Instructor",
        routine=True,
        modules=_pooled(include_prompt=False),
        model=_E5,
    ),
    _bert("no maximum in its folder", "the network's own counts", max_tokens=None),
    _bert("cut on the left", options={"truncation_side": "left"}),
    _bert("cut by `processing_kwargs`", transformer={"processing_kwargs": {"text": {"max_length": 20}}}),
    _bert(
        "`add_special_tokens: false`",
        "in `processing_kwargs`",
        transformer={"processing_kwargs": {"text": {"add_special_tokens": False}}},
    ),
    _bert("`truncate_dim` and prompts", "cut last", routine=True, model=_E5 | {"truncate_dim": 8}),
    _bert("cased with `do_lower_case`", transformer={"do_lower_case": True}),
    _bert("weights in float16", "computed in float32", edit=_halved("float16")),
    _bert("weights in bfloat16", "computed in float32", edit=_halved("bfloat16")),
    _bert("`pytorch_model.bin`", edit=pickled),
    _bert("folder of sentence-transformers 2", edit=_as_version_2),
    _bert("tokenizer with a stride", edit=_strided),
)

ENCODERS = (
    Architecture("DistilBERT", _Saved("DistilBertConfig", _DISTILBERT, options=_UNTYPED)),
    _encoder("MPNet", "MPNet", "bytes"),
    _encoder("RoBERTa", "Roberta", "bytes"),
    _encoder("XLM-RoBERTa", "XLMRoberta", "unigram"),
    _encoder("CamemBERT", "Camembert", "unigram"),
    _encoder("ELECTRA", "Electra", embedding_size=16),
    _encoder("ALBERT", "Albert", "unigram", embedding_size=16),
    _encoder("MobileBERT", "MobileBert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    _encoder(
        *("DeBERTa-v2", "DebertaV2", "unigram"),
        relative_attention=True,
        position_buckets=16,
        pos_att_type=["p2c", "c2p"],
    ),
    Architecture("T5 encoder", _Saved("T5Config", _T5, tokenizer="t5"), routine=True),
    Architecture("mT5 encoder", _Saved("MT5Config", _T5 | {"feed_forward_proj": "gated-gelu"}, tokenizer="t5")),
    _encoder("ERNIE", "Ernie"),
    _encoder("Megatron-BERT", "MegatronBert"),
    _encoder("RemBERT", "RemBert", "unigram", input_embedding_size=16),
    _encoder("RoFormer", "RoFormer"),
    _encoder("XLM-RoBERTa-XL", "XLMRobertaXL", "unigram"),
    _encoder("BigBird, full attention", "BigBird", "unigram", attention_type="original_full"),
    _encoder("NomicBERT", "NomicBert"),
    _encoder("Jina v3", "JinaEmbeddingsV3", "unigram"),
    _encoder("EuroBERT", "EuroBert", "bytes", **_DECODER),
    Architecture(
        "ModernBERT, full and local attention",
        _Saved("ModernBertConfig", _SIZES | {"local_attention": 8}, tokenizer="bytes"),
        remark="texts longer than the window",
        routine=True,
    ),
    _encoder("ModernBERT, full attention", "ModernBert", "bytes", local_attention=128),
    _encoder("GTE", "Gte", "unigram"),
    Architecture(
        "Longformer", _Saved("LongformerConfig", _SIZES | {"attention_window": 8}, tokenizer="bytes"), "torch"
    ),
    Architecture(
        "BERT, WeightedLayerPooling",
        _Saved(sizes=_SIZES | {"output_hidden_states": True}, modules=_weighted_layers),
        "torch",
        remark="reads all layers",
    ),
)

_QWEN3 = partial(_decoder, "Qwen3Config", _SIZES | _DECODER)
DECODERS = (
    Architecture(
        "GPT-2", _decoder("GPT2Config", _GPT2, options={"padding_side": "right"}), remark="padded on the right"
    ),
    _causal("Llama", "Llama", heads=True),
    _causal(
        *("Llama, dynamic RoPE", "Llama", "texts past its original length"),
        heads=True,
        max_position_embeddings=16,
        rope_parameters=_DYNAMIC,
    ),
    _causal("Mistral", "Mistral", "sliding window", heads=True, sliding_window=8),
    Architecture("Qwen2", _decoder("Qwen2Config", _SIZES | {"num_key_value_heads": 2}), routine=True),
    Architecture("Qwen3", _QWEN3()),
    Architecture("Qwen3, mean without the prompt", _QWEN3(modules=_pooled(include_prompt=False), model=_E5)),
    Architecture("Phi-3, longrope, up to its switch", _phi3(96)),
    Architecture(
        "Qwen3, chat template",
        _QWEN3(options={"chat_template": _TEMPLATE}, model=_E5),
        remark='`"message"` in `modality_config` of sentence-transformers 6',
        routine=True,
    ),
    Architecture(
        "Qwen3, chat template that changes a text",
        _QWEN3(options={"chat_template": _TEMPLATE.replace("}}", "| replace('?', '!') }}")}),
        remark="one that changes punctuation",
    ),
    _causal("OPT", "OPT", ffn_dim=64, word_embed_proj_dim=WIDTH),
    _causal("GPT-NeoX", "GPTNeoX"),
    _causal("Phi", "Phi"),
    _causal("Granite", "Granite"),
    _causal("SmolLM3", "SmolLM3", num_key_value_heads=2),
    _causal("Gemma", "Gemma", heads=True),
    _causal("Gemma 2", "Gemma2", heads=True, sliding_window=8),
    Architecture(
        "Gemma 3, both directions",
        _decoder(
            "Gemma3TextConfig",
            _SIZES | _DECODER | {"sliding_window": 8, "use_bidirectional_attention": True},
            modules=_pooled(),
        ),
        "torch",
        remark="EmbeddingGemma",
    ),
)

STATIC = (
    Architecture("StaticEmbedding", _static(), "torch", remark="no maximum", routine=True),
    Architecture(
        "StaticEmbedding, Normalize, prompts, `truncate_dim`",
        _static(_normalize, truncate_dim=8, **_E5),
        "torch",
        routine=True,
    ),
    Architecture("StaticEmbedding, tokenizer that cuts", _static_that_cuts, "torch", routine=True),
    Architecture("model2vec", save_model2vec, "torch", routine=True),
    Architecture(
        "model2vec without `modules.json`",
        partial(save_model2vec, modules=False),
        "torch",
        complete=_list_modules,
        routine=True,
    ),
    Architecture(
        "model2vec, quantized vocabulary",
        partial(save_model2vec, quantized=True),
        "torch",
        remark="`mapping` and `weights`",
        routine=True,
    ),
)

REFUSED = (
    Architecture(
        "Router",
        save_router,
        "refused",
        remark="one model for queries, another one for documents: save each route as a model and serve both",
        refusal="several models behind a Router",
    ),
    Architecture(
        "tokenizer without padding token",
        _QWEN3(edit=_without_padding_token),
        "refused",
        remark="the library cannot encode several texts with it either",
        refusal="cannot be loaded as an embedding model",
    ),
    Architecture(
        "BigBird, block-sparse",
        _Saved(
            "BigBirdConfig",
            _SIZES | {"max_position_embeddings": 512, "block_size": 4, "num_random_blocks": 1},
            tokenizer="unigram",
            max_tokens=128,
        ),
        "refused",
        remark="the library itself gives other vectors for the same text in another batch",
        refusal="failed its self-test",
    ),
    Architecture(
        "Phi-3, longrope, past its switch",
        _phi3(16),
        "refused",
        remark="the library gives other vectors for the same text in another batch",
        refusal="failed its self-test",
    ),
    Architecture(
        "GPT-2, padded on the left",
        _decoder("GPT2Config", _GPT2),
        "refused",
        remark="its positions count padding: the library gives other vectors for the same text in another batch",
        refusal="failed its self-test",
    ),
    Architecture(
        "ConvBERT",
        _Saved("ConvBertConfig", _SIZES | {"embedding_size": WIDTH}),
        "refused",
        remark="its convolution reads padding: the library gives other vectors for the same text in another batch",
        refusal="failed its self-test",
    ),
    Architecture(
        "bag of words",
        _bag_of_words,
        "refused",
        remark="neither a transformer nor static token vectors",
        refusal="begins with BoW",
    ),
)

ARCHITECTURES = (*BERT, *ENCODERS, *DECODERS, *STATIC, *REFUSED)


class TinyModel(Enum):
    """Some of them, for tests of something else than kinds of models."""

    CLS = "BERT, first token"
    DENSE = "BERT, Dense and Normalize"
    PROMPTED = "BERT, prompts"
    INSTRUCTED = "BERT, prompts left out of the mean"
    CAUSAL = "Qwen2"


def save(model: TinyModel, folder: Path) -> Path:
    """The folder of such a model, made in an empty one."""
    folder.mkdir(parents=True, exist_ok=True)
    next(kind for kind in ARCHITECTURES if kind.name == model.value).save(folder)
    return folder / "model"


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
