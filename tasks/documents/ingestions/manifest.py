"""Stored lists of a page's documents: as listed (the manifest), and as parsed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

import orjson

from tasks.chunk import Chunk
from tasks.documents.document_error import DocumentError
from tasks.documents.sources.source import DocumentRef, ListedFault
from tasks.ledger.task import PieceCutter
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_lines
from tasks.storage.row_file import RowFileWriter, row_of
from tasks.storage.storage import Storage
from tasks.unshown import unshown


def write_manifest(storage: Storage, name: str, entries: Iterator[DocumentRef | ListedFault]) -> int:
    """Stores the entries of a page; how many they are. Raises like `Storage.writing`."""
    count = 0
    place: Mapping[str, Any] | None = None
    with storage.writing(name) as file:
        for entry in entries:
            if isinstance(entry, DocumentRef):
                fields = list(entry)
                if entry.place is place:  # as of all records of a file
                    fields[_PLACE] = None
                place, fields[_METADATA] = entry.place, dict(entry.metadata)
            else:
                fields = [entry.id, entry.uri, entry.error]
            file.write(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
    return count


_PLACE, _METADATA = DocumentRef._fields.index("place"), DocumentRef._fields.index("metadata")


def read_manifest(storage: Storage, name: str) -> Iterator[DocumentRef | ListedFault]:
    """The entries of a page, in order; raises `NotStored` and `StorageUnavailable`."""
    place: Mapping[str, Any] = {}
    for line in read_lines(storage, name):
        fields = orjson.loads(line)
        if len(fields) == len(DocumentRef._fields):
            place = fields[_PLACE] = place if fields[_PLACE] is None else fields[_PLACE]
            yield DocumentRef(*fields)
        else:
            document_id, uri, error = fields
            yield ListedFault(document_id, uri, DocumentError(**error))


def in_order_of_parsing(entries: Iterable[DocumentRef | ListedFault]) -> list[DocumentRef | ListedFault]:
    """Documents first: what is parsed is stored in this order."""
    return sorted(entries, key=lambda entry: isinstance(entry, ListedFault))


@unshown("metadata")
class ParsedDocument(NamedTuple):
    """What PARSE says of a document.

    Attributes:
        status: `chunked`: its chunks are rows `first` to `first + chunks` of the page; else it goes no further.
        content_hash: "" where it could not be read.
        metadata, origin: as in `DocumentRef`; of a `chunked` one.
        error: of a failed one.
        note: a code beside `unchanged` or `chunked`.
        replaces: an earlier ingestion has brought another content under its id.
    """

    id: str
    uri: str
    status: Literal["chunked", "unchanged", "failed"]
    content_hash: str = ""
    first: int = 0
    chunks: int = 0
    tokens: int = 0
    metadata: Mapping[str, Any] | None = None
    origin: str = ""
    error: DocumentError | None = None
    note: str | None = None
    replaces: bool = False

    @classmethod
    def failed(cls, entry: DocumentRef | ListedFault, error: DocumentError, content_hash: str = "") -> Self:
        """An entry that goes no further."""
        return cls(entry.id, entry.uri, "failed", content_hash, error=error)

    @property
    def emptied(self) -> bool:
        """Whether it has no text any more, and takes the place of an earlier version that had."""
        return self.status == "chunked" and not self.chunks

    def to_line(self) -> bytes:
        """With its line break."""
        return orjson.dumps(tuple(self), option=orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """Inverse of `to_line`."""
        fields = orjson.loads(line)
        if error := fields[_ERROR]:
            fields[_ERROR] = DocumentError(**error)
        return cls(*fields)

    def outcome(
        self, status: DocumentStatus, error: DocumentError | None = None, ref: DocumentRef | None = None
    ) -> DocumentOutcome:
        """As its owner sees it. `ref`: of what failed: where it is, so that it can be tried again."""
        if error is None:
            said = _NOTES.get(self.note or "")
            return DocumentOutcome(
                self.id, self.uri, status, None, self.note, said, self.content_hash, self.chunks, self.tokens
            )
        return DocumentOutcome(
            self.id,
            self.uri,
            status,
            error.stage,
            error.code,
            error.message,
            self.content_hash,
            self.chunks,
            self.tokens,
            ref.to_json() if ref else None,
        )


_NOTES = {
    "emptied": "The document has no text any more: its earlier chunks were deleted.",
    "superseded": "A newer ingestion has loaded this document, and its version stays.",
}
_ERROR = ParsedDocument._fields.index("error")


def read_parsed(storage: Storage, name: str) -> Iterator[ParsedDocument]:
    """The documents of a page, in order; raises `NotStored` and `StorageUnavailable`."""
    return map(ParsedDocument.of_line, read_lines(storage, name))


# Chunks as rows, so that model workers need not know what an ingestion is.


class ChunkRows:
    """Adds chunks to the rows of a page, and cuts them into pieces.

    Attributes:
        rows: how many there are.
        tokens: of all of them.
        pieces: number of the first row, number of rows and cost of each piece. Cost is in tokens counted.
    """

    def __init__(self, rows: RowFileWriter, options: Mapping[str, Any], piece_cost: int) -> None:
        self._rows = rows
        self._options = options
        self._cutter = PieceCutter(piece_cost)
        self.tokens = 0

    @property
    def rows(self) -> int:
        """Added so far."""
        return self._rows.rows

    @property
    def pieces(self) -> list[tuple[int, int, int]]:
        """So far."""
        return self._cutter.pieces

    def add(self, chunk: Chunk) -> None:
        """Adds a chunk; raises like `Writer.write`."""
        self._rows.add(row_of_chunk(chunk, self._options))
        self.tokens += chunk.token_count
        self._cutter.add(max(1, chunk.token_count))


def row_of_chunk(chunk: Chunk, options: Mapping[str, Any]) -> bytes:
    """The row of a chunk, without a line break."""
    place = [chunk.index, chunk.start, chunk.end, chunk.page, chunk.headings, chunk.token_count, chunk.truncated]
    return row_of(chunk.text, options, place=place)


def chunk_of(line: bytes) -> Chunk:
    """Inverse of `row_of_chunk`."""
    fields = orjson.loads(line)
    index, start, end, page, headings, tokens, truncated = fields["place"]
    return Chunk(index, fields["text"], start, end, page, tuple(headings), tokens, truncated)
