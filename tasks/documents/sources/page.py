"""One page while it is being filled."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tasks.documents.document_error import DocumentError, DocumentFailed, FailureStage
from tasks.documents.sources.record_fields import require_id
from tasks.documents.sources.source import (
    MAX_ID_BYTES,
    DocumentRef,
    ListedFault,
    ListedPage,
    PageLimits,
)


def duplicate(first: str | None, stage: FailureStage = "reading") -> DocumentError:
    """Of a document whose id another one of the same ingestion has; `first`: where that one is, if it is known."""
    other = f"The document at {first}" if first else "Another document of this ingestion"
    message = f"{other} has the same id. Give each its own, with source.fields.id or document_id."
    return DocumentError("duplicate_document_id", message, stage)


class PageBuilder:
    """Takes documents until it is full."""

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._documents: dict[str, DocumentRef] = {}
        self._faults: list[ListedFault] = []
        self._files = self._file_bytes = self._records = self._record_bytes = 0
        self._size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be put in. Faults count too: a file may hold nothing else."""
        limits = self._limits
        return (
            self._files >= limits.files
            or self._file_bytes >= limits.file_bytes
            or self._records + len(self._faults) >= limits.records
            or self._record_bytes >= limits.record_bytes
        )

    def takes_file(self, size_bytes: int) -> bool:
        """Whether one more file may be put in. A large one wants a page of its own."""
        alone = not self._documents and not self._faults
        return alone or not (self.full or size_bytes >= self._limits.file_bytes)

    def add_file(self, ref: DocumentRef) -> None:
        """Puts a file in."""
        self._files += 1
        self._file_bytes += ref.size_bytes or 0
        self._add(ref, ref.size_bytes or 0)

    def add_record(self, ref: DocumentRef, source_bytes: int) -> None:
        """Puts a record in, which takes up some bytes of its file."""
        self._records += 1
        self._record_bytes += ref.size_bytes or 0
        self._add(ref, source_bytes)

    def add_fault(self, document_id: str, uri: str, error: DocumentError, source_bytes: int = 0) -> None:
        """Notes that something could not be listed: nobody knows which documents it holds, so none has vanished."""
        self._note(document_id, uri, replace(error, stage="listing"), source_bytes)

    def add_failed(self, document_id: str, uri: str, error: DocumentError, source_bytes: int = 0) -> None:
        """Notes a document that is there, under its own id, and cannot be read."""
        self._note(document_id, uri, replace(error, stage="reading"), source_bytes)

    def listed(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page as it is."""
        return ListedPage(list(self._documents.values()), self._faults, cursor, self._size_bytes)

    def _note(self, document_id: str, uri: str, error: DocumentError, source_bytes: int) -> None:
        self._size_bytes += source_bytes
        shown = document_id.encode(errors="replace")[:MAX_ID_BYTES].decode(errors="ignore").replace("\0", "")
        self._faults.append(ListedFault(shown or "?", uri, error))

    def _add(self, ref: DocumentRef, source_bytes: int) -> None:
        try:
            require_id(ref.id)
        except DocumentFailed as failed:  # no document can have it, so none of a sink is this one
            self.add_failed(ref.id, ref.uri, failed.error, source_bytes)
            return
        if ref.id in self._documents:
            self.add_failed(ref.id, ref.uri, duplicate(self._documents[ref.id].uri), source_bytes)
            return
        self._size_bytes += source_bytes
        self._documents[ref.id] = ref
