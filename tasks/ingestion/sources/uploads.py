"""What a request names one by one: uploaded files, and documents in the request itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from tasks.datasets.loads import EVERYTHING
from tasks.document_error import DocumentFailed
from tasks.errors import NotStored, SourceFailed
from tasks.ingestion.sources.allowed_paths import name_of, shown
from tasks.ingestion.sources.content import StoredContent, gone, not_sent
from tasks.ingestion.sources.source import Entries, Entry, SourceAccess


def read_listed(access: SourceAccess, param: str) -> list[Any]:
    """What the request lists, which is kept as JSON lines. Raises `SourceFailed` and `StorageUnavailable`."""
    try:
        return [orjson.loads(line) for line in access.storage.read(access.listed).splitlines()]
    except NotStored:
        raise _no_list(param) from None


class Uploads(Entries):
    """`{"files": [id, {"id", "document_id", "metadata"} or {"sha256", "document_id"}]}`.

    A file that was deleted meanwhile is a fault. One with `sha256` was not sent: its owner takes it to be unchanged.

    Args:
        listed: gives them.
        access: what may be used.
    """

    def __init__(self, listed: Callable[[], Sequence[Any]], access: SourceAccess) -> None:
        self._listed, self._access = listed, access

    def after(self, key: Any) -> Iterator[Entry]:
        """See `Entries`; the key is the place in the request."""
        files = self._listed()
        for number in range(0 if key is None else key + 1, len(files)):
            file = files[number] if isinstance(files[number], Mapping) else {"id": files[number]}
            if "sha256" in file:
                called, place = file["document_id"], {"sha256": file["sha256"]}
                yield Entry(
                    number, called, f"sha256:{file['sha256']}/{shown(called)}", called, place=place, part=EVERYTHING
                )
            else:
                yield self._entry(number, str(file["id"]), file.get("document_id"), file.get("metadata") or {})

    def open(self, place: Mapping[str, Any]) -> StoredContent:
        """See `Entries`."""
        if "sha256" in place:
            raise not_sent()
        record = self._access.files.get(place["file"])
        if record is None:
            raise gone()
        return StoredContent(self._access.storage, record.stored, record.size_bytes)

    def _entry(self, number: int, file_id: str, document_id: str | None, metadata: Mapping[str, Any]) -> Entry:
        record = self._access.files.get(file_id)
        if record is None:
            called = document_id or file_id
            return Entry(number, called, f"file:{file_id}", error=gone().error, part=EVERYTHING)
        name = record.filename
        called = document_id or name_of(name) or file_id
        uri = f"file:{file_id}/{shown(name)}"
        return Entry(number, called, uri, name, record.size_bytes, {"file": file_id}, metadata, part=EVERYTHING)


class Documents(Entries):
    """`{"documents": [{"id", "text", "metadata"}]}`, kept as JSON lines: a file of records like any other."""

    def __init__(self, access: SourceAccess) -> None:
        self._access = access

    def after(self, key: Any) -> Iterator[Entry]:
        """See `Entries`."""
        if key is None:
            place = {"plain": True}
            try:
                size_bytes = self.open(place).size_bytes
            except DocumentFailed:
                raise _no_list("source.documents") from None
            yield Entry(0, "", "inline:", "documents.jsonl", size_bytes, place, part=EVERYTHING)

    def open(self, place: Mapping[str, Any]) -> StoredContent:  # noqa: ARG002 - there is one
        """See `Entries`."""
        storage, name = self._access.storage, self._access.listed
        try:
            return StoredContent(storage, name, storage.size_bytes(name))
        except NotStored:
            raise gone() from None


def _no_list(param: str) -> SourceFailed:
    return SourceFailed("The list of what the request named is no longer in the storage.", param=param)
