"""The job that puts the vectors of several pages into the sink, and writes down what became of each document."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from tasks.documents.chunking.chunk import Chunk
from tasks.documents.context import JobContext
from tasks.documents.document_error import DocumentError
from tasks.documents.embedded_rows import EmbeddedRow, EmbeddedRows
from tasks.documents.ingestions.fingerprint import conflict, require_revision, stamp
from tasks.documents.ingestions.job_calls import GONE, find, patiently
from tasks.documents.ingestions.manifest import ParsedDocument, chunk_of, read_manifest, read_parsed
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sinks.sink import LoadDocument, LoadOutcome
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.source import ListedFault
from tasks.errors import ModelChanged, NotStored
from tasks.item import ItemError
from tasks.ledger.operations import read_committed
from tasks.ledger.task import Committed
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus
from tasks.records.ingestions import Ingestion, IngestionStatus, PageInFlight, PageStage
from tasks.storage.vector_part import PartReference, RowError, RowOutcome

# The documents of pages with their vectors, one document in memory at a time.

_LEFT_OVER = ItemError("not_embedded", "The document's chunks were not turned into vectors. Try it again.")


class Loading:
    """What one load takes.

    Attributes:
        failures: page and position of the documents whose chunks are not all vectors; complete once all documents have
            been taken.
    """

    def __init__(self, context: JobContext, ingestion: Ingestion, pages: list[PageInFlight]) -> None:
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

    def _embedded(self, page: PageInFlight) -> Committed:
        embedded = self._context.ledger.run(read_committed(self._ingestion.task_id("embed", page.number)))
        if embedded is None:
            raise NotStored("What came of the chunks is no longer there.")
        if embedded.task.model_changed:
            raise ModelChanged("Workers came to serve another model while the page was embedded. Start it again.")
        for revision in {PartReference.from_json(unit.data).revision for unit in embedded.units}:
            if revision:
                require_revision(self._ingestion, revision)
        return embedded

    def _rows(self, page: PageInFlight, embedded: Committed) -> EmbeddedRows:
        return EmbeddedRows(
            self._context.storage, page.source, page.index, page.chunks, embedded, _LEFT_OVER, self._context.progress
        )


def _with_vectors(
    page: PageInFlight, document: ParsedDocument, rows: Iterator[EmbeddedRow], dimension: int
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


Outcomes = Mapping[str, Sequence[LoadOutcome]]


def load_pages(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON: `pages`, for each a list.

    It holds its number, the stored name of its outcomes, how many documents were loaded, unchanged and failed, how many
    chunks were loaded, and how many of the documents took the place of an earlier content.

    Raises:
        SinkRefused, ModelChanged, NotStored: the ingestion cannot go on.
        RedisUnavailable: it cannot be done now.
    """
    ingestion, number = find(context, job)
    pages = [page for page in ingestion.pages.values() if page.load == number] if ingestion else []
    pages = [page for page in pages if page.stage is PageStage.LOADING]
    if ingestion is None or not pages or ingestion.status is IngestionStatus.CANCELLING:
        return GONE
    return patiently(context, ingestion, "load", lambda: _load(context, ingestion, pages, tools))


def _load(context: JobContext, ingestion: Ingestion, pages: list[PageInFlight], tools: Tools) -> bytes:
    for number in ingestion.cleanup_pages:  # of the load before: nothing needs it any more, also when this runs again
        context.progress()
        context.storage.delete(ingestion.page_folder(number))
    loading = Loading(context, ingestion, pages)
    outcomes = _loaded(context, ingestion, loading, tools)
    writer = OutcomeWriter(context, ingestion, outcomes, loading.failures)
    return orjson.dumps({"pages": [writer.write(page) for page in pages]})


def _loaded(context: JobContext, ingestion: Ingestion, loading: Loading, tools: Tools) -> Outcomes:
    if ingestion.dry_run or not loading.anything:
        return {}
    sink = tools.sink(context, ingestion)
    try:
        return sink.load(loading.documents(), stamp(ingestion), context.progress)
    finally:
        sink.close()


class OutcomeWriter:
    """Writes the outcomes of pages, which must come in the order in which they were loaded."""

    def __init__(
        self,
        context: JobContext,
        ingestion: Ingestion,
        outcomes: Outcomes,
        failures: Mapping[tuple[int, int], DocumentError],
    ) -> None:
        self._context = context
        self._ingestion = ingestion
        self._outcomes = outcomes
        self._failures = failures
        self._taken: dict[str, int] = defaultdict(int)

    def write(self, page: PageInFlight) -> list[Any]:
        """See `load_pages`."""
        name = self._ingestion.outcomes_name(page.number, self._context.fence)
        counts = dict.fromkeys(DocumentStatus, 0)
        chunks = replaced = 0
        with self._context.storage.writing(name) as file:
            for at, (outcome, replaced_one) in enumerate(self._of(page)):
                if at % 64 == 0:
                    self._context.progress()
                file.write(outcome.to_line())
                counts[outcome.status] += 1
                if outcome.status is DocumentStatus.LOADED:
                    chunks, replaced = chunks + outcome.chunks, replaced + replaced_one
        loaded = counts[DocumentStatus.LOADED] + counts[DocumentStatus.COUNTED]
        unchanged, failed = counts[DocumentStatus.UNCHANGED], counts[DocumentStatus.FAILED]
        return [page.number, name, loaded, unchanged, failed, chunks, replaced]

    def _of(self, page: PageInFlight) -> Iterator[tuple[DocumentOutcome, bool]]:
        """What became of each document, and whether it took the place of an earlier content, if it was loaded."""
        if page.fault is not None:
            error = DocumentError(*page.fault, "parsing")
            for entry in read_manifest(self._context.storage, page.manifest):
                own = entry.error if isinstance(entry, ListedFault) else error
                yield ParsedDocument.failed(entry, own).outcome(DocumentStatus.FAILED, own), False
            return
        for at, document in enumerate(read_parsed(self._context.storage, page.parsed)):
            yield self._outcome(document, self._failures.get((page.number, at)))

    def _outcome(self, document: ParsedDocument, failure: DocumentError | None) -> tuple[DocumentOutcome, bool]:
        if document.status == "failed" or failure is not None:
            return document.outcome(DocumentStatus.FAILED, failure or document.error), False
        if document.status == "unchanged":
            return document.outcome(DocumentStatus.UNCHANGED), False
        if self._ingestion.dry_run:
            return document.outcome(DocumentStatus.COUNTED), False
        said = self._outcomes[document.id][self._taken[document.id]]
        self._taken[document.id] += 1
        refused = _refused(document, said)
        if refused is not None:
            return document.outcome(DocumentStatus.FAILED, refused), False
        if said is LoadOutcome.SUPERSEDED:  # the newer version stays as it is
            return dataclasses.replace(document, note="superseded").outcome(DocumentStatus.UNCHANGED), False
        # An earlier run of this job may have loaded it, and the sink says no more what was there before.
        return document.outcome(DocumentStatus.LOADED), said is LoadOutcome.REPLACED or document.replaces


def _refused(document: ParsedDocument, said: LoadOutcome) -> DocumentError | None:
    match said:
        case LoadOutcome.DUPLICATE:
            return duplicate(None, "loading")
        case LoadOutcome.CONFLICT:
            return conflict("", (document.ref or {}).get("origin", ""), "loading")
        case _:
            return None
