"""How many padded tokens go through the model in one forward pass?"""

_CPU_TOKENS = 1024
"""Small, so that the activations of a pass stay in the cache. Processor time beside this budget, passages and queries:
512 1.04 and 1.13, 2,048 0.93 to 1.02 and 1.01 to 1.15, 4,096 1.09 and 1.25, 8,192 1.18 and 1.49. Of the two that are
level the smaller one, because urgent texts wait for the end of a pass. With two streams of one thread, passages per
second: 512 152 to 158, 768 161 to 169, 1,024 166 to 175, 1,536 168 to 179, 2,048 167 to 175."""

_CUDA_TOKENS = 16_384
"""A card needs thousands of tokens at once before its cores are the limit. An estimate, not a measurement."""


def default_budget(device: str) -> int:
    """For a torch device name; suits models that people serve on such a device."""
    if device.startswith("cuda"):
        return _CUDA_TOKENS
    return _CPU_TOKENS
