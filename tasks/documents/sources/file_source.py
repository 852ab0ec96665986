"""A source of files, of which some hold records: pages over both."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import orjson

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.access import SourceAccess
from tasks.documents.sources.content import Content, changed
from tasks.documents.sources.page import PageBuilder
from tasks.documents.sources.record_fields import as_json
from tasks.documents.sources.records import Record, RecordFormat
from tasks.documents.sources.source import Fetched, ListedPage, SourceRoot
from tasks.records.documents import Document


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or the error of a place where a file should be.

    Attributes:
        key: the listing continues behind it; JSON.
        id: of the document, or the beginning of the ids of its records.
        place: with which it is opened later; JSON.
        part: of the source, whose documents are unknown where this cannot be read; "": `uri`.
    """

    key: Any
    id: str
    uri: str
    name: str
    size_bytes: int | None
    place: Mapping[str, Any] = field(repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    error: DocumentError | None = None
    part: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a cursor. The entry must have no error."""
        return asdict(self)


class Entries(Protocol):
    """Lists files in a fixed order and opens them."""

    def after(self, key: Any) -> Iterator[Entry]:
        """The files behind a key, all of them for None. Raises `SourceFailed` and `StorageUnavailable`."""

    def open(self, place: Mapping[str, Any]) -> Content:
        """The content of a file that was listed. Raises `DocumentFailed` and `StorageUnavailable`."""

    def roots(self) -> Sequence[SourceRoot]:
        """See `Source.roots`."""


class FileSource:
    """Files as documents, and the records of files for which `formats` returns a format."""

    def __init__(
        self,
        entries: Entries,
        formats: Callable[[str], RecordFormat | None],
        access: SourceAccess,
    ) -> None:
        self._entries = entries
        self._formats = formats
        self._limits = access.limits
        self._progress = access.progress
        self._page_limits = access.page

    def roots(self) -> Sequence[SourceRoot]:
        """See `Source`."""
        return self._entries.roots()

    # ---- listing

    def page(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """See `Source`."""
        page = PageBuilder(self._page_limits)
        key = None
        if cursor is not None:
            key = cursor["after"]
            if "entry" in cursor:
                entry = Entry(**cursor["entry"])
                then = self._list_records(page, entry, cursor)
                if then is not None:
                    return page.listed({**cursor, **then})
        for entry in self._entries.after(key):
            self._progress()
            records = entry.error is None and self._formats(entry.name) is not None
            if not page.takes_file(0 if records else entry.size_bytes or 0):
                return page.listed({"after": key})
            key = entry.key
            if records:
                then = self._list_records(page, entry, {})
                if then is not None:
                    return page.listed({"after": key, "entry": entry.to_json(), **then})
            else:
                self._list_file(page, entry)
        return page.listed(None)

    def _list_file(self, page: PageBuilder, entry: Entry) -> None:
        if entry.error is not None:
            page.add_fault(entry.id, entry.uri, entry.error, entry.size_bytes or 0, part=entry.part)
            return
        limit = self._limits.max_document_bytes
        if (entry.size_bytes or 0) > limit:
            page.add_failed(entry.id, entry.uri, _too_large(limit), entry.size_bytes or 0)
            return
        try:
            metadata = as_json(entry.metadata) if entry.metadata else {}
        except DocumentFailed as failed:
            page.add_failed(entry.id, entry.uri, failed.error, entry.size_bytes or 0)
            return
        place = {"at": entry.place}
        found = Document(entry.id, entry.uri, name=entry.name, size_bytes=entry.size_bytes)
        page.add_file(found._replace(place=place, metadata=metadata))

    def _list_records(self, page: PageBuilder, entry: Entry, cursor: Mapping[str, Any]) -> dict[str, Any] | None:
        """Adds records to the page. When the page is full, returns the part of the cursor that continues this file."""
        version = cursor.get("version")
        position = cursor.get("position")
        try:
            content = self._entries.open(entry.place)
            if version not in (None, content.version):
                raise changed()
            version = content.version
            place = {"at": entry.place, "in": entry.name, "version": version}
            for record in self._format_of(entry.name).records(content, position, self._progress):
                if page.full:
                    return {"version": version, "position": position}
                position = record.then
                self._list_record(page, entry, place, record)
        except DocumentFailed as failed:
            page.add_fault(entry.id, entry.uri, failed.error, part=entry.part)
        return None

    def _list_record(self, page: PageBuilder, entry: Entry, place: Mapping[str, Any], record: Record) -> None:
        document_id, uri = f"{entry.id}#{record.number}", f"{entry.uri}#{record.number}"
        document = record.document
        if document is None or not document.named:
            error = record.error if document is None else document.error
            if error is not None:
                page.add_fault(document_id, uri, error, record.source_bytes, part=entry.part or entry.uri)
            return
        document_id = document.id or document_id
        if document.error is not None:
            page.add_failed(document_id, uri, document.error, record.source_bytes)
            return
        try:
            metadata = {**as_json(entry.metadata), **document.metadata} if entry.metadata else document.metadata
        except DocumentFailed as failed:
            page.add_failed(document_id, uri, failed.error, record.source_bytes)
            return
        origin = entry.id if document.id else ""
        found = Document(document_id, uri, size_bytes=record.size_bytes, place=place, record=record.place)
        page.add_record(found._replace(metadata=metadata, origin=origin), record.source_bytes)

    def _format_of(self, name: str) -> RecordFormat:
        record_format = self._formats(name)
        if record_format is None:  # listed under another request
            raise changed()
        return record_format

    # ---- reading

    def read(self, refs: Sequence[Document]) -> Iterator[Fetched]:
        """See `Source`."""
        for place, group in groupby(refs, attrgetter("place")):
            self._progress()
            if "in" in place:
                yield from self._read_records(place, list(group))
            else:
                for ref in group:
                    yield self._read_file(ref)

    def _read_file(self, ref: Document) -> Fetched:
        try:
            content = self._entries.open(ref.place["at"])
            if content.size_bytes > self._limits.max_document_bytes:
                return Fetched(ref, "", error=_too_large(self._limits.max_document_bytes))
            data = content.read(0, content.size_bytes)
        except DocumentFailed as failed:
            return Fetched(ref, "", error=failed.error)
        return Fetched(ref, file_hash(data, ref.metadata), data=data)

    def _read_records(self, place: Mapping[str, Any], refs: Sequence[Document]) -> Iterator[Fetched]:
        waiting = iter(refs)
        try:
            content = self._entries.open(place["at"])
            if content.version != place["version"]:
                raise changed()
            places = [ref.record for ref in refs]
            rows = self._format_of(place["in"]).again(content, places, self._progress)
            for text in rows:
                ref = next(waiting)
                if isinstance(text, str):
                    yield Fetched(ref, record_hash(text, ref.metadata), text=text)
                else:
                    yield Fetched(ref, "", error=text)
        except DocumentFailed as failed:
            for ref in waiting:
                yield Fetched(ref, "", error=failed.error)


def file_hash(data: bytes, metadata: Mapping[str, Any]) -> str:
    """The hash of the bytes; with metadata, of its canonical JSON, a zero byte and the bytes."""
    digest = hashlib.sha256()
    if metadata:
        digest.update(orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS) + b"\0")
    digest.update(data)
    return digest.hexdigest()


def record_hash(text: str, metadata: Mapping[str, Any]) -> str:
    """The hash of the canonical JSON of both."""
    canonical = orjson.dumps({"text": text, "metadata": metadata}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()


def _too_large(limit: int) -> DocumentError:
    message = f"The file has more than {limit:,} bytes (EMBEDQ_INGEST_MAX_DOCUMENT_BYTES). It was not read."
    return DocumentError("document_too_large", message, "reading")
