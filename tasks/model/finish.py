"""From the model's raw vector to the one that was asked for. Pure."""

import numpy as np

from tasks.model.types import EncodeOptions, Float32Array, ItemFailure, ModelInfo

NON_FINITE = ItemFailure("non_finite_vector", "The model gave a vector with NaN or infinite components.")
"""A vector like this is never a result, also when the component at fault would be cut off."""

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


def finish(raw: Float32Array, options: EncodeOptions) -> Float32Array:
    """Raw vectors [n, d] as requested, float32 [n, dimensions]: cut first, then scaled, in the library's order."""
    # A copy: a view would keep the raw vectors alive.
    vectors = raw[:, : options.dimensions].copy()
    if not options.normalize:
        return vectors
    # In float64, because squares of large float32 components overflow.
    wide = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    scaled: Float32Array = (wide / np.maximum(norms, _SMALLEST_NORM)[:, None]).astype(np.float32)
    return scaled
