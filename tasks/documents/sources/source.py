"""The protocol of sources, and what they list: documents, faults and pages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tasks.document_error import DocumentError
from tasks.records.documents import Document
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


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a source.

    Attributes:
        documents: in the source's order, with ids that are unique within the page; behind them, as failed ones, entries
            that are no documents or cannot be read, with ids by which their owner can find them.
        cursor: beginning of the next page, JSON; None: this was the last page.
        size_bytes: of the part of the source that this page covers, for progress in bytes.
    """

    documents: Sequence[Document]
    cursor: Mapping[str, Any] | None
    size_bytes: int


@unshown("data", "text")
class Fetched(NamedTuple):
    """A document's content. Exactly one of `data` (a file's bytes), `text` (a record's) and `error` is set.

    Attributes:
        content_hash: 64 hexadecimal digits of SHA-256 over the bytes, or over text and metadata of a record; "" with an
            error. Metadata of files counts too: it is stored with the chunks.
    """

    ref: Document
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

    def read(self, refs: Sequence[Document]) -> Iterator[Fetched]:
        """The contents of documents of one page, in order. A document that is gone or too large has an error.

        Raises:
            StorageUnavailable: it does not answer now.
        """
