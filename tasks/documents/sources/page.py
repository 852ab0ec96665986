"""A page of a listing while it is filled."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tasks.document_error import DocumentError, DocumentFailed, FailureStage
from tasks.documents.sources.record_fields import require_id
from tasks.documents.sources.source import MAX_ID_BYTES, ListedPage, PageLimits
from tasks.records.documents import Document


def duplicate(first: str | None, stage: FailureStage = "reading") -> DocumentError:
    """The error for an id that another document of the ingestion has; `first`: the place of that one, if known."""
    other = f"The document at {first}" if first else "Another document of this ingestion"
    message = f"{other} has the same id. Give each its own, with source.fields.id or document_id."
    return DocumentError("duplicate_document_id", message, stage)


class PageBuilder:
    """Takes documents until it is full."""

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._documents: dict[str, Document] = {}
        self._faults: list[Document] = []
        self._files = self._file_bytes = self._records = self._record_bytes = 0
        self._size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the page takes nothing more. Faults count too, because a file may hold nothing else."""
        limits = self._limits
        return (
            self._files >= limits.files
            or self._file_bytes >= limits.file_bytes
            or self._records + len(self._faults) >= limits.records
            or self._record_bytes >= limits.record_bytes
        )

    def takes_file(self, size_bytes: int) -> bool:
        """Whether the page takes one more file. A large file needs a page of its own."""
        alone = not self._documents and not self._faults
        return alone or not (self.full or size_bytes >= self._limits.file_bytes)

    def add_file(self, ref: Document) -> None:
        """Adds a file."""
        self._files += 1
        self._file_bytes += ref.size_bytes or 0
        self._add(ref, ref.size_bytes or 0)

    def add_record(self, ref: Document, source_bytes: int) -> None:
        """Adds a record; `source_bytes`: its bytes in the file."""
        self._records += 1
        self._record_bytes += ref.size_bytes or 0
        self._add(ref, source_bytes)

    def add_fault(
        self, document_id: str, uri: str, error: DocumentError, source_bytes: int = 0, *, part: str = ""
    ) -> None:
        """Adds something that cannot be listed. The documents of `part`, by default `uri`, are unknown."""
        self._note(document_id, uri, replace(error, stage="listing"), source_bytes, part or uri)

    def add_failed(self, document_id: str, uri: str, error: DocumentError, source_bytes: int = 0) -> None:
        """Adds a document whose id is known and which cannot be read."""
        self._note(document_id, uri, replace(error, stage="reading"), source_bytes)

    def listed(self, cursor: Mapping[str, Any] | None) -> ListedPage:
        """The page so far."""
        return ListedPage([*self._documents.values(), *self._faults], cursor, self._size_bytes)

    def _note(self, document_id: str, uri: str, error: DocumentError, source_bytes: int, part: str = "") -> None:
        self._size_bytes += source_bytes
        shown = document_id.encode(errors="replace")[:MAX_ID_BYTES].decode(errors="ignore").replace("\0", "")
        self._faults.append(Document(shown or "?", uri, part=part).failed(error))

    def _add(self, ref: Document, source_bytes: int) -> None:
        try:
            require_id(ref.id)
        except DocumentFailed as failed:  # no document in a sink can have this id
            self.add_failed(ref.id, ref.uri, failed.error, source_bytes)
            return
        if ref.id in self._documents:
            self.add_failed(ref.id, ref.uri, duplicate(self._documents[ref.id].uri), source_bytes)
            return
        self._size_bytes += source_bytes
        self._documents[ref.id] = ref
