"""What can go wrong with the model as a whole. What goes wrong with one text is an `ItemFailure`, not an exception."""


class ModelLoadError(Exception):
    """The model cannot be served. The message names the setting and the fix; the worker exits with code 78."""


class WayUnusable(ModelLoadError):
    """One way of computing cannot serve this model; another one may."""


class EncoderBroken(Exception):
    """The device is lost for this process (CUDA after an illegal access, say): every further pass would fail.

    No text is to blame, so nothing may be committed; the process must be replaced.
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is the machine's or the device's memory running out, without importing torch to ask."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError is a RuntimeError; the CPU allocator raises a plain one that says "can't allocate memory".
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "allocate memory" in text)
