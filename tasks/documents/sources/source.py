"""What every source of documents does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from tasks.documents.document_error import DocumentError

PAGE_FILES = 64
PAGE_FILE_BYTES = 4 * 2**20
"""A page of files ends with the file that reaches either; one larger file is a page of its own."""
PAGE_RECORDS = 1024
PAGE_RECORD_BYTES = 2 * 2**20
"""A page of records ends likewise."""
MAX_ID_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PageLimits:
    """When a page is full: as many files or records as this, or as many bytes of either."""

    files: int = PAGE_FILES
    file_bytes: int = PAGE_FILE_BYTES
    records: int = PAGE_RECORDS
    record_bytes: int = PAGE_RECORD_BYTES


FULL_PAGE = PageLimits()


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """A document as it was listed: enough to read it later, in another process.

    Attributes:
        id: the document's own, unique within its job.
        uri: where it came from, as shown to its owner.
        name: a file's name, whose ending helps to tell its type; "" for a record, which is text already.
        size_bytes: if known before reading; None otherwise.
        place: the source's own notes on where it is; JSON.
        metadata: the owner's, goes with each of its chunks; JSON.
        origin: the file among whose records the id is unique; "" for one that is unique by itself, such as a path.
    """

    id: str
    uri: str
    name: str
    size_bytes: int | None
    place: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a manifest."""
        return {
            "id": self.id,
            "uri": self.uri,
            "name": self.name,
            "size": self.size_bytes,
            "place": dict(self.place),
            "metadata": dict(self.metadata),
            **({"origin": self.origin} if self.origin else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        origin = values.get("origin", "")
        return cls(
            values["id"], values["uri"], values["name"], values["size"], values["place"], values["metadata"], origin
        )


@dataclass(frozen=True, slots=True)
class ListedFault:
    """An entry of a source that is no document: a malformed line, a link that leads in a circle."""

    id: str
    uri: str
    error: DocumentError


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a source.

    Attributes:
        documents: in the source's order; ids are unique within the page.
        faults: what could not become a document, with an id that names it well enough to find it.
        cursor: where the next page begins, JSON; None: this was the last page.
        size_bytes: of the source that this page covers, for progress in bytes.
    """

    documents: Sequence[DocumentRef]
    faults: Sequence[ListedFault]
    cursor: Mapping[str, Any] | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document's content. Exactly one of `data` (a file's bytes), `text` (a record's) and `error` is set.

    Attributes:
        content_hash: 64 hexadecimal digits of SHA-256 over the bytes, or over text and metadata of a record; "" with an
            error. Metadata of files counts too: it is stored with the chunks.
    """

    ref: DocumentRef
    content_hash: str
    data: bytes | None = None
    text: str | None = None
    error: DocumentError | None = None


class Source(Protocol):
    """Lists and reads documents. Constant memory, whatever its size."""

    def page(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page at a cursor, the first one at None. Of the same source, the same cursor gives the same page.

        Raises:
            SourceFailed: the job cannot go on: what it names is gone, or is not what it says.
            StorageUnavailable: it does not answer now.
        """

    def read(self, refs: Sequence[DocumentRef]) -> Iterator[Fetched]:
        """Content of documents of one page, one by one and in order; one that is gone or too large has an error.

        Raises:
            StorageUnavailable: it does not answer now.
        """
