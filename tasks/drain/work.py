"""What a kind of work is to the loop: how much a claim of it may take, and what to do with one."""

from dataclasses import dataclass
from typing import Protocol

from tasks.ledger import Claim


class ClaimOnline(Protocol):
    """Takes what the online lane has, for work that stops for it between two steps; the claim may be empty."""

    def __call__(self, *, small_only: bool = False) -> Claim:
        """`small_only`: no large units, for work that has such ones itself."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimSize:
    """How much the next claim of a stream may take.

    Attributes:
        bulk_cost: of the bulk lane; at least one unit is taken, whatever it costs.
        online_cost: likewise.
        large_cost: of the online lane where its units are lists, each of which alone reaches `online_cost`; likewise.
        max_units: of one claim, however small.
        rate: cost that the stream does in a second, by which streams share what waits.
    """

    bulk_cost: int
    online_cost: int
    large_cost: int
    max_units: int
    rate: float


class Work(Protocol):
    """One kind of work, as one stream does it."""

    def claim_size(self, left_s: float, /) -> ClaimSize:
        """How much to claim when so many seconds are left of a slice; below 0: it is over, and goes on for others."""
        ...

    def __call__(self, claim: Claim, claim_online: ClaimOnline, /) -> bool:
        """Commits or gives back every unit of the claim; when Redis is away, as soon as it is back.

        False when something that the work needs is away, such as the storage.
        """
        ...
