"""The protocol of sources, and what they list: documents, faults and pages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from tasks.documents.document_error import DocumentError
from tasks.unshown import unshown

PAGE_FILES = 64
PAGE_FILE_BYTES = 4 * 2**20
"""A page of files ends with the file that reaches one of the two. A larger file is a page of its own."""
PAGE_RECORDS = 2048
PAGE_RECORD_BYTES = 2 * 2**20
"""A page of records ends in the same way."""
MAX_ID_BYTES = 1024


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The limits of one page: files, their bytes, records, their bytes."""

    files: int = PAGE_FILES
    file_bytes: int = PAGE_FILE_BYTES
    records: int = PAGE_RECORDS
    record_bytes: int = PAGE_RECORD_BYTES


FULL_PAGE = PageLimits()


_NO_METADATA: Mapping[str, Any] = MappingProxyType({})


@unshown("place", "record", "metadata")
class DocumentRef(NamedTuple):
    """A document as it was listed, with all that another process needs to read it later.

    Attributes:
        id: unique within its job.
        uri: where it came from, as shown to its owner.
        name: of the file, whose ending helps to tell its type; "" for a record, which is text already.
        size_bytes: None if it is not known before reading.
        place: the source's own notes on where its file is; JSON, one object for all records of a file.
        record: the same on where it is in this file; JSON.
        metadata: of its owner, stored with each of its chunks; JSON.
        origin: the file within which the id of a record is unique; "" for an id that is unique by itself, as a path is.
    """

    id: str
    uri: str
    name: str
    size_bytes: int | None
    place: Mapping[str, Any]
    record: Any = None
    metadata: Mapping[str, Any] = _NO_METADATA
    origin: str = ""

    def to_json(self) -> dict[str, Any]:
        """To be read later, by itself."""
        return {
            "id": self.id,
            "uri": self.uri,
            "name": self.name,
            "size": self.size_bytes,
            "place": dict(self.place),
            "record": self.record,
            "metadata": dict(self.metadata),
            **({"origin": self.origin} if self.origin else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls(
            values["id"],
            values["uri"],
            values["name"],
            values["size"],
            values["place"],
            values["record"],
            values["metadata"],
            values.get("origin", ""),
        )


@dataclass(frozen=True, slots=True)
class ListedFault:
    """An entry of a source that is not a document, such as a malformed line or a link that leads in a circle."""

    id: str
    uri: str
    error: DocumentError


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a source.

    Attributes:
        documents: in the source's order; ids are unique within the page.
        faults: entries that are not documents, with ids by which their owner can find them.
        cursor: beginning of the next page, JSON; None: this was the last page.
        size_bytes: of the part of the source that this page covers, for progress in bytes.
    """

    documents: Sequence[DocumentRef]
    faults: Sequence[ListedFault]
    cursor: Mapping[str, Any] | None
    size_bytes: int


@unshown("data", "text")
class Fetched(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class SourceRoot:
    """One of the places that a request names.

    Attributes:
        param: where the request names it.
        uri: how URIs of what is listed there begin, or the URI itself.
        document_id: the same of ids, as far as a file is one document.
    """

    param: str
    uri: str
    document_id: str

    @staticmethod
    def holds(place: str, name: str) -> bool:
        """Whether a URI or an id is that of a place, or of something below it."""
        return name == place or name.startswith((f"{place.rstrip('/')}/", f"{place}#"))


class Source(Protocol):
    """Lists and reads documents. Its memory does not grow with the source."""

    def page(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page at a cursor; None: the first page. The same cursor on the same source gives the same page.

        Raises:
            SourceFailed: the job cannot continue, because something that it names is gone, or is of another kind.
            StorageUnavailable: it does not answer now.
        """

    def roots(self) -> Sequence[SourceRoot]:
        """Places of which each is expected to list something; none where documents are named one by one."""

    def read(self, refs: Sequence[DocumentRef]) -> Iterator[Fetched]:
        """The contents of documents of one page, in order. A document that is gone or too large has an error.

        Raises:
            StorageUnavailable: it does not answer now.
        """
