"""A page of a listing while it is filled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.document_error import DocumentError, DocumentFailed, FailureStage
from tasks.ingestion.sources.ranges import CutBlock
from tasks.ingestion.sources.record import MAX_ID_BYTES, require_id
from tasks.records.documents import Document


@dataclass(frozen=True, slots=True)
class PageLimits:
    """Of files, a page ends with the one that reaches a limit; of records, before the range that would exceed one."""

    files: int = 64
    file_bytes: int = 4 * 2**20
    records: int = 2048
    record_bytes: int = 2 * 2**20


FULL_PAGE = PageLimits()


@dataclass(frozen=True, slots=True)
class ListedPage:
    """One page of a source.

    Attributes:
        lines: in the source's order, with ids that are unique within the page, a line for each range of records; behind
            them, as failed ones, entries that are no documents or cannot be read, with ids by which their owner can
            find them.
        cursor: beginning of the next page, JSON; None: this was the last page.
        size_bytes: of the part of the source that this page covers, for progress in bytes.
    """

    lines: Sequence[Document]
    cursor: Mapping[str, Any] | None
    size_bytes: int

    @property
    def documents(self) -> int:
        """How many there seem to be."""
        return sum(line.documents for line in self.lines)


def duplicate(first: str | None, stage: FailureStage = "reading") -> DocumentError:
    """The error for an id that another document of the ingestion has; `first`: the place of that one, if known."""
    other = f"The document at {first}" if first else "Another document of this ingestion"
    message = f"{other} has the same id. Give each its own, with source.fields.id or document_id."
    return DocumentError("duplicate_document_id", message, stage)


class PageBuilder:
    """Takes lines until it is full. Faults count too, because a file may hold nothing else."""

    def __init__(self, limits: PageLimits) -> None:
        self.limits = limits
        self._lines: dict[tuple[str, str], Document] = {}  # files by their ids, ranges by their places too
        self._faults: list[Document] = []
        self._files = self._file_bytes = self.records = self.record_bytes = self._size_bytes = 0

    @property
    def empty(self) -> bool:
        """Whether it takes anything."""
        return not self._lines and not self._faults

    @property
    def full(self) -> bool:
        """Whether it takes nothing more."""
        limits = self.limits
        return (
            self._files >= limits.files
            or self._file_bytes >= limits.file_bytes
            or self.records + len(self._faults) >= limits.records
            or self.record_bytes >= limits.record_bytes
        )

    def takes_file(self, size_bytes: int) -> bool:
        """Whether it takes one more file. A large file needs a page of its own."""
        return self.empty or not (self.full or size_bytes >= self.limits.file_bytes)

    def takes_range(self, found: CutBlock) -> bool:
        """Whether it takes one more range."""
        more = self.records + len(self._faults) + found.records, self.record_bytes + found.source_bytes
        return self.empty or (more[0] <= self.limits.records and more[1] <= self.limits.record_bytes)

    def add_file(self, line: Document) -> None:
        """Adds a file."""
        self._files += 1
        self._file_bytes += line.size_bytes or 0
        try:
            require_id(line.id)
        except DocumentFailed as failed:  # no document in a sink can have this id
            self.add_failed(line, failed.error)
        else:
            key = (line.id, "")
            if key in self._lines:
                self.add_failed(line, duplicate(self._lines[key].uri))
                return
            self._size_bytes += line.size_bytes or 0
            self._lines[key] = line

    def add_range(self, line: Document, found: CutBlock) -> None:
        """Adds a range of records. Its id is that of no document."""
        self.records += found.records
        self.record_bytes += found.source_bytes
        self._size_bytes += found.source_bytes
        self._lines[line.id, line.uri] = line

    def add_failed(self, line: Document, error: DocumentError, *, part: str = "") -> None:
        """Adds a document that cannot be read; with a `part`, something that is none: documents of it are unknown."""
        self._size_bytes += line.size_bytes or 0
        shown_id = line.id.encode(errors="replace")[:MAX_ID_BYTES].decode(errors="ignore").replace("\0", "")
        stage: FailureStage = "listing" if part else "reading"
        failed = Document(shown_id or "?", line.uri, part=part).failed(replace(error, stage=stage))
        self._faults.append(failed)

    def listed(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page so far."""
        return ListedPage([*self._lines.values(), *self._faults], cursor, self._size_bytes)
