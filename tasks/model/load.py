"""From settings to an encoder that passed its self-test, or to an error that says what to change."""

import gc
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tasks.model.device import Way, choose, default_streams, measure
from tasks.model.encoder import Encoder, ModelLoadError, WayUnusable
from tasks.model.fake import FakeEncoder
from tasks.model.location import locate, revision_of
from tasks.model.self_test import self_test
from tasks.model.sentence import SentenceEncoder
from tasks.model.static_model import is_static, static_way
from tasks.model.torch_model import explain, load_torch_model
from worker_config.settings import Settings

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
        _import_libraries()
        machine = measure(with_openvino=settings.compute != "torch")
    except ImportError as error:
        raise explain(error, settings.model) from error
    placement = choose(settings.device, settings.compute, settings.precision, machine)
    encoder = first_that_passes([partial(_load_way, settings, placement.device, way) for way in placement.ways])
    if encoder.info.compute == "openvino":
        _leave_cores_to_openvino()
    return encoder


def _import_libraries() -> None:
    """What is imported stays: the garbage collector's rounds over it are a second of six of processor time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        import sentence_transformers  # noqa: F401, PLC0415 - the worker's parent imports this module and must stay without it
    finally:
        if collects:
            gc.enable()


def _leave_cores_to_openvino() -> None:
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    # The rest, which torch does, takes microseconds; waking a second thread for it takes longer.
    torch.set_num_threads(1)


def _load_way(settings: Settings, device: str, way: Way) -> Encoder:
    folder = Path(settings.model)
    try:
        model = load_torch_model(settings, device)
        if is_static(model):
            way = static_way(way, settings)
        return SentenceEncoder(
            model,
            name=folder.name if folder.is_dir() else settings.model,
            revision=revision_of(locate(settings.model)),
            way=way,
            streams=settings.streams or default_streams(device, way, settings.threads),
            threads=settings.threads,
            lone_threads=settings.lone_threads,
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
