"""Which version of a model is this? Two models that give different vectors must not share an answer."""

import hashlib
from pathlib import Path

_DIGITS = 12
_SNAPSHOTS = "snapshots"
_CONFIGURATION = ("*.json", "*.txt", "*.model", "*.py")
_OTHER_BACK_ENDS = frozenset({"onnx", "openvino"})
"""Folders with copies of the weights that are not loaded."""


def revision_of(location: str) -> str:
    """12 hexadecimal digits: of the hub's commit when the model comes from its cache, else of the files' content.

    Hashing reads the weights once, as loading does anyway. `unknown` for a hub id that is not in the cache.
    """
    folder = Path(location) if Path(location).is_dir() else _cached(location)
    if folder is None:
        return "unknown"
    folder = folder.resolve()
    return folder.name[:_DIGITS] if folder.parent.name == _SNAPSHOTS else _content_hash(folder)


def _cached(hub_id: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - heavy, and only needed for hub ids

    # A bare name belongs to the organisation that the library assumes.
    for candidate in (hub_id, f"sentence-transformers/{hub_id}"):
        if candidate.count("/") == 1 and isinstance(found := try_to_load_from_cache(candidate, "config.json"), str):
            return Path(found).parent
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
