"""From settings to a loaded encoder, or to an error that says what to change."""

import logging
import time
from pathlib import Path

from tasks.model.device import Placement, place
from tasks.model.encoder import Encoder
from tasks.model.errors import ModelLoadError, is_out_of_memory
from tasks.model.fake import FakeEncoder
from tasks.model.locate import locate
from tasks.model.revision import revision_of
from tasks.model.self_test import self_test
from tasks.model.sentence import SentenceEncoder
from worker_config.settings import Settings

_log = logging.getLogger(__name__)


def load(settings: Settings) -> Encoder:
    """The encoder that the settings name, ready to be tested and used. Takes seconds, and minutes for a download.

    Raises:
        ModelLoadError: it cannot be had; the message names the setting and the fix.
    """
    if settings.compute == "fake":
        return _load_fake(settings)
    if settings.compute == "openvino":
        raise ModelLoadError("EMBEDQ_COMPUTE=openvino is not available in this version. Set it to auto or torch.")
    placement = place(settings.device, settings.precision)
    encoder = _load_sentence(settings, placement)
    if settings.precision != "auto" or placement.precision == "float32":
        return encoder
    try:
        self_test(encoder)
    except ModelLoadError as error:
        _log.warning("%s Falling back to float32.", error)
        return _load_sentence(settings, Placement(placement.device, "float32"))
    return encoder


def _load_fake(settings: Settings) -> Encoder:
    time.sleep(settings.fake_load_s)
    return FakeEncoder(
        settings.model,
        dimension=settings.fake_dimension,
        max_tokens=settings.fake_max_tokens,
        tokens_per_s=settings.fake_tokens_per_s,
    )


def _load_sentence(settings: Settings, placement: Placement) -> Encoder:
    location = locate(settings.model)
    try:
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch
        from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - as above
        from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - as above

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar in a log is a hundred lines of noise
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        model = SentenceTransformer(
            location,
            device=placement.device,
            trust_remote_code=settings.trust_remote_code,
            # Whatever the files hold: the reference of the self-test is computed in float32, then it is converted.
            model_kwargs={"dtype": torch.float32},
        )
        folder = Path(settings.model)
        name = folder.name if folder.is_dir() else settings.model
        return SentenceEncoder(model, name=name, revision=revision_of(location), precision=placement.precision)
    except ModelLoadError:
        raise
    except Exception as error:
        # The library raises anything; each becomes one message for the operator.
        raise _explain(error, settings.model) from error


def _explain(error: Exception, model: str) -> ModelLoadError:
    setting = f"EMBEDQ_MODEL={model}"
    text = str(error)
    if is_out_of_memory(error):
        return ModelLoadError(f"{setting}: not enough memory to load it. Give the worker more, or set a smaller model.")
    if "trust_remote_code" in text:
        return ModelLoadError(
            f"{setting} needs Python code from its repository. If you have read that code and trust it, "
            "set EMBEDQ_TRUST_REMOTE_CODE=true; otherwise choose another model."
        )
    if isinstance(error, ImportError):
        return ModelLoadError(f"{setting}: {text}. Install the worker's packages: pip install 'embedq[worker]'.")
    reason = f"{type(error).__name__}: {(text.splitlines() or [''])[0][:300]}"
    if isinstance(error, OSError):
        return ModelLoadError(
            f"{setting} was not found: it is no folder, and neither in the local cache nor on the hub. "
            f"Set it to a folder or a hub id; without a network, fill the cache first. ({reason})"
        )
    return ModelLoadError(f"{setting} cannot be loaded as an embedding model. Choose another model. ({reason})")
