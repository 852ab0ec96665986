"""How many padded tokens go through the model in one forward pass?"""

from dataclasses import dataclass
from typing import Self

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


URGENT_WAIT_S = 0.08
"""A pass of bulk work should not take longer: an urgent text waits for its end. Two in a row are well within the 200 ms
that a query may take beside bulk work, on a machine of any speed."""
QUIET_WAIT_S = 2 * URGENT_WAIT_S
"""The same while nobody sends urgent texts: the first one waits once. On a processor where a pass of 512 tokens takes
0.08 s, bulk work with 1,024 is 2 to 5 % faster."""
_LEAST_TOKENS = 512
"""With fewer, the texts of a pass differ more in length, and it costs more than it takes off a wait."""


@dataclass(frozen=True, slots=True)
class PassBudget:
    """Padded tokens of one pass.

    Attributes:
        most: what suits the device, or what its operator set.
        bounded: whether a pass of bulk work should not take long.
    """

    most: int
    bounded: bool = False

    @classmethod
    def of(cls, device: str, chosen: int | None) -> Self:
        """For a torch device name, or as `chosen` by the operator, who means it."""
        return cls(default_budget(device), bounded=True) if chosen is None else cls(chosen)

    def bulk(self, tokens_per_s: float, *, urgent: bool) -> int:
        """Of bulk work, on a stream of this speed. `urgent`: texts that cannot wait are to be expected."""
        if not self.bounded:
            return self.most
        return min(self.most, max(_LEAST_TOKENS, int(tokens_per_s * (URGENT_WAIT_S if urgent else QUIET_WAIT_S))))
