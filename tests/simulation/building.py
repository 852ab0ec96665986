"""Short ways to say what a test brings and what is served."""

from collections.abc import Callable
from typing import Any

from tests.simulation.thin_client import Claim, Ledger, NewTask

Pieces = list[tuple[int, int, bytes]]


def sized(cost: int, items: int = 1, number: int = 1) -> Pieces:
    """So many equal pieces."""
    return [(items, cost, b"[]")] * number


def tasks(prefix: str, number: int, **how: Any) -> list[NewTask]:
    """So many equal tasks, whose ids are in their order."""
    return [NewTask(f"{prefix}{n:04d}", **how) for n in range(number)]


def drain(
    ledger: Ledger,
    rounds: int,
    budget: int,
    *,
    stream: str = "w/0",
    then: Callable[[Claim], None] = lambda _: None,
    **how: Any,
) -> list[tuple[str, str, int]]:
    """Claims and commits; what was served: task, owner and cost of each piece."""
    served: list[tuple[str, str, int]] = []
    for n in range(rounds):
        claim = ledger.claim(stream, f"{stream}/d{ledger.now}.{n}.{len(served)}", budget=budget, **how)
        if not claim.pieces:
            break
        served += [(piece.task, piece.owner, piece.cost) for piece in claim.pieces]
        ledger.finish(claim)
        then(claim)
    return served


def names(served: list[tuple[str, str, int]]) -> list[str]:
    """The tasks of what was served, in their order."""
    return [task for task, _, _ in served]


def counting(prefix: str) -> Callable[[], str]:
    """Another token or id with each call."""
    seen: list[None] = []

    def another() -> str:
        seen.append(None)
        return f"{prefix}{len(seen):05d}"

    return another


def written(ledger: Ledger, call: Callable[[], object]) -> int:
    """How many keys a call has changed: each such write is an fsync for everybody."""
    before = ledger.redis.info("persistence")["rdb_changes_since_last_save"]
    call()
    return int(ledger.redis.info("persistence")["rdb_changes_since_last_save"]) - int(before)
