"""Limits of parsing: time and memory for one document, and when a process is replaced."""

from dataclasses import dataclass

MAX_DOCUMENTS_PER_CHILD = 1000
"""Afterwards another process takes over: libraries in C leak a little."""
SPENT_BYTES = 384 * 2**20
"""A process of this size is replaced after the document for which it grew."""


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
        """Bytes of one document: they, its text and the structures of a library have to fit into the memory."""
        return self.memory_bytes // 4
