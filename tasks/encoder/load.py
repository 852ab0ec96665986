"""From settings to an encoder that passed its self-test, or to an error that says what to change."""

import gc
import logging
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tasks.encoder.check_model_folder import check_model_folder, is_static
from tasks.encoder.check_network import check_vectors
from tasks.encoder.fake import FakeEncoder, FakeSettings
from tasks.encoder.interface import Encoder, ModelLoadError, WayUnusable, is_out_of_memory
from tasks.encoder.library_model import Loaded
from tasks.encoder.locate import locate
from tasks.encoder.openvino import cpu_precisions
from tasks.encoder.self_test import self_test
from tasks.encoder.transformer import TransformerEncoder
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_FAKE_STREAMS = 2
"""Several, as most real encoders have."""
_CUDA_STREAMS = 2
"""One is computed while the other one is read, tokenized or stored."""
_MAX_CPU_STREAMS = 4
"""Each holds the interpreter for a part of its time, so there is no gain from many."""
_WORKER_PACKAGES = {"torch", "sentence_transformers", "transformers", "tokenizers", "huggingface_hub"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Way:
    """A library and a precision: `openvino` or `torch`, and the name of a torch dtype."""

    compute: str
    precision: str


def load(settings: Settings) -> Encoder:
    """The encoder that the settings name, tested and ready. Takes seconds, and minutes for a download.

    Raises:
        ModelLoadError: it cannot be had; the message names the setting or file and the fix.
    """
    if settings.compute == "fake":
        return _load_fake(settings)
    setting = f"EMBEDQ_MODEL={settings.model}"
    try:
        folder = locate(settings.model)
        check_model_folder(folder, setting)  # before the libraries are loaded, which takes seconds
        _import_libraries()
        return _load_real(settings, folder)
    except ModelLoadError:
        raise
    except Exception as error:
        # The libraries raise anything; each becomes one message for the operator.
        raise explain(error, setting) from error


def explain(error: Exception, setting: str) -> ModelLoadError:
    """Whatever a library raised, as one message that names the setting and the fix."""
    text = " ".join(_COLOUR.sub("", str(error)).split())[:500]
    if is_out_of_memory(error):
        return ModelLoadError(f"{setting}: not enough memory to load it. Give the worker more, or set a smaller model.")
    if "trust_remote_code" in text:
        return ModelLoadError(
            f"{setting} needs Python code from its repository. If you have read that code and trust it, "
            "set EMBEDQ_TRUST_REMOTE_CODE=true; otherwise choose another model."
        )
    if isinstance(error, ImportError):
        needed = "'embedq[worker]'" if error.name in _WORKER_PACKAGES else error.name
        fix = f"pip install {needed}" if needed else "Install what is named here"
        return ModelLoadError(f"{setting} needs a package that is not here, or too old: {text}. {fix}.")
    return ModelLoadError(
        f"{setting} cannot be loaded as an embedding model ({type(error).__name__}: {text}). Fetch its files again, or "
        "choose another model."
    )


# ---- how


def thread_limit(asked: int | None, quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int | None:
    """Of threads that compute: as asked, or the share of time that a container has; None: one for each core."""
    try:
        most, period = quota.read_text().split()  # https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max
        share = max(1, math.ceil(int(most) / int(period)))
    except (OSError, ValueError):  # none is set, or another system
        return asked
    return asked or (share if share < len(os.sched_getaffinity(0)) else None)


def choose(settings: Settings, cuda_devices: int, openvino: Sequence[str]) -> tuple[str, tuple[Way, ...]]:
    """The torch device, and the ways to try on it in this order; the first that passes its self-test serves.

    Several ways only where the settings leave the choice: a way that is asked for by name is served or refused.

    Args:
        settings: EMBEDQ_DEVICE, EMBEDQ_COMPUTE and EMBEDQ_PRECISION.
        cuda_devices: that torch sees.
        openvino: precisions that OpenVINO has on this CPU, fastest first; none where it is not installed.

    Raises:
        ModelLoadError: the device is not there, or cannot compute in this way.
    """
    device, compute, precision = settings.device, settings.compute, settings.precision
    if device == "auto":
        device = "cuda" if cuda_devices and compute != "openvino" else "cpu"
    if device == "cpu":
        ways = [] if compute == "torch" else [Way("openvino", name) for name in openvino]
        ways += [] if compute == "openvino" else [Way("torch", "float32")]
        wanted = tuple(way for way in ways if precision in {"auto", way.precision})
        if wanted:
            return device, wanted
        possible = ", ".join(dict.fromkeys(way.precision for way in ways)) or "nothing: OpenVINO is not installed"
        raise ModelLoadError(
            f"EMBEDQ_PRECISION={precision} is not available with EMBEDQ_COMPUTE={compute} on this CPU (it has "
            f"{possible}). Set both to auto."
        )
    index = int(device.partition(":")[2] or 0)
    if index >= cuda_devices:
        raise ModelLoadError(
            f"EMBEDQ_DEVICE={device}: torch sees {cuda_devices} CUDA devices here. "
            "Set it to cpu or auto, or give this machine or container a GPU and a torch built for CUDA."
        )
    if compute == "openvino":
        raise ModelLoadError(
            f"EMBEDQ_COMPUTE=openvino computes on the CPU, and EMBEDQ_DEVICE is {device}. "
            "Set EMBEDQ_DEVICE=cpu, or EMBEDQ_COMPUTE=torch."
        )
    # bfloat16 by name only: torch's gave a cosine of 0.996 to float32, less than the self-test wants.
    names = ("float16", "float32") if precision == "auto" else (precision,)
    return f"cuda:{index}", tuple(Way("torch", name) for name in names)


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


def _tested(encoder: Encoder) -> Encoder:
    self_test(encoder)
    return encoder


# ---- with the libraries


def _import_libraries() -> None:
    collects = gc.isenabled()
    gc.disable()  # what is imported stays: rounds of the collector over it are a second of six of processor time
    try:
        import sentence_transformers  # noqa: F401, PLC0415 - the worker's parent imports this module and must stay without it
        from transformers.utils import logging as transformers_logging  # noqa: PLC0415 - as above
    finally:
        if collects:
            gc.enable()
    # Bars and tables in colours, past our own log. What they say of weights, `check_weights` says.
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_default_handler()
    transformers_logging.enable_propagation()


def _load_real(settings: Settings, folder: Path) -> Encoder:
    import torch  # noqa: PLC0415 - see _import_libraries

    if (threads := thread_limit(settings.threads)) is not None:
        torch.set_num_threads(threads)
    cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device, ways = choose(settings, cuda_devices, _openvino_precisions() if settings.compute != "torch" else ())
    if is_static(folder):
        ways = _static_ways(ways, settings)
    loaded = Loaded(settings, folder)
    encoder = first_that_passes([partial(_encoder, settings, loaded, device, way, threads) for way in ways])
    if encoder.info.compute == "openvino":
        # The rest, which torch does, takes microseconds; waking a second thread for it takes longer.
        torch.set_num_threads(1)
    return encoder


def _openvino_precisions() -> tuple[str, ...]:
    try:
        return cpu_precisions()
    except ImportError as error:
        _log.warning("OpenVINO is not here (%s); on a CPU it is several times faster than torch", error)
        return ()


def _encoder(settings: Settings, loaded: Loaded, device: str, way: Way, threads: int | None) -> Encoder:
    model, tokenizer = loaded.take()
    encoder = TransformerEncoder(
        model.to(device),
        tokenizer,
        name=settings.model_name,
        revision=loaded.revision,
        compute=way.compute,
        precision=way.precision,
        streams=settings.streams or _streams(device, way, threads),
        threads=threads,
    )
    check_vectors(tokenizer, encoder.reference, f"EMBEDQ_MODEL={settings.model}")
    return encoder


def _streams(device: str, way: Way, threads: int | None) -> int:
    """How many claims to work on at the same time.

    OpenVINO does more with a few threads in each of several streams than with all threads in one, and a stream that
    loses its core for a while holds up no other one. torch on the CPU spreads every pass over all threads.
    """
    if device.startswith("cuda"):
        return _CUDA_STREAMS
    return min(_MAX_CPU_STREAMS, threads or len(os.sched_getaffinity(0))) if way.compute == "openvino" else 1


def _static_ways(ways: Sequence[Way], settings: Settings) -> tuple[Way, ...]:
    """In which a static model is computed: torch in float32, or on a card as any other.

    Raises:
        ModelLoadError: a setting asks for one that would compile a transformer.
    """
    plain = tuple(way for way in ways if way.compute == "torch")
    if plain:
        return plain
    for name, value in (("COMPUTE", settings.compute), ("PRECISION", settings.precision)):
        if value not in {"auto", "torch", "float32"}:
            raise ModelLoadError(
                f"EMBEDQ_MODEL={settings.model} is a static model: a table of token vectors, which is read by torch in "
                f"float32 on a CPU. EMBEDQ_{name}={value} is for transformers; set it to auto."
            )
    return (Way("torch", "float32"),)


def _load_fake(settings: Settings) -> Encoder:
    fake = FakeSettings()
    time.sleep(fake.load_s)
    return FakeEncoder(
        settings.model,
        dimension=fake.dimension,
        max_tokens=fake.max_tokens,
        tokens_per_s=fake.tokens_per_s,
        streams=settings.streams or _FAKE_STREAMS,
    )
