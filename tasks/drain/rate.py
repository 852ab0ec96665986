"""How fast a stream is, in estimated tokens per second: claims are sized by it and backlogs measured in it."""

from tasks.drain.lanes import ONLINE_PER_BULK
from tasks.drain.work import ClaimSize

MAX_UNITS_PER_CLAIM = 512

ONLINE_CLAIM_S = 0.1
"""Of work in one claim of small units of the online lane, and no more than a unit. Less than of bulk work, as the first
text of a claim waits for its last one. The other streams take the rest."""
LARGE_UNITS = 4
"""Of full size in one claim of large units of the online lane. Small ones do not wait for its end, other large ones do.
Lists of 32 passages from 8 callers, medians of five rounds: 67.5 passages/s with 2, 73.5 with 4, 74.4 with 6, 69.8 with
10."""

BULK_UNITS = 24
"""Of full size in one claim of the bulk lane. With more texts to sort passes are fuller and padded less: 44 passages at
a time took 3 % longer than 88 and 12 a seventh longer than 128, and an ingestion with claims of 8 units 7 % longer than
with 24 that shrink, in longer slices."""
BULK_UNITS_BESIDE_URGENT = 8
"""The same while urgent texts come. They do not wait for a claim, but it then lasts up to eight times as long, and its
stream does nothing else."""

_WEIGHT = 0.2
_FULL_S, _SLOW_S = 0.05, 0.25


class MeasuredRate:
    """A moving average over claims that kept the machine busy.

    A lone query says nothing about the speed of the machine: its claim is mostly overhead, so claims of less than 50 ms
    are ignored. One that is small and took a quarter of a second is not: the rate was too high.
    """

    def __init__(self, tokens_per_s: float) -> None:
        self.tokens_per_s = max(tokens_per_s, 1.0)

    def measured(self, cost: int, seconds: float) -> None:
        """Texts of `cost` estimated tokens went through the model in `seconds`.

        Only texts that did: equal ones are encoded once, refused ones never, and neither makes a machine faster.
        """
        if cost <= 0 or seconds <= 0 or (cost < _FULL_S * self.tokens_per_s and seconds < _SLOW_S):
            return
        self.tokens_per_s += _WEIGHT * (cost / seconds - self.tokens_per_s)
        self.tokens_per_s = max(self.tokens_per_s, 1.0)

    def claim_size(self, left_s: float, unit_s: float, *, urgent: bool) -> ClaimSize:
        """How much to claim when so many seconds are left of a slice, where a unit holds up to `unit_s` of work.

        No more of bulk work than fits into the slice, and one unit in any case: a slice ends for all streams with the
        claim that ends last. `urgent`: texts that cannot wait are to be expected.
        """
        most_s = max(left_s, unit_s)
        return ClaimSize(
            bulk_cost=self._cost(min(most_s, bulk_claim_s(unit_s, urgent=urgent))),
            online_cost=self.online_cost(unit_s),
            large_cost=self._cost(min(most_s, LARGE_UNITS * unit_s)),
            max_units=MAX_UNITS_PER_CLAIM,
            rate=self.tokens_per_s,
        )

    def online_cost(self, unit_s: float) -> int:
        """Of a claim of the online lane, unless its units are large."""
        return self._cost(min(ONLINE_CLAIM_S, unit_s))

    def _cost(self, seconds: float) -> int:
        return max(1, int(self.tokens_per_s * seconds))


def bulk_claim_s(unit_s: float, *, urgent: bool = False) -> float:
    """How much work one claim of the bulk lane may hold, in seconds."""
    return (BULK_UNITS_BESIDE_URGENT if urgent else BULK_UNITS) * unit_s


def longest_claim_s(unit_s: float) -> float:
    """How long a claim of bulk work may last where urgent texts begin to come when it is taken, in seconds.

    One that lasts longer, because its texts are far longer than the model's maximum, is given back where it is.
    """
    return (1 + ONLINE_PER_BULK) * bulk_claim_s(unit_s)
