"""The documents of a page: one stored JSON line each, from LIST to LOAD. Each stage writes the lines anew."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Self

import orjson

from tasks.document_error import MAX_WARNED_PAGES, DocumentError, DocumentWarning
from tasks.records.jobs import JobError
from tasks.storage.storage import CHUNK_BYTES, Storage
from tasks.unshown import unshown

_NOTHING: Mapping[str, Any] = {}
_LEVEL = 1
"""Of the compression: the fastest one makes equal failures 1/30 as long."""
_MAX_WARNINGS, _MAX_WARNING_CHARS = 10, 500


class DocumentStatus(StrEnum):
    """States of a document; the last four are ends."""

    QUEUED = "queued"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    LOADING = "loading"
    LOADED = "loaded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    COUNTED = "counted"
    """By a dry run, which loads nothing."""


@unshown("place", "record", "metadata")
class Document(NamedTuple):
    """A document on its way, with all that the next stage needs to know.

    Attributes:
        id: unique within its job.
        uri: where it came from, as shown to its owner; unique within one listing.
        status: QUEUED as listed; PARSING: it is cut, as rows `first` to `first + chunks` of its page.
        stage, code, message: of a failed one why; of another one a note.
        content_hash: 64 hexadecimal digits; "" where it was not read.
        tokens: of its chunks.
        name: of the file, whose ending helps to tell its type; "" for a record, which is text already.
        size_bytes: None if it is not known before reading.
        place: the source's own notes on where its file is; JSON, equal for all records of a file.
        record: the same on where it is in this file; JSON.
        metadata: of its owner, stored with each of its chunks; JSON.
        origin: the file within which the id of a record is unique; "" for an id that is unique by itself, as a path is.
        part: of a failed one that is no document: the URI of what could not be listed, such as the file of a line. The
            documents of it are unknown, and count as there.
        records: how many documents there seem to be in the range of a file for which it stands, or how many there were
            that failed alike; 0: it is a document.
        ended: nothing is tried again with it.
        warnings: what could not be read of it; none of one that failed.
    """

    id: str
    uri: str
    status: DocumentStatus = DocumentStatus.QUEUED
    stage: str | None = None
    code: str | None = None
    message: str | None = None
    content_hash: str = ""
    first: int = 0
    chunks: int = 0
    tokens: int = 0
    name: str = ""
    size_bytes: int | None = None
    place: Mapping[str, Any] = _NOTHING
    record: Any = None
    metadata: Mapping[str, Any] = _NOTHING
    origin: str = ""
    part: str = ""
    records: int = 0
    ended: bool = False
    warnings: Sequence[DocumentWarning] = ()

    @property
    def fault(self) -> JobError | None:
        """Why it has failed, or what is to be said of it; of how many, where it stands for more than one."""
        alike = f" It stands for {self.records:,} records that failed alike." if self.records > 1 else ""
        return JobError(self.code, f"{self.message or ''}{alike}") if self.code else None

    @property
    def is_to_read(self) -> bool:
        """Whether it is to be read, or read again; a fault of the listing leads to nothing."""
        return not self.ended and (bool(self.place) or self.record is not None)

    @property
    def documents(self) -> int:
        """How many it stands for."""
        return self.records or 1

    @property
    def is_cut(self) -> bool:
        """Whether it is on its way into the dataset."""
        return self.status is DocumentStatus.PARSING

    @property
    def emptied(self) -> bool:
        """Whether it has no text any more, and takes the place of an earlier version that had."""
        return self.is_cut and not self.chunks

    def failed(self, error: DocumentError, content_hash: str = "") -> Self:
        """It goes no further. Of a range nobody knows which documents they were."""
        return self._replace(
            part=self.place["part"] if self.records else self.part,
            status=DocumentStatus.FAILED,
            stage=error.stage,
            code=error.code,
            message=error.message,
            content_hash=content_hash or self.content_hash,
            warnings=(),
        )

    def warned(self, warnings: Iterable[DocumentWarning]) -> Self:
        """With so much of these warnings as there is room for."""
        some = (
            DocumentWarning(code[:_MAX_WARNING_CHARS], message[:_MAX_WARNING_CHARS], tuple(pages[:MAX_WARNED_PAGES]))
            for code, message, pages in islice(warnings, _MAX_WARNINGS)
        )
        return self._replace(warnings=tuple(some))

    def as_listed(self) -> Self:
        """To be tried again: without what became of it."""
        return self._replace(
            status=DocumentStatus.QUEUED,
            stage=None,
            code=None,
            message=None,
            content_hash="",
            first=0,
            chunks=0,
            tokens=0,
            warnings=(),
        )

    def done(self, status: DocumentStatus) -> Self:
        """It has ended well: what leads to it is needed no more."""
        return self._replace(status=status, first=0, place=_NOTHING, record=None, metadata=_NOTHING, ended=True)

    def to_line(self, before: Mapping[str, Any] = _NOTHING) -> bytes:
        """With its line break; absent means the default. A `place` that equals `before` is written as `true`."""
        fields = {name: value for name, value, usual in zip(self._fields, self, _USUAL, strict=True) if value != usual}
        if "place" in fields:
            fields["place"] = self.place == before or dict(self.place)
        if "metadata" in fields:
            fields["metadata"] = dict(self.metadata)
        if "warnings" in fields:
            fields["warnings"] = [[*warning] for warning in self.warnings]
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


_USUAL = Document("", "")


def write_documents(storage: Storage, name: str, documents: Iterable[Document]) -> int:
    """Stores the lines of a page, compressed; their bytes in the storage. Raises like `Storage.writing`.

    A file of a kilobyte may have a million rows of which each fails, for the same reason.
    """
    place, deflate = _NOTHING, zlib.compressobj(_LEVEL)
    with storage.writing(name) as file:
        for document in documents:
            file.write(deflate.compress(document.to_line(place)))
            place = document.place or place
        file.write(deflate.flush())
        return file.size_bytes


def read_documents(storage: Storage, name: str) -> Iterator[Document]:
    """The documents of a page, in order; constant memory but for the longest line.

    Raises:
        NotStored: nothing has this name.
        StorageUnavailable: the storage does not answer.
    """
    place = _NOTHING
    for line in _lines(_inflated(storage.chunks(name))):
        fields = orjson.loads(line)
        if "place" in fields:
            place = fields["place"] = place if fields["place"] is True else fields["place"]
        if "status" in fields:
            fields["status"] = _STATUS[fields["status"]]
        if "warnings" in fields:
            fields["warnings"] = DocumentWarning.of(fields["warnings"])
        yield Document(**{"id": "", "uri": "", **fields})


_STATUS = {str(status): status for status in DocumentStatus}


def read_lines(storage: Storage, name: str) -> Iterator[bytes]:
    """Lines of a stored object, without their line breaks; raises like `read_documents`."""
    return _lines(storage.chunks(name))


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj()
    for piece in pieces:
        yield inflate.decompress(piece, CHUNK_BYTES)
        while inflate.unconsumed_tail:
            yield inflate.decompress(inflate.unconsumed_tail, CHUNK_BYTES)
    yield inflate.flush()


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:  # far longer than a line: what is left of the one before is hardly anything
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)
    if rest:
        yield rest
