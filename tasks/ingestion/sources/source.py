"""A source: pages of what it lists, and the documents of such pages. Its memory does not grow with it."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import orjson

from tasks.document_error import DocumentError, DocumentFailed
from tasks.ingestion.sources.content import Content, changed
from tasks.ingestion.sources.page import FULL_PAGE, ListedPage, PageBuilder, PageLimits, duplicate
from tasks.ingestion.sources.ranges import Ask, CutBlock, RecordFile
from tasks.ingestion.sources.record import Described, Range, as_json
from tasks.records.documents import Document, DocumentStatus
from tasks.records.files import FileRecord
from tasks.storage.storage import Storage
from tasks.unshown import unshown

OWN_OUTCOMES = 10_000
"""So many records of a file have an outcome each, however many fail."""


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """What a source may use.

    Attributes:
        ask: the sandbox, in which records are read.
        files: the owner's uploads that the request names, by id; an upload that is not here was deleted.
        listed: name in the storage of what the request lists, as JSON lines.
        roots: folders and URL prefixes that may be read.
        max_document_bytes: of a file.
        max_record_bytes: of a line, or the texts of a row.
        within: those of them that the owner's key may read; None: all.
        progress: to be called about once a second; its exceptions are passed on.
        page: when a page of a listing is full.
    """

    storage: Storage
    ask: Ask
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    listed: str = "missing"
    roots: Sequence[str] = ()
    max_document_bytes: int = 100 * 2**20
    max_record_bytes: int = 16 * 2**20
    progress: Callable[[], None] = lambda: None
    page: PageLimits = FULL_PAGE
    within: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or the fault of a place where a file should be.

    Attributes:
        key: the listing continues behind it; JSON.
        id: of the document, or the beginning of the ids of its records.
        place: with which it is opened later; JSON.
        part: of the source, whose documents are unknown where this cannot be read; "": `uri`.
    """

    key: Any
    id: str
    uri: str
    name: str = ""
    size_bytes: int = 0
    place: Mapping[str, Any] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)
    error: DocumentError | None = None
    part: str = ""


class Entries(Protocol):
    """Lists files in a fixed order and opens them; each kind of source is one."""

    def after(self, key: Any) -> Iterator[Entry]:
        """The files behind a key, all of them for None. Raises `SourceFailed` and `StorageUnavailable`."""

    def open(self, place: Mapping[str, Any]) -> Content:
        """The content of a file that was listed. Raises `DocumentFailed` and `StorageUnavailable`."""

    def roots(self) -> Mapping[str, str]:
        """How URIs begin of places of which each is expected to list something, and where the request names it."""
        return {}  # documents are named one by one


@unshown("ref", "data", "text")
class Fetched(NamedTuple):
    """A document's content. Exactly one of `data` (a file's bytes), `text` (a record's) and `error` is set.

    Attributes:
        ref: its line, from now on; for a line of a range there are as many as it has records.
        content_hash: 64 hexadecimal digits of SHA-256 over the bytes, or over text and metadata of a record; "" with an
            error, but for a file that was not sent. Metadata of files counts too: it is stored with the chunks.
    """

    ref: Document
    content_hash: str
    data: bytes | None = None
    text: str | None = None
    error: DocumentError | None = None


class Source:
    """Files as documents, and the records of files for which `formats` tells a format by their name."""

    def __init__(self, entries: Entries, formats: Callable[[str], RecordFile | None], access: SourceAccess) -> None:
        self._entries, self._formats = entries, formats
        self._max_bytes, self._page, self._progress = access.max_document_bytes, access.page, access.progress
        self._going_on: tuple[Any, Iterator[Entry]] = (None, iter(()))

    def roots(self) -> Mapping[str, str]:
        """See `Entries`."""
        return self._entries.roots()

    def page(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page at a cursor; None: the first page. The same cursor on the same source gives the same page.

        Raises:
            SourceFailed: the job cannot continue, because something that it names is gone, or is of another kind.
            StorageUnavailable: it does not answer now.
        """
        page, key = PageBuilder(self._page), None
        if cursor is not None:
            key = cursor["after"]
            if "entry" in cursor:
                then = self._list_ranges(page, Entry(**cursor["entry"]), cursor)
                if then is not None:
                    return page.listed({**cursor, **then})
        entries = self._going_on[1] if key is not None and self._going_on[0] == key else self._entries.after(key)
        self._going_on = (None, iter(()))
        for entry in entries:
            self._progress()
            of_records = entry.error is None and self._formats(entry.name) is not None
            if not page.takes_file(0 if of_records else entry.size_bytes):
                self._going_on = (key, chain([entry], entries))  # the next page is mostly listed at once
                return page.listed({"after": key})
            key = entry.key
            if not of_records:
                self._list_file(page, entry)
            elif (then := self._list_ranges(page, entry, {})) is not None:
                self._going_on = (key, entries)
                return page.listed({"after": key, "entry": asdict(entry), **then})
        return page.listed(None)

    def _list_file(self, page: PageBuilder, entry: Entry) -> None:
        line = Document(entry.id, entry.uri, name=entry.name, size_bytes=entry.size_bytes, place={"at": entry.place})
        if entry.error is not None:
            # A name that is not fit is that of a document; what cannot be listed may be any number of them.
            page.add_failed(line, entry.error, part=entry.part or entry.uri)
        elif entry.size_bytes > self._max_bytes:
            page.add_failed(line, self._too_large())
        else:
            try:
                page.add_file(line._replace(metadata=as_json(entry.metadata) if entry.metadata else {}))
            except DocumentFailed as failed:
                page.add_failed(line, failed.error)

    def _list_ranges(self, page: PageBuilder, entry: Entry, cursor: Mapping[str, Any]) -> dict[str, Any] | None:
        """Adds ranges to the page. When it is full, returns the part of the cursor that continues this file."""
        version, position = cursor.get("version"), cursor.get("position")
        line = Document(entry.id, entry.uri)
        try:
            metadata = as_json(entry.metadata) if entry.metadata else {}
            with self._entries.open(entry.place) as content:
                if version not in (None, content.version):
                    raise changed()
                version = content.version
                place = {"at": entry.place, "in": entry.name, "version": version, "id": entry.id, "uri": entry.uri}
                place |= {"part": entry.part or entry.uri, "metadata": metadata}
                records = self._format_of(entry.name)
                while not page.full:
                    room = (self._page.records - page.records, self._page.record_bytes - page.record_bytes)
                    found = records.cut(content, position, room, self._progress)
                    if found is None:
                        return None
                    if not page.takes_range(found):
                        break
                    position = found.then
                    self._list_range(page, place, found)
                return {"version": version, "position": position}
        except DocumentFailed as failed:
            page.add_failed(line, failed.error, part=entry.part or entry.uri)
        return None

    def _list_range(self, page: PageBuilder, place: Mapping[str, Any], found: CutBlock) -> None:
        number = found.range.number
        line = Document(f"{place['id']}#{number}", f"{place['uri']}#{number}", size_bytes=found.source_bytes)
        if found.error is not None:
            page.add_failed(line, found.error, part=place["part"])
        elif found.records:
            page.add_range(line._replace(place=place, record=[*found.range], records=found.records), found)

    def _format_of(self, name: str) -> RecordFile:
        found = self._formats(name)
        if found is None:  # listed under another request
            raise changed()
        return found

    # ---- reading

    def read(self, lines: Sequence[Document]) -> Iterator[Fetched]:
        """The documents of lines of one page, in order. One that is gone or too large has an error.

        Raises:
            StorageUnavailable: it does not answer now.
        """
        first: dict[str, str] = {}
        for place, group in groupby(lines, attrgetter("place")):
            self._progress()
            of_records = "in" in place
            for found in self._read_records(place, list(group)) if of_records else map(self._read_file, group):
                there = first.setdefault(found.ref.id, found.ref.uri) if found.error is None else found.ref.uri
                again = there != found.ref.uri
                yield Fetched(found.ref, "", error=duplicate(there)) if again else found

    def _too_large(self) -> DocumentError:
        limit = self._max_bytes
        message = f"The file has more than {limit:,} bytes (EMBEDQ_INGEST_MAX_DOCUMENT_BYTES). It was not read."
        return DocumentError("document_too_large", message, "reading")

    def _read_file(self, line: Document) -> Fetched:
        try:
            with self._entries.open(line.place["at"]) as content:
                if content.size_bytes > self._max_bytes:
                    return Fetched(line, "", error=self._too_large())
                data = content.read(0, content.size_bytes)
        except DocumentFailed as failed:
            return Fetched(line, line.place["at"].get("sha256", ""), error=failed.error)
        return Fetched(line, file_hash(data, line.metadata), data=data)

    def _read_records(self, place: Mapping[str, Any], lines: Sequence[Document]) -> Iterator[Fetched]:
        waiting = list(lines)
        try:
            with self._entries.open(place["at"]) as content:
                if content.version != place["version"]:
                    raise changed()
                records = self._format_of(place["in"])
                while waiting:
                    together = _together(waiting, self._page)
                    yield from self._read_together(content, records, together)
                    del waiting[: len(together)]
        except DocumentFailed as failed:
            yield from (Fetched(line, "", error=failed.error) for line in waiting)

    def _read_together(self, content: Content, records: RecordFile, lines: Sequence[Document]) -> Iterator[Fetched]:
        """The records of lines whose ranges follow each other."""
        first, record = Range(*lines[0].record), None
        whole = first._replace(length=Range(*lines[-1].record).end - first.start)
        try:
            for record, described in records.read(content, whole, self._progress):
                yield _fetched(lines[0].place, record, described)
        except DocumentFailed as failed:
            for line in lines:
                rest = divided(line, whole.behind(record) if record else whole)[1]
                if rest is not None:
                    yield Fetched(rest, "", error=failed.error)


def holds(line: Document, document: Document) -> bool:
    """Whether a document was read by a line."""
    if line.record is None:
        return line.id == document.id
    if document.record is None or line.place != document.place:
        return False
    there, found = Range(*line.record), Range(*document.record)
    return there.group == found.group and there.start <= found.start < there.end


def alike(document: Document, behind: Document) -> Document | None:
    """One outcome for two records of a file that follow each other and failed alike; None: each has its own.

    The first records of a file have theirs in any case. A kilobyte of Parquet may have a million behind them that all
    fail. What stands for several is a range: it can be read again, and nobody knows which documents they were.
    """
    if {document.status, behind.status} != {DocumentStatus.FAILED} or not (document.record and behind.record):
        return None
    why = [(each.stage, each.code, each.message, each.place) for each in (document, behind)]
    there, found = Range(*document.record), Range(*behind.record)
    if there.number <= OWN_OUTCOMES or there.group != found.group or there.end > found.start or why[0] != why[1]:
        return None
    record, records = [*there._replace(length=found.end - there.start)], document.documents + behind.documents
    return document._replace(record=record, records=records, part=document.place["part"], content_hash="")


def divided(line: Document, left: Range) -> tuple[Document | None, Document | None]:
    """Lines of what was read of the records that a line stands for, and of what is left of them; None: nothing is.

    Args:
        line: of a range, or of one record.
        left: what has not been read, of the file or of some of it.
    """
    there = Range(*line.record)
    if (there.group, there.start) >= (left.group, left.start):
        return None, line
    if (there.group, there.end) <= (left.group, left.start):
        return line, None
    rest = Range(left.start, there.end - left.start, left.number, there.group)
    place, records = line.place, max(1, line.records - (left.number - there.number))
    called = line._replace(id=f"{place['id']}#{rest.number}", uri=f"{place['uri']}#{rest.number}")
    read = there._replace(length=rest.start - there.start)
    front = line._replace(record=[*read], records=max(1, line.records - records))
    return front, called._replace(record=[*rest], records=records)


def _together(lines: Sequence[Document], limits: PageLimits) -> Sequence[Document]:
    """The first lines whose ranges follow each other: they are read at once."""
    first = Range(*lines[0].record)
    number, end = 1, first.end
    for line in lines[1:]:
        found = Range(*line.record)
        if (found.start, found.group) != (end, first.group) or found.end - first.start > limits.record_bytes:
            break
        number, end = number + 1, found.end
    return lines[:number]


def _fetched(place: Mapping[str, Any], record: Range, described: Described) -> Fetched:
    """The document that a record is, or what is wrong with it."""
    number, own_id = record.number, described.id
    uri = f"{place['uri']}#{number}"
    if place["at"].get("plain") and own_id:  # its id is its name, and needs no file to be known by
        uri = f"{place['uri']}{own_id}#{number}"
    line = Document(own_id or f"{place['id']}#{number}", uri, size_bytes=record.length, place=place, record=[*record])
    if described.error is not None:
        error = DocumentError(*described.error, "reading")
        # Of a record whose id is unknown, nobody knows which document it was before.
        return Fetched(line if described.named else line._replace(part=place["part"]), "", error=error)
    metadata = {**place["metadata"], **described.metadata}
    line = line._replace(metadata=metadata, origin=place["id"] if own_id and not place["at"].get("plain") else "")
    return Fetched(line, record_hash(described.text, metadata), text=described.text)


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
