"""Which device, and in which ways may it compute? Decided from the settings and from the hardware of this machine."""

import logging
import os
from dataclasses import dataclass

from tasks.model.compiled import cpu_precisions
from tasks.model.encoder import ModelLoadError

_log = logging.getLogger(__name__)

_CUDA_STREAMS = 2
_MAX_CPU_STREAMS = 4
"""Each holds the interpreter for a part of its time, so there is no gain from many."""


@dataclass(frozen=True, slots=True)
class Way:
    """A library and a precision: `openvino` or `torch`, and the name of a torch dtype."""

    compute: str
    precision: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has to compute with.

    Attributes:
        cuda_devices: those that torch sees.
        openvino: precisions that OpenVINO has on this CPU, fastest first; empty where it is not installed.
    """

    cuda_devices: int
    openvino: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A torch device name, and the ways to try on it, in this order; the first that passes its self-test serves."""

    device: str
    ways: tuple[Way, ...]


def measure(*, with_openvino: bool) -> Machine:
    """The CUDA devices of this machine, and the precisions that OpenVINO has on it.

    Raises:
        ImportError: there is no torch. Without OpenVINO there are none of its precisions, and a warning.
    """
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Machine(cuda_devices, _openvino_precisions() if with_openvino else ())


def choose(device: str, compute: str, precision: str, machine: Machine) -> Placement:
    """The settings `EMBEDQ_DEVICE`, `EMBEDQ_COMPUTE` and `EMBEDQ_PRECISION` with `auto` resolved on this machine.

    Several ways only where the settings leave the choice: a way that is asked for by name is served or refused.

    Raises:
        ModelLoadError: the device is not there, or cannot compute in this way.
    """
    if device == "auto":
        device = "cuda" if machine.cuda_devices and compute != "openvino" else "cpu"
    if device == "cpu":
        return Placement("cpu", _cpu_ways(compute, precision, machine.openvino))
    index = int(device.partition(":")[2] or 0)
    if index >= machine.cuda_devices:
        raise ModelLoadError(
            f"EMBEDQ_DEVICE={device}: torch sees {machine.cuda_devices} CUDA devices here. "
            "Set it to cpu or auto, or give this machine or container a GPU and a torch built for CUDA."
        )
    if compute == "openvino":
        raise ModelLoadError(
            f"EMBEDQ_COMPUTE=openvino computes on the CPU, and EMBEDQ_DEVICE is {device}. "
            "Set EMBEDQ_DEVICE=cpu, or EMBEDQ_COMPUTE=torch."
        )
    # bfloat16 by name only: torch's gave a cosine of 0.996 to float32, less than the self-test wants.
    precisions = ("float16", "float32") if precision == "auto" else (precision,)
    return Placement(f"cuda:{index}", tuple(Way("torch", name) for name in precisions))


def default_streams(device: str, way: Way, threads: int | None) -> int:
    """How many claims to work on at the same time.

    On a card two: one is computed while the other one is read, tokenized or stored. OpenVINO does more with a few
    threads in each of several streams than with all threads in one, and a stream that loses its core for a while holds
    up no other one. torch on the CPU spreads every pass over all threads.
    """
    if device.startswith("cuda"):
        return _CUDA_STREAMS
    if way.compute != "openvino":
        return 1
    return min(_MAX_CPU_STREAMS, threads or len(os.sched_getaffinity(0)))


def release_card_memory() -> None:
    """Gives back what torch keeps of a card's memory and does not use, for others on the card."""
    import torch  # noqa: PLC0415 - see `measure`

    torch.cuda.empty_cache()


def _openvino_precisions() -> tuple[str, ...]:
    try:
        return cpu_precisions()
    except ImportError as error:
        _log.warning("OpenVINO is not here (%s); on a CPU it is several times faster than torch", error)
        return ()


def _cpu_ways(compute: str, precision: str, openvino: tuple[str, ...]) -> tuple[Way, ...]:
    if compute == "openvino" and not openvino:
        raise ModelLoadError(
            "EMBEDQ_COMPUTE=openvino: OpenVINO is not installed. Install the worker's packages "
            "(pip install 'embedq[worker]'), or set it to auto or torch."
        )
    ways = [] if compute == "torch" else [Way("openvino", name) for name in openvino]
    if compute != "openvino":
        ways.append(Way("torch", "float32"))
    wanted = tuple(way for way in ways if precision in {"auto", way.precision})
    if not wanted:
        possible = ", ".join(dict.fromkeys(way.precision for way in ways))
        raise ModelLoadError(
            f"EMBEDQ_PRECISION={precision} is not available with EMBEDQ_COMPUTE={compute} on this CPU (it has "
            f"{possible}). Set it to auto or float32."
        )
    return wanted
