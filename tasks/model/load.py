"""From settings to an encoder that passed its self-test, or to an error that says what to change."""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tasks.model.compiled import cpu_precisions
from tasks.model.device import Machine, Way, choose, default_streams
from tasks.model.encoder import Encoder, ModelLoadError, WayUnusable
from tasks.model.fake import FakeEncoder
from tasks.model.self_test import self_test
from tasks.model.sentence import SentenceEncoder
from tasks.model.torch_model import explain, load_torch_model, locate
from worker_config.settings import Settings

# Which version of a model is this? Two models that give different vectors must not share an answer.

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


# What is there to compute with? Asks torch and OpenVINO.

_machine_log = logging.getLogger(__name__)


def look(*, with_openvino: bool) -> Machine:
    """The CUDA devices of this machine, and the precisions that OpenVINO has on it.

    Raises:
        ImportError: there is no torch. Without OpenVINO there are none of its precisions, and a warning.
    """
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Machine(cuda_devices, _openvino_precisions() if with_openvino else ())


def _openvino_precisions() -> tuple[str, ...]:
    try:
        return cpu_precisions()
    except ImportError as error:
        _machine_log.warning("OpenVINO is not here (%s); on a CPU it is several times faster than torch", error)
        return ()


_log = logging.getLogger(__name__)

_FAKE_STREAMS = 2
"""Several, as most real ones have."""


def load(settings: Settings) -> Encoder:
    """The encoder that the settings name, tested and ready. Takes seconds, and minutes for a download.

    Raises:
        ModelLoadError: it cannot be had; the message names the setting and the fix.
    """
    return _load_fake(settings) if settings.compute == "fake" else _load_real(settings)


def first_that_passes(candidates: Sequence[Callable[[], Encoder]]) -> Encoder:
    """The first of the encoders that can be made and passes its self-test; each one that does not is a warning.

    Raises:
        WayUnusable: of the last candidate, when none serves.
        ModelLoadError: of the first one that meets it: the model is at fault, and no other way would help.
    """
    *preferred, last = candidates
    for make in preferred:
        try:
            return _tested(make())
        except WayUnusable as error:
            _log.warning("%s Falling back.", error)
    return _tested(last())


def _load_real(settings: Settings) -> Encoder:
    locate(settings.model)  # before the libraries are loaded, which takes seconds: a wrong name is said at once
    try:
        machine = look(with_openvino=settings.compute != "torch")
    except ImportError as error:
        raise explain(error, settings.model) from error
    placement = choose(settings.device, settings.compute, settings.precision, machine)
    encoder = first_that_passes([partial(_load_way, settings, placement.device, way) for way in placement.ways])
    if encoder.info.compute == "openvino":
        _leave_cores_to_openvino()
    return encoder


def _leave_cores_to_openvino() -> None:
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    # What is left to torch takes microseconds; waking a second thread for it takes longer.
    torch.set_num_threads(1)


def _load_way(settings: Settings, device: str, way: Way) -> Encoder:
    folder = Path(settings.model)
    try:
        return SentenceEncoder(
            load_torch_model(settings, device),
            name=folder.name if folder.is_dir() else settings.model,
            revision=revision_of(locate(settings.model)),
            way=way,
            streams=settings.streams or default_streams(device, way, settings.threads),
            threads=settings.threads,
        )
    except ModelLoadError:
        raise
    except Exception as error:
        # The library raises anything; each becomes one message for the operator.
        raise explain(error, settings.model) from error


def _tested(encoder: Encoder) -> Encoder:
    self_test(encoder)
    return encoder


def _load_fake(settings: Settings) -> Encoder:
    time.sleep(settings.fake_load_s)
    return FakeEncoder(
        settings.model,
        dimension=settings.fake_dimension,
        max_tokens=settings.fake_max_tokens,
        tokens_per_s=settings.fake_tokens_per_s,
        streams=settings.streams or _FAKE_STREAMS,
    )
