"""Which device, and which precision on it?"""

from dataclasses import dataclass

from tasks.model.errors import ModelLoadError


@dataclass(frozen=True, slots=True)
class Placement:
    """A torch device name and the name of a torch dtype."""

    device: str
    precision: str


def place(device: str, precision: str) -> Placement:
    """The settings `EMBEDQ_DEVICE` and `EMBEDQ_PRECISION` with `auto` resolved on this machine.

    Raises:
        ModelLoadError: the device is not there, or cannot compute in this precision.
    """
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    cuda_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return choose(device, precision, cuda_devices)


def choose(device: str, precision: str, cuda_devices: int) -> Placement:
    """The decision of `place`, given the number of CUDA devices."""
    if device == "auto":
        device = "cuda" if cuda_devices else "cpu"
    if device == "cpu":
        if precision not in {"auto", "float32"}:
            raise ModelLoadError(
                f"EMBEDQ_PRECISION={precision} is not available with torch on the CPU. Set it to auto or float32."
            )
        return Placement("cpu", "float32")
    index = int(device.partition(":")[2] or 0)
    if index >= cuda_devices:
        raise ModelLoadError(
            f"EMBEDQ_DEVICE={device}: torch sees {cuda_devices} CUDA devices here. "
            "Set it to cpu or auto, or give this machine or container a GPU and a torch built for CUDA."
        )
    return Placement(f"cuda:{index}", "float16" if precision == "auto" else precision)
