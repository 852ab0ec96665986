"""The documents of pages with their vectors, one document in memory at a time."""

from collections.abc import Iterator

import numpy as np

from tasks.documents.chunking.types import Chunk
from tasks.documents.context import JobContext
from tasks.documents.embedded_rows import EmbeddedRow, EmbeddedRows
from tasks.documents.faults import DocumentError
from tasks.documents.ingestions.chunk_rows import chunk_of
from tasks.documents.ingestions.manifest import ParsedDocument, read_parsed
from tasks.documents.ingestions.pipeline import require_revision
from tasks.documents.sinks.types import LoadDocument
from tasks.errors import ModelChanged, NotStored
from tasks.ledger import ItemError
from tasks.ledger.committed import Committed, read_committed
from tasks.ledger.ingestions import Ingestion, Page
from tasks.ledger.parts import PartReference, RowError, RowOutcome

_LEFT_OVER = ItemError("not_embedded", "The document's chunks were not turned into vectors. Try it again.")


class Loading:
    """What one load takes.

    Attributes:
        failures: page and position of the documents whose chunks are not all vectors; complete once all documents have
            been taken.
    """

    def __init__(self, context: JobContext, ingestion: Ingestion, pages: list[Page]) -> None:
        self._context = context
        self._ingestion = ingestion
        self._pages = [page for page in pages if page.fault is None and (page.source or page.emptied)]
        self.failures: dict[tuple[int, int], DocumentError] = {}

    @property
    def anything(self) -> bool:
        """Whether there may be documents to load."""
        return bool(self._pages)

    def documents(self) -> Iterator[LoadDocument]:
        """Every document all of whose chunks are vectors, in order.

        Raises:
            ModelChanged: another revision than the one that its receipts would name made some of the vectors.
            NotStored: chunks or vectors are gone.
            Unavailable: they cannot be read now.
        """
        embedded = [self._embedded(page) if page.source else None for page in self._pages]
        for page, committed in zip(self._pages, embedded, strict=True):
            rows = iter(self._rows(page, committed)) if committed else iter(())
            for at, document in enumerate(read_parsed(self._context.storage, page.parsed)):
                if document.status != "chunked":
                    continue
                loaded = _with_vectors(page, document, rows, self._ingestion.dimension or 0)
                if isinstance(loaded, DocumentError):
                    self.failures[page.number, at] = loaded
                else:
                    yield loaded

    def _embedded(self, page: Page) -> Committed:
        embedded = self._context.ledger.run(read_committed(self._ingestion.task_id("embed", page.number)))
        if embedded is None:
            raise NotStored("What came of the chunks is no longer there.")
        if embedded.task.model_changed:
            raise ModelChanged("Workers came to serve another model while the page was embedded. Start it again.")
        for revision in {PartReference.from_json(unit.data).revision for unit in embedded.units}:
            if revision:
                require_revision(self._ingestion, revision)
        return embedded

    def _rows(self, page: Page, embedded: Committed) -> EmbeddedRows:
        return EmbeddedRows(
            self._context.storage, page.source, page.index, page.chunks, embedded, _LEFT_OVER, self._context.progress
        )


def _with_vectors(
    page: Page, document: ParsedDocument, rows: Iterator[EmbeddedRow], dimension: int
) -> LoadDocument | DocumentError:
    chunks: list[Chunk] = []
    vectors = [np.empty((0, dimension), np.float32)]
    error: DocumentError | None = None
    for number, line, outcome in () if document.emptied else rows:
        if number < document.first:
            continue  # of a document that failed when it was cut half
        if isinstance(outcome, RowOutcome) and outcome.error is None:
            chunks.append(chunk_of(line))
            vectors.append(outcome.vectors)
        else:
            error = error or _error(outcome)
        if number == document.first + document.chunks - 1:
            break
    if error is not None:
        return error
    ref = document.ref or {}
    return LoadDocument(
        id=document.id,
        uri=document.uri,
        content_hash=document.content_hash,
        page=page.number,
        metadata=ref.get("metadata") or {},
        chunks=chunks,
        vectors=np.concatenate(vectors),
        origin=ref.get("origin", ""),
    )


def _error(outcome: RowOutcome | RowError | ItemError) -> DocumentError:
    said = (outcome.error or _LEFT_OVER) if isinstance(outcome, RowOutcome) else outcome
    return DocumentError(said.code, said.message, "embedding")
