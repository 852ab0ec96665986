"""Pages of an ingestion that are listed and not begun."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """A page that was listed and not begun; `fence` is that of its manifest."""

    number: int
    fence: str
    documents: int
    size_bytes: int

    def to_text(self) -> str:
        """As it stands in the list of waiting pages."""
        return f"{self.number} {self.fence} {self.documents} {self.size_bytes}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Inverse of `to_text`."""
        number, fence, documents, size_bytes = text.split(" ")
        return cls(int(number), fence, int(documents), int(size_bytes))
