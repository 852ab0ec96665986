"""Turns by cost: how far one of those who wait may get ahead of another."""

from collections.abc import Iterable
from itertools import combinations


class Turns:
    """Cost served to each pair, counted from the moment at which both began to wait until one no longer does."""

    def __init__(self) -> None:
        self._leads: dict[tuple[str, str], int] = {}

    def served(self, name: str, cost: int) -> None:
        """`name` got `cost`."""
        for pair in self._leads:
            if name in pair:
                self._leads[pair] += cost if name == pair[0] else -cost

    def waiting(self, names: Iterable[str]) -> None:
        """These wait now, and nobody else."""
        pairs = combinations(sorted(names), 2)
        self._leads = {pair: self._leads.get(pair, 0) for pair in pairs}

    def largest_lead(self) -> int:
        """Between any two that have waited all the time."""
        return max((abs(lead) for lead in self._leads.values()), default=0)
