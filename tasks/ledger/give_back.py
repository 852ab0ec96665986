"""A claim goes back without an outcome: `lua/give_back.lua`."""

from tasks.ledger.scripts import Operation


def give_back(queue: str, token: str, *, blame: bool = False) -> Operation[bool]:
    """Gives back what a claim still holds. True: the caller must send a bell.

    `blame`: its worker died of it, or its work failed and no text can be named. The pieces come back in parts, each to
    be run alone. Otherwise they are as they were: the worker stops, nothing was wrong.
    """
    return Operation(bool, "give_back", queue, (token, int(blame)))
