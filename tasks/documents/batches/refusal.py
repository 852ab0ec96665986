"""A line whose body the endpoint would refuse, and what stands in its place in the batch's copy of the file. Pure.

A request is a JSON object, a refusal a JSON array: so the one cannot be taken for the other, and a worker that meets a
refusal finds no texts in it.
"""

from dataclasses import astuple, dataclass
from typing import Self

import orjson

from tasks.ledger.parts import RowError


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line that is answered without work: the caller's own id, and what the endpoint would have answered."""

    custom_id: str
    error: RowError

    def to_line(self) -> bytes:
        """Without its line break."""
        return orjson.dumps([self.custom_id, *astuple(self.error)])

    @classmethod
    def of_line(cls, line: bytes) -> Self | None:
        """Inverse of `to_line`; None for a request."""
        if not line.startswith(b"["):
            return None
        custom_id, *error = orjson.loads(line)
        return cls(custom_id, RowError(*error))
