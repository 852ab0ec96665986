"""Small model folders as sentence-transformers saves them: whole, odd or broken in one place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from tests.heavy import safetensors_torch, sentence_modules, sentence_transformers, torch, transformers

Edit = Callable[[Path], None]

BERT, ROBERTA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WORDS = tuple("the of and to in is for on with how what who refund order paid days return queue model text".split())
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-_/()'"
_VOCABULARY = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS), *WORDS]
_ROLES = ("pad", "unk", "mask", "cls", "sep")
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.4,  # with the usual one random vectors are all alike, and each comparison passes
}
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "5" * 64 + "\nsize 90868376\n"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
LAST = "encoder.layer.1.output.dense.weight"


# ---- whole folders ---------------------------------------------------------------------------------------------------


def backend(special: Sequence[str] = BERT, template: str | None = None) -> Tokenizer:
    """Letters and some words; what it does not know is unknown, and U+200B and U+00AD are nothing."""
    numbers = {word: number for number, word in enumerate([*special, *_VOCABULARY])}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token=special[1 if special is BERT else 3]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    single = template or ("[CLS] $A [SEP]" if special is BERT else "<s> $A </s>")
    used = [(word, numbers[word]) for word in single.split() if word in numbers]
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=used)
    return tokenizer


def fast(special: Sequence[str] = BERT, template: str | None = None, **options: Any) -> Any:
    """The same, for transformers."""
    names = [f"[{role.upper()}]" for role in _ROLES] if special is BERT else ["<pad>", "<unk>", "<mask>", "<s>", "</s>"]
    named = {f"{role}_token": name for role, name in zip(_ROLES, names, strict=True)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend(special, template), **(named | options))


def network(kind: str, words: Any, **sizes: Any) -> Any:
    """`kind`: of the class `<kind>Model`, or `<kind>For…` in full."""
    base, _, head = kind.partition("For")
    ids = {"pad_token_id": words.pad_token_id, "vocab_size": len(words), "max_position_embeddings": 640}
    config = getattr(transformers, f"{base}Config")(**(_SIZES | ids | sizes))
    torch.manual_seed(7)
    made = getattr(transformers, kind if head else f"{base}Model")(config)
    with torch.no_grad():
        for weights in made.parameters():
            weights.normal_(0, 0.3)
    return made.eval()


def parts(folder: Path, made: Any, words: Any) -> Path:
    """What transformers alone saves: no modules.json."""
    folder.mkdir(parents=True, exist_ok=True)
    made.save_pretrained(str(folder))
    words.save_pretrained(str(folder))
    return folder


def save(
    folder: Path,
    kind: str = "Bert",
    words: Any = None,
    *,
    pooling: str = "mean",
    window: int | None = None,
    more: Sequence[Callable[[], Any]] = (),
    model: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> Path:
    """A folder of the library with such a network. `window`: its `max_seq_length`; `model`: prompts and the like."""
    words = words or fast()
    raw = parts(folder.with_name(f"{folder.name}-parts"), network(kind, words, **sizes), words)
    first = sentence_modules.Transformer(str(raw), max_seq_length=window)
    pooled = sentence_modules.Pooling(first.get_embedding_dimension(), pooling)
    modules = [first, pooled, *(make() for make in more)]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **(model or {})).save(
        str(folder), create_model_card=False
    )
    return folder


def static(folder: Path, rows: int | None = None) -> Path:
    """Static vectors, one for each token; `rows`: so many instead."""
    words = backend()
    torch.manual_seed(7)
    module = sentence_modules.StaticEmbedding(words, torch.randn(rows or words.get_vocab_size(), 32).numpy())
    sentence_transformers.SentenceTransformer(modules=[module], device="cpu").save(str(folder), create_model_card=False)
    return folder


def reranker(folder: Path) -> None:
    raw = bare("BertForSequenceClassification", folder.with_name("raw"), num_labels=1)
    sentence_transformers.CrossEncoder(str(raw), device="cpu").save(str(folder), create_model_card=False)


def bare(kind: str, folder: Path, special: Sequence[str] = BERT, **sizes: Any) -> Path:
    words = fast(special)
    return parts(folder, network(kind, words, **sizes), words)


def splade(folder: Path) -> None:
    from sentence_transformers.sparse_encoder import modules as sparse  # noqa: PLC0415 - as in tests.heavy

    raw = bare("BertForMaskedLM", folder.with_name("raw"))
    modules = [sparse.MLMTransformer(str(raw)), sparse.SpladePooling("max")]
    model = sentence_transformers.SparseEncoder(modules=modules, device="cpu")
    model.save(str(folder), create_model_card=False)


def multi_vector(folder: Path) -> None:
    raw = bare("Bert", folder.with_name("raw"))
    model = sentence_transformers.MultiVectorEncoder(str(raw), device="cpu")
    model.save(str(folder), create_model_card=False)


# ---- what is done to a folder ----------------------------------------------------------------------------------------


def changed(name: str, **fields: Any) -> Edit:
    """Fields of a JSON file; None removes one."""

    def edit(folder: Path) -> None:
        file = folder / name
        content = (json.loads(file.read_text()) if file.is_file() else {}) | fields
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return edit


def tensors(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Edit:
    """The weights, as `change` makes them of what is in the file."""

    def edit(folder: Path) -> None:
        weights = change(safetensors_torch.load_file(folder / WEIGHTS))
        safetensors_torch.save_file(
            {name: weight.clone() for name, weight in weights.items()}, folder / WEIGHTS, metadata={"format": "pt"}
        )

    return edit


def without(start: str) -> Edit:
    return tensors(lambda weights: {name: weight for name, weight in weights.items() if not name.startswith(start)})


def prefixed(prefix: str) -> Edit:
    return tensors(lambda weights: {prefix + name: weight for name, weight in weights.items()})


def added(**more: Callable[[], Any]) -> Edit:
    """Tensors of these names; two underscores are a point."""
    return tensors(lambda weights: weights | {name.replace("__", "."): make() for name, make in more.items()})


def reshaped(name: str) -> Edit:
    return tensors(lambda weights: weights | {name: weights[name][:, :-1]})


def headed(folder: Path) -> None:
    """Weights as a BertForMaskedLM has them, of the network that is there."""
    config = transformers.BertConfig.from_pretrained(str(folder))
    whole = transformers.BertForMaskedLM(config)
    whole.bert.load_state_dict(safetensors_torch.load_file(folder / WEIGHTS), strict=False)
    whole.save_pretrained(str(folder))


def removed(*patterns: str) -> Edit:
    def edit(folder: Path) -> None:
        for pattern in patterns:
            for file in folder.glob(pattern):
                file.unlink()

    return edit


def written(name: str, content: str | bytes = "noted on Monday\n") -> Edit:
    def edit(folder: Path) -> None:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    return edit


def pointer(name: str) -> Edit:
    """The file is what Git leaves where Git LFS is not installed."""
    return written(name, _POINTER)


def halved(name: str) -> Edit:
    def edit(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return edit


def moved(name: str, to: str) -> Edit:
    def edit(folder: Path) -> None:
        (folder / to).parent.mkdir(exist_ok=True)
        (folder / name).rename(folder / to)

    return edit


def pickled(folder: Path) -> None:
    torch.save(safetensors_torch.load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def sharded(folder: Path) -> None:
    transformers.AutoModel.from_pretrained(str(folder)).save_pretrained(str(folder), max_shard_size="40KB")
    (folder / WEIGHTS).unlink(missing_ok=True)


def adapter(folder: Path, base: str = "some/base") -> None:
    """Only what peft saves."""
    removed("config.json", WEIGHTS)(folder)
    changed("adapter_config.json", base_model_name_or_path=base, peft_type="LORA", r=8, target_modules=["query"])(
        folder
    )
    safetensors_torch.save_file({"lora_A.weight": torch.zeros(8, 32)}, folder / "adapter_model.safetensors")


def vocabulary_file(folder: Path, lines: int | None = None) -> None:
    """As old BERT folders have it: vocab.txt, and no tokenizer.json. `lines`: only so many are there."""
    (folder / TOKENIZER).unlink()
    (folder / "vocab.txt").write_text("\n".join([*BERT, *_VOCABULARY][:lines]) + "\n")
    changed("tokenizer_config.json", tokenizer_class="BertTokenizer")(folder)


def both(*edits: Edit) -> Edit:
    def edit(folder: Path) -> None:
        for each in edits:
            each(folder)

    return edit


cut_vocabulary_file = partial(vocabulary_file, lines=len(BERT))
