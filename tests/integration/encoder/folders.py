"""Small model folders as sentence-transformers saves them: whole, odd or broken in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordPiece
from tokenizers.processors import TemplateProcessing

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, ModelLoadError, Text
from tasks.encoder.load import load
from tasks.item import Options, Vector
from tests.heavy import safetensors_torch, sentence_modules, sentence_transformers, torch, transformers
from worker_config.settings import load_settings

P = ParamSpec("P")
Edit = Callable[[Path], object]
Modules = Callable[[], Sequence[Any]]
Save = Callable[[Path], object]
Broken = Callable[[Edit], Path]
PLAIN = Options()

WIDTH = 32
BERT, ROBERTA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_WORDS = "the of and to in is for on with how what who refund order paid days return queue model text"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-_/()'"
VOCABULARY = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS.split()]
ROWS = len(VOCABULARY) + len(BERT)
_ROLES = ("pad", "unk", "mask", "cls", "sep")
_SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_LARGE = 0.3
"""Standard deviation of the weights. With the usual ones random vectors are all alike, and each comparison passes."""
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "5" * 64 + "\nsize 90868376\n"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
POOLING, PROMPTS = "1_Pooling/config.json", "config_sentence_transformers.json"
TEXTS = ("how is the refund paid", "what", "the order of the days is in the queue for return")
LONG = "the of and to in is for on with how what who " * 8
LAST = "encoder.layer.1.output.dense.weight"
HEADS: Mapping[str, Any] = {"num_key_value_heads": 2, "head_dim": 8}
"""Fewer of keys than of queries."""
_T5 = {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
T5: Mapping[str, Any] = _T5 | {"max_position_embeddings": None}


def word_pieces(special: Sequence[str], *, cased: bool = False) -> Tokenizer:
    """Letters and some words; what it does not know is unknown, and U+200B and U+00AD are nothing."""
    numbers = {word: number for number, word in enumerate([*special, *VOCABULARY])}
    tokenizer = Tokenizer(WordPiece(numbers, unk_token=special[1 if special is BERT else 3]))
    if not cased:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_pairs(special: Sequence[str]) -> Tokenizer:
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "ll"]
    tokenizer = Tokenizer(BPE({word: number for number, word in enumerate(words)}, [("h", "e"), ("l", "l")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigrams(special: Sequence[str]) -> Tokenizer:
    pieces = [
        *((word, 0.0) for word in special),
        *((letter, -4.0) for letter in "\u2581abcdefghijklmnopqrstuvwxyz:.,!?"),
    ]
    tokenizer = Tokenizer(Unigram([*pieces, ("\u2581he", -3.0)], unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def fast(
    special: Sequence[str] = BERT,
    template: str | None = None,
    *,
    base: Callable[[Sequence[str]], Tokenizer] = word_pieces,
    **options: Any,
) -> Any:
    """Such a tokenizer for transformers, which puts its special tokens around a text."""
    tokenizer = base(special)
    single = template or ("[CLS] $A [SEP]" if special is BERT else "<s> $A </s>")
    used = [(word, tokenizer.token_to_id(word)) for word in single.split() if word in special]
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=used)
    names = [f"[{role.upper()}]" for role in _ROLES] if special is BERT else ["<pad>", "<unk>", "<mask>", "<s>", "</s>"]
    named = {f"{role}_token": name for role, name in zip(_ROLES, names, strict=True)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **(named | options))


def network(kind: str, words: Any, **sizes: Any) -> Any:
    """`kind`: of the class `<kind>Model`, or `<kind>For…` in full."""
    base, *head = re.split("(?=For[A-Z])", kind, maxsplit=1)
    ids = {"pad_token_id": words.pad_token_id, "bos_token_id": words.cls_token_id, "eos_token_id": words.sep_token_id}
    usual = {"vocab_size": len(words), "max_position_embeddings": 640}
    given = {name: size for name, size in (_SIZES | ids | usual | sizes).items() if size is not None}
    config = getattr(transformers, f"{base.removesuffix('Encoder')}Config")(**given)
    torch.manual_seed(7)
    made = getattr(transformers, kind if head else f"{base}Model")(config)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() > 1:
                weights.normal_(0, _LARGE)
        for table in made.modules():
            if isinstance(table, torch.nn.Embedding) and table.padding_idx is not None:
                table.weight[table.padding_idx] = 0
    return made.eval()


def parts(folder: Path, made: Any, words: Any) -> Path:
    """What transformers alone saves: no modules.json."""
    folder.mkdir(parents=True, exist_ok=True)
    made.save_pretrained(str(folder))
    words.save_pretrained(str(folder))
    return folder


def bare(kind: str, folder: Path, special: Sequence[str] = BERT, **sizes: Any) -> Path:
    words = fast(special)
    return parts(folder, network(kind, words, **sizes), words)


def pooled(mode: Any = "mean", *, include_prompt: bool = True) -> Modules:
    return lambda: [sentence_modules.Pooling(WIDTH, mode, include_prompt=include_prompt)]


_MEAN = pooled()


def modules_of(
    folder: Path,
    kind: str = "Bert",
    words: Any = None,
    *,
    modules: Modules = _MEAN,
    max_tokens: int | None = None,
    transformer: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> list[Any]:
    """A transformer, with more arguments of the library's module for it, and the modules behind it."""
    words = words or fast()
    raw = parts(folder.with_name(f"{folder.name}-parts"), network(kind, words, **sizes), words)
    first = sentence_modules.Transformer(str(raw), max_seq_length=max_tokens, **(transformer or {}))
    return [first, *modules()]


def saved(folder: Path, modules: Sequence[Any], **model: Any) -> Path:
    library = sentence_transformers.SentenceTransformer(modules=list(modules), device="cpu", **model)
    library.save(str(folder), create_model_card=False)
    return folder


def save(
    folder: Path,
    kind: str = "Bert",
    words: Any = None,
    *,
    window: int | None = None,
    model: Mapping[str, Any] | None = None,
    **made: Any,
) -> Path:
    """A folder of the library with such a network. `window`: its `max_seq_length`."""
    saved(folder, modules_of(folder, kind, words, **made), **(model or {}))
    if window is not None:
        # Of an argument the library keeps only what the network can do; people write this field by hand.
        changed("sentence_bert_config.json", max_seq_length=window)(folder)
    return folder


def static_module(rows: int | None = None) -> Any:
    """Static vectors, one for each token; `rows`: so many instead."""
    words = word_pieces(BERT)
    torch.manual_seed(7)
    return sentence_modules.StaticEmbedding(words, torch.randn(rows or words.get_vocab_size(), WIDTH).numpy())


def static(folder: Path, rows: int | None = None) -> Path:
    return saved(folder, [static_module(rows)])


def reranker(folder: Path) -> None:
    raw = bare("BertForSequenceClassification", folder.with_name("raw"), num_labels=1)
    sentence_transformers.CrossEncoder(str(raw), device="cpu").save(str(folder), create_model_card=False)


def splade(folder: Path) -> None:
    from sentence_transformers.sparse_encoder import modules as sparse  # noqa: PLC0415 - as in tests.heavy

    raw = bare("BertForMaskedLM", folder.with_name("raw"))
    modules: list[torch.nn.Module] = [sparse.MLMTransformer(str(raw)), sparse.SpladePooling("max")]
    sentence_transformers.SparseEncoder(modules=modules, device="cpu").save(str(folder), create_model_card=False)


def multi_vector(folder: Path) -> None:
    raw = bare("Bert", folder.with_name("raw"))
    sentence_transformers.MultiVectorEncoder(str(raw), device="cpu").save(str(folder), create_model_card=False)


def edits(change: Callable[Concatenate[Path, P], object]) -> Callable[P, Edit]:
    """A function that is told what to change first, and the folder then."""

    def told(*args: P.args, **options: P.kwargs) -> Edit:
        return lambda folder: change(folder, *args, **options)

    return told


@edits
def changed(folder: Path, name: str, /, **fields: Any) -> None:
    """Fields of a JSON file; None removes one."""
    file = folder / name
    content = (json.loads(file.read_text()) if file.is_file() else {}) | fields
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@edits
def tensors(folder: Path, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    weights = change(safetensors_torch.load_file(folder / WEIGHTS))
    copies = {name: weight.clone() for name, weight in weights.items()}
    safetensors_torch.save_file(copies, folder / WEIGHTS, metadata={"format": "pt"})


def without(start: str) -> Edit:
    return tensors(lambda weights: {name: weight for name, weight in weights.items() if not name.startswith(start)})


def headed(folder: Path) -> None:
    whole = transformers.BertForMaskedLM(transformers.BertConfig.from_pretrained(str(folder)))
    whole.bert.load_state_dict(safetensors_torch.load_file(folder / WEIGHTS), strict=False)
    whole.save_pretrained(str(folder))


@edits
def removed(folder: Path, *patterns: str) -> None:
    for file in [file for pattern in patterns for file in folder.glob(pattern)]:
        file.unlink()


@edits
def written(folder: Path, name: str, content: str = "noted on Monday\n") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def pointer(name: str) -> Edit:
    """The file is what Git leaves where Git LFS is not installed."""
    return written(name, _POINTER)


@edits
def halved(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])


@edits
def moved(folder: Path, name: str, to: str) -> None:
    (folder / to).parent.mkdir(exist_ok=True)
    (folder / name).rename(folder / to)


@edits
def listed(folder: Path, change: Callable[[list[Any]], object]) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    change(modules)
    (folder / "modules.json").write_text(json.dumps(modules))


def transformer_apart(folder: Path) -> None:
    """As older versions of the library wrote it."""
    part = folder / "0_Transformer"
    part.mkdir()
    for file in [file for file in folder.iterdir() if file.is_file()]:
        if file.name not in {"modules.json", PROMPTS}:
            file.rename(part / file.name)
    listed(lambda modules: modules[0].update(path=part.name))(folder)


def pickled(folder: Path) -> None:
    torch.save(safetensors_torch.load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def sharded(folder: Path) -> None:
    transformers.AutoModel.from_pretrained(str(folder)).save_pretrained(str(folder), max_shard_size="40KB")
    (folder / WEIGHTS).unlink(missing_ok=True)


def adapter(folder: Path) -> None:
    removed("config.json", WEIGHTS)(folder)
    changed("adapter_config.json", base_model_name_or_path="some/base", peft_type="LORA", r=8)(folder)
    safetensors_torch.save_file({"lora_A.weight": torch.zeros(8, 32)}, folder / "adapter_model.safetensors")


@edits
def vocabulary_file(folder: Path, lines: int | None = None) -> None:
    """As old BERT folders have it: vocab.txt, and no tokenizer.json. `lines`: only so many are there."""
    (folder / TOKENIZER).unlink()
    (folder / "vocab.txt").write_text("\n".join([*BERT, *VOCABULARY][:lines]) + "\n")
    changed("tokenizer_config.json", tokenizer_class="BertTokenizer")(folder)


def extended(kind: str) -> Edit:
    """One module more, of this class, in a folder `2_<class>`."""
    more = {"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"}
    return listed(lambda modules: modules.append(more))


@edits
def both(folder: Path, *changes: Edit) -> None:
    for change in changes:
        change(folder)


def served(model: Path | str, **settings: Any) -> Encoder:
    """By torch unless `compute` says otherwise: OpenVINO takes seconds to compile each."""
    usual = {"compute": "torch", "precision": "float32", "device": "cpu"}
    return load(load_settings(model=str(model), **(usual | settings)))


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


def vectors_of(encoder: Encoder, texts: Sequence[str], options: Options = PLAIN) -> list[Vector]:
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
