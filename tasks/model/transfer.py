"""Arrays to a device and vectors back: at once on the CPU, without waiting on a card."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasks.model.encoder import EncoderBroken, Float32Array


class Transfer(Protocol):
    """The way to a device and back.

    Attributes:
        waits: False: what is asked of the device is done later, and `collect` gives a wait for it.
        attention: see `tasks.model.unpadded.Attention`; None: the device has none.
    """

    waits: bool
    attention: Callable[..., Any] | None

    def send(self, array: npt.NDArray[Any]) -> Any:
        """A tensor on the device."""
        ...

    def collect(self, vectors: Any) -> Callable[[], Float32Array]:
        """What gives these vectors, of any floating point type, when the device has computed them; once."""
        ...


class OnCpu:
    """Nothing is under way."""

    waits = True
    attention: Callable[..., Any] | None = None

    def send(self, array: npt.NDArray[Any]) -> Any:
        """The same memory."""
        import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

        return torch.from_numpy(array)

    def collect(self, vectors: Any) -> Callable[[], Float32Array]:
        """A copy, because without pooling this is memory that the next pass writes over."""
        copy = np.array(vectors.float().numpy(), dtype=np.float32)
        return lambda: copy


class OnCard:
    """Both ways through pinned memory: only then a copy does not wait for everything that the card was asked before.

    torch keeps such memory for the next pass, and gives it to nobody while a copy still uses it.

    Args:
        device: a torch device, of a card.
    """

    waits = False

    def __init__(self, device: Any) -> None:
        self._device = device
        self.attention: Callable[..., Any] | None = None
        with suppress(ImportError):  # a torch before 2.10 has none
            from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - see OnCpu

            self.attention = varlen_attn

    def send(self, array: npt.NDArray[Any]) -> Any:
        """See `Transfer.send`."""
        import torch  # noqa: PLC0415 - see OnCpu

        return torch.from_numpy(array).pin_memory().to(self._device, non_blocking=True)

    def collect(self, vectors: Any) -> Callable[[], Float32Array]:
        """See `Transfer.collect`. Other threads run while one waits."""
        import torch  # noqa: PLC0415 - see OnCpu

        here = torch.empty(vectors.shape, dtype=torch.float32, pin_memory=True)
        here.copy_(vectors.float(), non_blocking=True)
        copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(self._device))

        def wait() -> Float32Array:
            copied.synchronize()
            return np.array(here.numpy(), dtype=np.float32)

        return wait


@contextmanager
def device_errors() -> Iterator[None]:
    """Tells a device that is lost from one that is full.

    Raises:
        EncoderBroken: it is lost.
    """
    import torch  # noqa: PLC0415 - see OnCpu

    try:
        yield
    except torch.AcceleratorError as error:
        if "out of memory" in str(error):
            raise
        raise EncoderBroken("the accelerator failed; this process cannot use it any more") from error
