"""Documents that came with the request itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from tasks.datasets.loads import EVERYTHING
from tasks.document_error import DocumentFailed
from tasks.documents.sources.access import SourceAccess
from tasks.documents.sources.content import gone
from tasks.documents.sources.file_source import record_hash
from tasks.documents.sources.page import PageBuilder
from tasks.documents.sources.record_fields import FieldMap, listing_error
from tasks.documents.sources.source import Fetched, ListedPage, SourceRoot
from tasks.errors import NotStored, SourceFailed
from tasks.records.documents import Document

_FIELDS = FieldMap(id="id", text=("text",))


class Inline:
    """`{"documents": [{"id", "text", "metadata"}]}`, kept in the storage as a JSON list; a request's body at most."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access
        self._documents: Sequence[Any] | None = None
        self._first: dict[str, int] = {}

    def page(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """See `Source`."""
        documents = self._load()
        page = PageBuilder(self._access.page)
        for number in range(cursor["after"] if cursor else 0, len(documents)):
            if page.full:
                return page.listed({"after": number})
            self._list(page, number, documents[number])
        return page.listed(None)

    def roots(self) -> Sequence[SourceRoot]:
        """See `Source`: each document is named."""
        return ()

    def read(self, refs: Sequence[Document]) -> Iterator[Fetched]:
        """See `Source`."""
        try:
            documents = self._load()
        except SourceFailed:
            yield from (Fetched(ref, "", error=gone().error) for ref in refs)
            return
        for ref in refs:
            text = _FIELDS.text_of(documents[ref.record])
            yield Fetched(ref, record_hash(text, ref.metadata), text=text)

    def _list(self, page: PageBuilder, number: int, document: Any) -> None:
        document_id = f"#{number + 1}"
        uri = f"inline:{document_id}"
        if not isinstance(document, Mapping):
            error = listing_error("malformed_record", "The document is not a JSON object.")
            page.add_fault(document_id, uri, error, part=EVERYTHING)
            return
        try:
            document_id = _FIELDS.id_of(document) or document_id
            # Two documents with one id are told apart by their places.
            again = self._first.setdefault(document_id, number) != number
            uri = f"inline:{document_id}#{number + 1}" if again else f"inline:{document_id}"
        except DocumentFailed as failed:
            page.add_fault(document_id, uri, failed.error, part=EVERYTHING)
            return
        try:
            size_bytes = len(_FIELDS.text_of(document).encode())
            metadata = _FIELDS.metadata_of(document)
        except DocumentFailed as failed:
            page.add_failed(document_id, uri, failed.error)
            return
        page.add_record(Document(document_id, uri, size_bytes=size_bytes, record=number, metadata=metadata), size_bytes)

    def _load(self) -> Sequence[Any]:
        if self._documents is None:
            try:
                data = self._access.storage.read(self._access.inline or "missing")
            except NotStored:
                message = "The documents of the request are no longer in the storage."
                raise SourceFailed(message, param="source.documents") from None
            self._documents = orjson.loads(data)
        return self._documents or ()
