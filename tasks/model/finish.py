"""From the model's raw vector to the one that was asked for. Pure."""

import numpy as np

from tasks.model.types import EncodeOptions, Float32Array, ItemFailure, ModelInfo

_SMALLEST_NORM = 1e-12
"""As in torch.nn.functional.normalize: a zero vector stays zero."""


def check_options(options: EncodeOptions, info: ModelInfo) -> ItemFailure | None:
    """Why the model cannot serve these options; None when it can."""
    if options.dimensions is not None and not 1 <= options.dimensions <= info.dimension:
        return ItemFailure(
            "invalid_dimensions",
            f"dimensions is {options.dimensions}; this model's vectors have {info.dimension}. "
            f"Use 1 to {info.dimension}, or leave it out.",
        )
    if options.prompt_name is not None and options.prompt_name not in info.prompts:
        known = ", ".join(info.prompts) or "none"
        return ItemFailure("unknown_prompt", f"The model has no prompt of this name. Known prompts: {known}.")
    return None


def finish(raw: Float32Array, options: EncodeOptions) -> Float32Array | ItemFailure:
    """The vector float32 [d] as requested: cut first, then scaled, in the library's order.

    A non-finite component anywhere in the raw vector is a failure, never a result.
    """
    if not np.isfinite(raw).all():
        return ItemFailure("non_finite_vector", "The model gave a vector with NaN or infinite components.")
    # Copies: a view would keep the whole micro-batch alive.
    vector = raw[: options.dimensions].copy()
    if options.normalize:
        # In float64, because squares of large float32 components overflow.
        wide = vector.astype(np.float64)
        vector = (wide / max(float(np.sqrt(wide @ wide)), _SMALLEST_NORM)).astype(np.float32)
    return vector
