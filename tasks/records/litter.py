"""What may lie in the storage and is needed no more: the entries that records leave for the sweep.

A script that ends a batch or an ingestion, or removes a record, writes an entry with it. It is due a minute later, so
that a Redis that goes back by less has lost no object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tasks.ledger.scripts import Operation


@dataclass(frozen=True, slots=True)
class Litter:
    """One entry.

    Attributes:
        name: stored name of a file, or the folder of a job with a slash at the end.
        owner: whose it is.
    """

    name: str
    owner: str

    @property
    def entry(self) -> str:
        """As it stands in Redis."""
        return f"{self.name} {self.owner}"

    @classmethod
    def from_entry(cls, entry: str) -> Self:
        """Inverse of `entry`."""
        name, _, owner = entry.partition(" ")
        return cls(name, owner)

    @property
    def job_id(self) -> str:
        """Of the batch or ingestion; "" for a file."""
        return self.name.split("/")[1] if self.name.endswith("/") else ""


def due_litter(limit: int) -> Operation[list[Litter]]:
    """Up to `limit` entries that are due, the oldest first.

    Promised: where a replica does not know of the ends yet, nothing is deleted because of them.
    """

    def read(reply: Sequence[bytes]) -> list[Litter]:
        return [Litter.from_entry(entry.decode()) for entry in reply]

    return Operation(read, "litter_read", "", (limit,), promised=True)


def litter_done(litter: Litter, *, again_s: float = 0.0) -> Operation[bool]:
    """What an entry led to is deleted. `again_s`: it could not be deleted, and is due again so much later.

    Whether it is gone. One that was made anew meanwhile stays.
    """
    return Operation(bool, "litter_done", "", (litter.entry, int(again_s * 1000)))
