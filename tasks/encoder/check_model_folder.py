"""Is this folder what it says? Its files are looked at before a library reads them, and explains damage its own way.

Which files count is asked once (`files_read`): what is looked at here, and what a revision stands for, are the same.
"""

import hashlib
import importlib.util
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tasks.encoder.interface import ModelLoadError

_DIGITS = 12
_DESCRIPTIONS = ("modules.json", "config.json", "adapter_config.json")
"""A folder of a model has one of them."""
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
_READ = (
    *("modules.json", "config_sentence_transformers.json", "sentence_*_config.json", "config.json", "*.py"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", *_VOCABULARIES),
    *("chat_template.jinja", "chat_template.json", "preprocessor_config.json", "processor_config.json"),
    "adapter_config.json",
)
_WEIGHTS = (
    ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"),
    ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json", "adapter_model.bin"),
)
"""The library reads the first kind that is there."""
_NEEDS = {
    "Transformer": {"config", "vocabulary", "weights"},
    "StaticEmbedding": {"vocabulary", "weights"},
    "Dense": {"config", "weights"},
    "Pooling": {"config"},
}
"""By the class of a module."""
_OTHER_WEIGHTS = {"ONNX": "*.onnx", "GGUF": "*.gguf", "OpenVINO": "openvino_model.*", "TensorFlow": "*.h5"}
_POINTER = b"version https://git-lfs"
_KINDS = {
    "CrossEncoder": "a reranker (CrossEncoder): it gives a score for two texts, and no vector for one",
    "SparseEncoder": "a sparse model (SparseEncoder): it gives weights for words, and no dense vector",
    "MultiVectorEncoder": "a multi-vector model (ColBERT): it gives a vector for each token, and none for a text",
}
_KINDS_BY_PACKAGE = {"cross_encoder": "CrossEncoder", "sparse_encoder": "SparseEncoder"}
_KINDS_BY_PACKAGE |= dict.fromkeys(("multi_vector_encoder", "pylate"), "MultiVectorEncoder")


def check_model_folder(folder: Path, setting: str) -> None:
    """Looks at the files of a model.

    Args:
        folder: of the model.
        setting: how messages begin: the setting and its value.

    Raises:
        ModelLoadError: the folder holds no model, one that gives no vector for a text, or a file that is missing,
            damaged or cannot be read. The message names it and the remedy.
    """
    if not any((folder / name).is_file() for name in _DESCRIPTIONS):
        raise ModelLoadError(
            f"{setting}: the folder holds no embedding model (no modules.json and no config.json). "
            "Set it to the folder that SentenceTransformer.save wrote."
        )
    if (first_folder(folder) / "adapter_config.json").is_file() and importlib.util.find_spec("peft") is None:
        raise ModelLoadError(
            f"{setting} is an adapter (adapter_config.json), which needs the package peft: pip install peft. "
            "Or merge it into its base model (merge_and_unload), save that, and serve it."
        )
    for file in files_read(folder):
        if problem := _damage(file):
            raise ModelLoadError(f"{setting}: {file.relative_to(folder)} {problem}")
    if kind := _kind(folder):
        raise ModelLoadError(f"{setting} is {kind}. Choose an embedding model.")
    for part, module in _module_classes(folder):
        if problem := _missing(part, module, folder):
            raise ModelLoadError(f"{setting}: {problem}")


def revision_of(folder: Path) -> str:
    """12 hexadecimal digits of the content of the files that loading reads. It reads the weights once, as loading does.

    Two models that give different vectors must not share an answer, so their revisions differ.
    """
    total = hashlib.sha256()
    for file in files_read(folder):
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        total.update(f"{file.relative_to(folder).as_posix()} {digest}\n".encode())
    base = read_json(first_folder(folder) / "adapter_config.json").get("base_model_name_or_path")
    if isinstance(base, str) and Path(base).is_dir():
        total.update(revision_of(Path(base)).encode())
    return total.hexdigest()[:_DIGITS]


def files_read(folder: Path) -> list[Path]:
    """The files that loading reads, by name. Notes, checkpoints and copies of the weights for others are not read."""
    found: set[Path] = set()
    for part in (folder, *_module_folders(folder)):
        found.update(path for pattern in _READ for path in part.glob(pattern))
        kinds = [{path for pattern in kind for path in part.glob(pattern)} for kind in _WEIGHTS]
        found |= kinds[0] or kinds[1]
    return sorted(path for path in found if path.is_file())


def read_json(file: Path) -> dict[str, Any]:
    """Its content; nothing where there is no such file or no object in it."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def first_folder(folder: Path) -> Path:
    """Of the first module."""
    return _module_folders(folder)[0]


def is_static(folder: Path) -> bool:
    """Whether it is a table of token vectors instead of a transformer."""
    return _module_classes(folder)[0][1] == "StaticEmbedding"


def is_bare_model2vec(folder: Path) -> bool:
    """Whether it is a folder of model2vec without the `modules.json` by which the library would recognise it."""
    is_model2vec = read_json(folder / "config.json").get("model_type") == "model2vec"
    return is_model2vec and not (folder / "modules.json").is_file()


def _modules(folder: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads((folder / "modules.json").read_bytes())
    except (OSError, ValueError):
        return []
    return [module for module in content if isinstance(module, dict)] if isinstance(content, list) else []


def _module_folders(folder: Path) -> list[Path]:
    return [part for part, _ in _module_classes(folder)]


def _module_classes(folder: Path) -> list[tuple[Path, str]]:
    """The folders of the modules, of which the first may be the folder itself, and their classes."""
    found = [
        (folder / str(module.get("path", "")), str(module.get("type", "")).rpartition(".")[2])
        for module in _modules(folder)
    ]
    return found or [(folder, "StaticEmbedding" if is_bare_model2vec(folder) else "Transformer")]


def _damage(file: Path) -> str:
    if not os.access(file, os.R_OK):
        mode = f"{file.stat().st_mode & 0o777:04o}"
        return f"cannot be read by user {os.getuid()} (mode {mode}). Give that user the right to read it: chmod a+r."
    with file.open("rb") as content:
        start = content.read(len(_POINTER))
    if not start:
        return "" if file.suffix == ".py" else "is empty. Fetch it again."
    if start == _POINTER:
        return "is a pointer of Git LFS and not the file itself. Fetch the files: git lfs pull."
    look = {".json": _json_problem, ".safetensors": _safetensors_problem, ".bin": _pickle_problem}.get(file.suffix)
    return look(file) if look else ""


def _json_problem(file: Path) -> str:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        return f"is no valid JSON ({error}). Fetch it again."
    if file.name.endswith(".index.json") and not file.with_name(file.name.removesuffix(".index.json")).is_file():
        named = sorted(set(content["weight_map"].values()))
        missing = [name for name in named if not (file.parent / name).is_file()]
        if missing:
            return f"names {len(named)} files of weights, and {', '.join(missing[:3])} is missing. Fetch them again."
    if file.name == "config.json" and isinstance(method := content.get("quantization_config"), dict):
        name = method.get("quant_method", "unknown")
        return f"says that the weights are quantized ({name}), which is not served. Serve the model it was made from."
    return ""


def _safetensors_problem(file: Path) -> str:
    # https://huggingface.co/docs/safetensors: 8 bytes of length, a header in JSON, and the tensors.
    size = file.stat().st_size
    with file.open("rb") as content:
        header_bytes = int.from_bytes(content.read(8), "little")
        needed = 8 + header_bytes
        if needed <= size:
            try:
                header = json.loads(content.read(header_bytes))
                needed += max((one["data_offsets"][1] for name, one in header.items() if name[:2] != "__"), default=0)
            except (ValueError, TypeError, KeyError):
                return "is no file of safetensors. Fetch it again."
    return f"is cut off: it has {size} bytes of {needed}. Fetch it again." if size < needed else ""


def _pickle_problem(file: Path) -> str:
    # What torch.save writes is a zip archive, whose directory stands at its end.
    with file.open("rb") as content:
        is_zip = content.read(2) == b"PK"
    return "is cut off. Fetch it again." if is_zip and not zipfile.is_zipfile(file) else ""


def _kind(folder: Path) -> str:
    """What it is where it is no embedding model; "" where it may be one."""
    said = str(read_json(folder / "config_sentence_transformers.json").get("model_type", ""))
    types = [str(module.get("type", "")) for module in _modules(folder)]
    by_package = [kind for package, kind in _KINDS_BY_PACKAGE.items() for name in types if package in name.split(".")]
    architectures = read_json(folder / "config.json").get("architectures") or [""]
    if not types and str(architectures[0]).endswith("ForSequenceClassification"):
        return f"a reranker or classifier ({architectures[0]}): it gives scores, and no vector for a text"
    if "ColBERT" in str(architectures[0]):
        return _KINDS["MultiVectorEncoder"]
    return next((_KINDS[kind] for kind in (said, *by_package) if kind in _KINDS), "")


def _missing(part: Path, kind: str, folder: Path) -> str:
    """Which file a module of this class lacks in its folder; "" where it lacks none that is known to be needed."""
    name, needs = part.relative_to(folder), _NEEDS.get(kind, set())
    if needs and (part / "adapter_config.json").is_file():
        needs = set()  # its base model has them
    if "config" in needs and not (part / "config.json").is_file():
        return f"{name / 'config.json'} is missing. Fetch it again, or save the model again."
    if "vocabulary" in needs and not _any(part, _VOCABULARIES):
        return f"it has no vocabulary: {name / 'tokenizer.json'} is missing. Fetch the files of the tokenizer again."
    if "weights" in needs and not _any(part, (*_WEIGHTS[0], *_WEIGHTS[1])):
        others = sorted(kind for kind, pattern in _OTHER_WEIGHTS.items() if any(folder.rglob(pattern)))
        instead = f" There are only weights for {', '.join(others)}." if others else ""
        return f"there are no weights for torch: {name / 'model.safetensors'} is missing.{instead} Fetch it again."
    return ""


def _any(part: Path, patterns: Iterable[str]) -> bool:
    return any(file.is_file() for pattern in patterns for file in part.glob(pattern))
