"""Files that a source consists of, before anybody looks into them."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tasks.documents.faults import DocumentError
from tasks.documents.sources.content import Content


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or what is wrong where one should be.

    Attributes:
        key: to go on behind it; JSON.
        id: of the document, or the beginning of the ids of its records.
        place: to open it later; JSON.
    """

    key: Any
    id: str
    uri: str
    name: str
    size_bytes: int | None
    place: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    error: DocumentError | None = None

    def to_json(self) -> dict[str, Any]:
        """For a cursor; of an entry without error."""
        return asdict(self)


class Entries(Protocol):
    """Lists files in a fixed order and opens them."""

    def after(self, key: Any) -> Iterator[Entry]:
        """Those behind a key, all behind None. Raises `SourceFailed` and `StorageUnavailable`."""

    def open(self, place: Mapping[str, Any]) -> Content:
        """A file that was listed. Raises `DocumentFailed` and `StorageUnavailable`."""
