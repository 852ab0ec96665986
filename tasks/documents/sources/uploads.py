"""Uploaded files that a request names one by one."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, overload

import orjson

from tasks.datasets.loads import EVERYTHING
from tasks.documents.sources.access import SourceAccess
from tasks.documents.sources.content import StoredContent, gone
from tasks.documents.sources.file_source import Entry
from tasks.documents.sources.source import SourceRoot
from tasks.errors import NotStored, SourceFailed
from tasks.storage.storage import Storage


class Uploads:
    """`{"files": [id or {"id", "document_id", "metadata"}]}`. A file that was deleted meanwhile is a fault."""

    def __init__(self, files: Sequence[Any], access: SourceAccess) -> None:
        self._files = files
        self._access = access

    def after(self, key: Any) -> Iterator[Entry]:
        """See `Entries`; the key is the place in the request."""
        for number in range(0 if key is None else key + 1, len(self._files)):
            file = self._files[number]
            if not isinstance(file, Mapping):
                file = {"id": file}
            yield self._entry(number, str(file["id"]), file.get("document_id"), file.get("metadata") or {})

    def open(self, place: Mapping[str, Any]) -> StoredContent:
        """See `Entries`."""
        record = self._access.files.get(place["file"])
        if record is None:
            raise gone()
        return StoredContent(self._access.storage, record.stored, record.size_bytes)

    def roots(self) -> Sequence[SourceRoot]:
        """See `Source.roots`: each file is named."""
        return ()

    def _entry(self, number: int, file_id: str, document_id: str | None, metadata: Mapping[str, Any]) -> Entry:
        place = {"file": file_id}
        record = self._access.files.get(file_id)
        if record is None:
            error, name = gone().error, document_id or file_id
            return Entry(number, name, f"file:{file_id}", "", None, place, metadata, error, part=EVERYTHING)
        uri = f"file:{file_id}/{record.filename}"
        name = document_id or record.filename or file_id
        return Entry(number, name, uri, record.filename, record.size_bytes, place, metadata, part=EVERYTHING)


class StoredList(Sequence[Any]):
    """A JSON list in the storage, read at the first use of an element, because most jobs of an ingestion use none.

    Its length is known without reading. Using an element raises `SourceFailed`, naming `param`, or
    `StorageUnavailable`.
    """

    def __init__(self, storage: Storage, name: str, length: int, param: str) -> None:
        self._storage = storage
        self._name = name
        self._length = length
        self._param = param

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._items[index]

    @cached_property
    def _items(self) -> list[Any]:
        try:
            items: list[Any] = orjson.loads(self._storage.read(self._name))
        except NotStored:
            message = "The list of what the request named is no longer in the storage."
            raise SourceFailed(message, param=self._param) from None
        return items
