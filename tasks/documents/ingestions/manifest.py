"""Stored lists of a page's documents: as listed (the manifest), and as parsed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import orjson

from tasks.documents.chunking.chunk import Chunk
from tasks.documents.document_error import DocumentError
from tasks.documents.sources.source import DocumentRef, ListedFault
from tasks.ledger.unit_cutting import UnitCutter
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_lines
from tasks.storage.row_file import RowIndexWriter
from tasks.storage.storage import Storage, Writer


def write_manifest(storage: Storage, name: str, entries: Iterator[DocumentRef | ListedFault]) -> int:
    """Stores the entries of a page; how many they are. Raises like `Storage.writing`."""
    count = 0
    with storage.writing(name) as file:
        for entry in entries:
            fields = {"ref": entry.to_json()} if isinstance(entry, DocumentRef) else {"fault": _fault_json(entry)}
            file.write(orjson.dumps(fields) + b"\n")
            count += 1
    return count


def read_manifest(storage: Storage, name: str) -> Iterator[DocumentRef | ListedFault]:
    """The entries of a page, in order; raises `NotStored` and `StorageUnavailable`."""
    for line in read_lines(storage, name):
        fields = orjson.loads(line)
        if "ref" in fields:
            yield DocumentRef.from_json(fields["ref"])
        else:
            fault = fields["fault"]
            yield ListedFault(fault["id"], fault["uri"], DocumentError(**fault["error"]))


def _fault_json(fault: ListedFault) -> dict[str, Any]:
    return {"id": fault.id, "uri": fault.uri, "error": asdict(fault.error)}


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What PARSE says of a document.

    Attributes:
        ref: None for what was no document to begin with.
        status: `chunked`: its chunks are rows `first` to `first + chunks` of the page; else it goes no further.
        error: of a failed one.
        content_hash: "" where it could not be read.
        note: a code beside `unchanged` or `chunked`.
        replaces: an earlier ingestion has brought another content under its id.
    """

    id: str
    uri: str
    status: Literal["chunked", "unchanged", "failed"]
    ref: Mapping[str, Any] | None = None
    error: DocumentError | None = None
    content_hash: str = ""
    first: int = 0
    chunks: int = 0
    tokens: int = 0
    note: str | None = None
    replaces: bool = False

    @classmethod
    def failed(cls, entry: DocumentRef | ListedFault, error: DocumentError, content_hash: str = "") -> Self:
        """An entry that goes no further."""
        ref = entry.to_json() if isinstance(entry, DocumentRef) else None
        return cls(entry.id, entry.uri, "failed", ref=ref, error=error, content_hash=content_hash)

    @property
    def emptied(self) -> bool:
        """Whether it has no text any more, and takes the place of an earlier version that had."""
        return self.status == "chunked" and not self.chunks

    def to_line(self) -> bytes:
        """With its line break."""
        return orjson.dumps(self) + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """Inverse of `to_line`."""
        fields = orjson.loads(line)
        error = fields.pop("error")
        return cls(**fields, error=DocumentError(**error) if error else None)

    def outcome(self, status: DocumentStatus, error: DocumentError | None = None) -> DocumentOutcome:
        """As its owner sees it. What failed keeps where it is, so that it can be tried again."""
        return DocumentOutcome(
            self.id,
            self.uri,
            status,
            stage=error.stage if error else None,
            code=error.code if error else self.note,
            message=error.message if error else None,
            content_hash=self.content_hash,
            chunks=self.chunks,
            tokens=self.tokens,
            ref=self.ref if status is DocumentStatus.FAILED else None,
        )


def read_parsed(storage: Storage, name: str) -> Iterator[ParsedDocument]:
    """The documents of a page, in order; raises `NotStored` and `StorageUnavailable`."""
    return map(ParsedDocument.of_line, read_lines(storage, name))


# Chunks as rows, in the form of the lines of a batch, so that model workers need not know what an ingestion is.


class ChunkRows:
    """Writes the rows of a page, and cuts them into units.

    Attributes:
        rows: how many there are.
        tokens: of all of them.
        units: number of the first row, number of rows and cost of each unit. Cost is in tokens counted.
    """

    def __init__(
        self, source: Writer, index: Writer, options: Mapping[str, Any], *, max_items: int, max_cost: int
    ) -> None:
        self._source = source
        self._index = RowIndexWriter(index.write)
        self._options = options
        self._cutter = UnitCutter(max_items=max_items, max_cost=max_cost)
        self.tokens = 0

    @property
    def rows(self) -> int:
        """Written so far."""
        return self._index.rows

    @property
    def units(self) -> list[tuple[int, int, int]]:
        """So far."""
        return self._cutter.units

    def add(self, chunk: Chunk) -> None:
        """Writes a chunk; raises like `Writer.write`."""
        line = row_line(chunk, self._options)
        self._index.add(self._source.size_bytes, len(line))
        self._source.write(line + b"\n")
        self.tokens += chunk.token_count
        self._cutter.add(max(1, chunk.token_count))


def row_line(chunk: Chunk, options: Mapping[str, Any]) -> bytes:
    """The row of a chunk, without a line break."""
    place = [chunk.index, chunk.start, chunk.end, chunk.page, chunk.headings, chunk.token_count, chunk.truncated]
    return orjson.dumps({"body": {"input": chunk.text, **options}, "c": place})


def chunk_of(line: bytes) -> Chunk:
    """Inverse of `row_line`."""
    fields = orjson.loads(line)
    index, start, end, page, headings, tokens, truncated = fields["c"]
    return Chunk(index, fields["body"]["input"], start, end, page, tuple(headings), tokens, truncated)
