"""What one document may cost."""

from dataclasses import dataclass

MAX_DOCUMENTS_PER_CHILD = 1000
"""Afterwards another process takes over: libraries in C leak a little."""
SPENT_BYTES = 384 * 2**20
"""A process that has grown to this is replaced after the document that made it grow."""


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Settings of parsing.

    Attributes:
        timeout_s: of wall time for one document.
        memory_bytes: of address space of the process that parses.
    """

    timeout_s: float = 60
    memory_bytes: int = 2**30

    @property
    def source_bytes(self) -> int:
        """Of one document: its bytes, its text and what a library makes of both have to fit."""
        return self.memory_bytes // 4
