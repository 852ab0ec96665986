"""What is there to compute with? Asks torch and OpenVINO."""

import logging

from tasks.model.compiled import cpu_precisions
from tasks.model.device import Machine

_log = logging.getLogger(__name__)


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
        _log.warning("OpenVINO is not here (%s); on a CPU it is several times faster than torch", error)
        return ()
