"""The protocol of formats whose files hold many documents: JSON lines, CSV, Parquet."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from tasks.document_error import DocumentError
from tasks.documents.sources.content import Content
from tasks.documents.sources.record_fields import Described

LIMIT_SETTING = "EMBEDQ_INGEST_MAX_RECORD_BYTES"


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        number: as its owner would count, from 1.
        document: its description; None with an error.
        size_bytes: approximate size in memory.
        source_bytes: its bytes in the file.
        place: with which it is read again; JSON.
        then: position of the next record; JSON.
    """

    number: int
    document: Described | None
    size_bytes: int
    source_bytes: int
    place: Any
    then: Any
    error: DocumentError | None = None


class RecordFormat(Protocol):
    """Lists the records of one file, and reads some of them again. Memory is bounded by one record."""

    def records(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """The records from a position on, all of them for None.

        Raises:
            DocumentFailed: the file is not of this format.
        """

    def again(
        self, content: Content, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """The texts of records at these places, in order, in as few reads as possible. Raises `DocumentFailed`."""
