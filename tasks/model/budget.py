"""How many padded tokens go through the model in one forward pass?"""

_CPU_TOKENS = 1024
"""Small, so that the activations of a pass stay in the cache: with 8,192 both passages and queries cost a quarter more
time on the processor; 512 starts too many passes."""

_CUDA_TOKENS = 16_384
"""A card needs thousands of tokens at once before its cores are the limit."""


def default_budget(device: str) -> int:
    """The budget for a torch device name, for models of the size that people serve on it."""
    return _CUDA_TOKENS if device.startswith("cuda") else _CPU_TOKENS
