"""Stored lists of a page's documents: as listed (the manifest), and as parsed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import orjson

from tasks.documents.faults import DocumentError
from tasks.documents.sources.types import DocumentRef, ListedFault
from tasks.ledger.ingestion_outcomes import DocumentOutcome, DocumentStatus, read_lines
from tasks.ledger.storage import Storage


def write_manifest(storage: Storage, name: str, entries: Iterator[DocumentRef | ListedFault]) -> int:
    """Stores the entries of a page; how many they are. Raises like `Storage.writing`."""
    count = 0
    with storage.writing(name) as file:
        for entry in entries:
            known = {"ref": entry.to_json()} if isinstance(entry, DocumentRef) else {"fault": _fault_json(entry)}
            file.write(orjson.dumps(known) + b"\n")
            count += 1
    return count


def read_manifest(storage: Storage, name: str) -> Iterator[DocumentRef | ListedFault]:
    """The entries of a page, in order; raises `NotStored` and `StorageUnavailable`."""
    for line in read_lines(storage, name):
        known = orjson.loads(line)
        if "ref" in known:
            yield DocumentRef.from_json(known["ref"])
        else:
            fault = known["fault"]
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
        known = orjson.loads(line)
        error = known.pop("error")
        return cls(**known, error=DocumentError(**error) if error else None)

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
