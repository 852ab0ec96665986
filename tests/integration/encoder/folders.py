"""Small model folders as sentence-transformers saves them: whole, odd or broken in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, ModelLoadError, Text
from tasks.encoder.load import load
from tasks.item import Options, Vector
from tests.heavy import safetensors_torch, sentence_modules, sentence_transformers, torch, transformers
from worker_config.settings import load_settings

Edit = Callable[[Path], None]
Save = Callable[[Path], object]
Broken = Callable[[Edit], Path]
PLAIN = Options()

BERT, ROBERTA = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_WORDS = "the of and to in is for on with how what who refund order paid days return queue model text"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-_/()'"
VOCABULARY = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_WORDS.split()]
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
POOLING, PROMPTS = "1_Pooling/config.json", "config_sentence_transformers.json"
TEXTS = ("how is the refund paid", "what", "the order of the days is in the queue for return")
LONG = "the of and to in is for on with how what who " * 8
LAST = "encoder.layer.1.output.dense.weight"


HEADS: Mapping[str, Any] = {"num_key_value_heads": 4}
T5: Mapping[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


# ---- whole folders ---------------------------------------------------------------------------------------------------


def backend(special: Sequence[str] = BERT, template: str | None = None) -> Tokenizer:
    """Letters and some words; what it does not know is unknown, and U+200B and U+00AD are nothing."""
    numbers = {word: number for number, word in enumerate([*special, *VOCABULARY])}
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
    ids = {
        "pad_token_id": words.pad_token_id,
        "vocab_size": len(words),
        "max_position_embeddings": 640,
    }
    given = {name: size for name, size in (_SIZES | ids | sizes).items() if size is not None}
    config = getattr(transformers, f"{base.removesuffix('Encoder')}Config")(**given)
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
    model: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> Path:
    """A folder of the library with such a network. `window`: its `max_seq_length`; `model`: prompts and the like."""
    words = words or fast()
    raw = parts(folder.with_name(f"{folder.name}-parts"), network(kind, words, **sizes), words)
    first = sentence_modules.Transformer(str(raw))
    pooled = sentence_modules.Pooling(first.get_embedding_dimension(), pooling)
    library = sentence_transformers.SentenceTransformer(modules=[first, pooled], device="cpu", **(model or {}))
    library.save(str(folder), create_model_card=False)
    if window is not None:
        # Of an argument the library keeps only what the network can do; people write this field by hand.
        changed("sentence_bert_config.json", max_seq_length=window)(folder)
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
    modules: list[torch.nn.Module] = [sparse.MLMTransformer(str(raw)), sparse.SpladePooling("max")]
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


def transformer_apart(folder: Path) -> None:
    """As older versions of the library wrote it."""
    part = folder / "0_Transformer"
    part.mkdir()
    for file in [file for file in folder.iterdir() if file.is_file()]:
        if file.name not in {"modules.json", PROMPTS}:
            file.rename(part / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = part.name
    (folder / "modules.json").write_text(json.dumps(modules))


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
    (folder / "vocab.txt").write_text("\n".join([*BERT, *VOCABULARY][:lines]) + "\n")
    changed("tokenizer_config.json", tokenizer_class="BertTokenizer")(folder)


def extended(kind: str) -> Edit:
    """One module more, of this class, in a folder `2_<class>`."""

    def edit(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text())
        more = {"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"}
        (folder / "modules.json").write_text(json.dumps([*modules, more]))

    return edit


def both(*edits: Edit) -> Edit:
    def edit(folder: Path) -> None:
        for each in edits:
            each(folder)

    return edit


cut_vocabulary_file = partial(vocabulary_file, lines=len(BERT))


# ---- what is asked of it ---------------------------------------------------------------------------------------------


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


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
