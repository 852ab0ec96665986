"""How fast this worker is, in estimated tokens per second: what claims are sized by and backlogs are measured in."""

_WEIGHT = 0.2


class Rate:
    """A moving average over claims that filled the machine.

    A lone query says nothing about what the machine can do: its claim is mostly overhead, so small claims are ignored.
    """

    def __init__(self, tokens_per_s: float) -> None:
        self.tokens_per_s = max(tokens_per_s, 1.0)

    def measured(self, cost: int, seconds: float, *, budget: int) -> None:
        """A claim of `cost` estimated tokens took `seconds`; `budget` is what it could have held."""
        if 2 * cost < budget or seconds <= 0:
            return
        self.tokens_per_s += _WEIGHT * (cost / seconds - self.tokens_per_s)
        self.tokens_per_s = max(self.tokens_per_s, 1.0)

    def budget(self, seconds: float) -> int:
        """Estimated tokens that take about `seconds`."""
        return max(1, int(self.tokens_per_s * seconds))
