"""What every format of files with many documents in them does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.documents.document_error import DocumentError
from tasks.documents.sources.content import Content
from tasks.documents.sources.record_fields import Described

LIMIT_SETTING = "EMBEDQ_INGEST_MAX_RECORD_BYTES"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
        number: as its owner would count, from 1.
        document: what it says of itself; None with an error.
        size_bytes: in memory, roughly.
        source_bytes: that it takes up in the file.
        place: to read it again; JSON.
        then: where the next one begins; JSON.
    """

    number: int
    document: Described | None
    size_bytes: int
    source_bytes: int
    place: Any
    then: Any
    error: DocumentError | None = None


class RecordFormat(Protocol):
    """Lists the records of one file, and reads some of them again. Constant memory, but for one record."""

    def records(self, content: Content, key: str, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """Those from a position on, all at None. `key` names the file, for what is kept between pages.

        Raises:
            DocumentFailed: the file is not what it seems.
        """

    def again(
        self, content: Content, key: str, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """The texts of records by their places, in order, in as few reads as may be. Raises `DocumentFailed`."""
