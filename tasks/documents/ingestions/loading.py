"""Loads: one at a time puts as many pages as are ready into the sink, and writes down what became of each document.

The step begins a load. What the job leaves closes its pages.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tasks.chunk import Chunk
from tasks.documents.context import JobContext, StepContext
from tasks.documents.document_error import DocumentError
from tasks.documents.embedded_rows import EmbeddedRow, EmbeddedRows
from tasks.documents.ingestions import ending
from tasks.documents.ingestions.fingerprint import conflict, require_revision, stamp
from tasks.documents.ingestions.job_tasks import (
    again,
    enqueue,
    enqueue_job,
    error_of,
    find,
    now,
    patiently,
    task_of,
    waits,
)
from tasks.documents.ingestions.manifest import (
    ParsedDocument,
    chunk_of,
    in_order_of_parsing,
    read_manifest,
    read_parsed,
)
from tasks.documents.ingestions.outcomes import GONE, as_outcome
from tasks.documents.ingestions.page_parsing import affordable
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sinks.sink import LoadDocument, LoadOutcome
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.source import DocumentRef, ListedFault
from tasks.errors import ModelChanged, NotStored
from tasks.item import TextError, Vector
from tasks.ledger.cancel import forget
from tasks.ledger.read import read_result
from tasks.ledger.task import Result
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus
from tasks.records.ingestion_operations import Move, move_ingestion
from tasks.records.ingestions import ClosedPage, Ingestion, IngestionFault, IngestionStatus, PageInFlight, PageStage
from tasks.storage.vector_part import PartReference

_IN_PROGRESS = (IngestionStatus.IN_PROGRESS,)
_LOADS = (IngestionStatus.IN_PROGRESS, IngestionStatus.CANCELLING)


# The step.


def step(context: StepContext, ingestion: Ingestion) -> None:
    """Begins the next load, or looks at the one under way."""
    if is_under_way(ingestion):
        step_load(context, ingestion)
        return
    pages = _ready(context, ingestion)
    if pages:
        number = ingestion.load_number
        move = Move(
            _IN_PROGRESS,
            equal={"load_number": number},
            stages={page.number: PageStage.READY for page in pages},
            set={"load_number": number + 1},
            put=[dataclasses.replace(page, stage=PageStage.LOADING, load=number) for page in pages],
        )
        tasks = [] if waits(ingestion, "load") else [task_of(ingestion, "load", number)]
        enqueue(context, ingestion, move, tasks)


def is_under_way(ingestion: Ingestion) -> bool:
    """Whether pages are being loaded."""
    return any(page.stage is PageStage.LOADING for page in ingestion.pages.values())


def step_load(context: StepContext, ingestion: Ingestion) -> None:
    """Looks at a load that has not closed its pages: it is tried again, or the ingestion cannot go on."""
    number = ingestion.load_number - 1
    if ingestion.load_state is None:
        loading = {page.number: page.stage for page in ingestion.pages.values() if page.stage is PageStage.LOADING}
        move = Move(_IN_PROGRESS, equal={"load_number": ingestion.load_number}, stages=loading)
        enqueue_job(context, ingestion, "load", number, move)
    elif ingestion.load_state.terminal:
        error = error_of(context, ingestion, "load", number)
        if error is not None and not again(context, ingestion, "load", number, error):
            _give_up(context, ingestion, ending.fault_of(error))


def _ready(context: StepContext, ingestion: Ingestion) -> list[PageInFlight]:
    """The pages of a load that may begin now; none: it waits for more."""
    ready = [page for page in ingestion.pages.values() if page.stage is PageStage.READY]
    pace, credit = context.pace, context.settings.ingest_credit_chunks
    begun_ms = max(ingestion.times.get(IngestionStatus.IN_PROGRESS, 0), ingestion.loaded_ms or 0)
    nothing_to_list = bool(ingestion.waiting_pages) or ingestion.listing_complete
    nothing_to_begin = not affordable(ingestion, ingestion.begin_next, context)
    nothing_else = nothing_to_list and len(ready) == len(ingestion.pages) and nothing_to_begin
    enough = (
        sum(page.chunks for page in ready) >= min(pace.load_chunks, credit // 2)
        or len(ready) >= pace.load_pages
        or not 0 <= ingestion.now_ms - begun_ms < pace.load_every_ms
    )
    if not (enough or nothing_else):
        return []
    taken: list[PageInFlight] = []
    chunks = 0
    for page in ready:
        chunks += page.chunks
        if taken and chunks > pace.load_most_chunks:
            break
        taken.append(page)
    return taken


def _give_up(context: StepContext, ingestion: Ingestion, fault: IngestionFault) -> None:
    # Its pages are ready again, and dropped with all others.
    pages = [page for page in ingestion.pages.values() if page.stage is PageStage.LOADING]
    ending.stop(context, ingestion, fault)
    back = [dataclasses.replace(page, stage=PageStage.READY, load=None) for page in pages]
    stages = {page.number: PageStage.LOADING for page in pages}
    move = Move([IngestionStatus.CANCELLING], stages=stages, put=back)
    context.ledger.run(move_ingestion(ingestion.id, move))


# The documents of pages with their vectors, one document in memory at a time.

_NOT_EMBEDDED = TextError("not_embedded", "The document's chunks were not turned into vectors. Try it again.")


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

    def _embedded(self, page: PageInFlight) -> Result:
        embedded = self._context.ledger.run(read_result(self._ingestion.task_id("embed", page.number)))
        if embedded is None:
            raise NotStored("What came of the chunks is no longer there.")
        if embedded.task.model_changed:
            raise ModelChanged("Workers came to serve another model while the page was embedded. Start it again.")
        for revision in {PartReference.from_json(piece.data).revision for piece in embedded.pieces}:
            if revision:
                require_revision(self._ingestion, revision)
        return embedded

    def _rows(self, page: PageInFlight, embedded: Result) -> EmbeddedRows:
        return EmbeddedRows(
            self._context.storage, page.source, page.index, page.chunks, embedded, _NOT_EMBEDDED, self._context.progress
        )


def _with_vectors(
    page: PageInFlight, document: ParsedDocument, rows: Iterator[EmbeddedRow], dimension: int
) -> LoadDocument | DocumentError:
    chunks: list[Chunk] = []
    vectors: list[npt.NDArray[np.float32]] = []
    error: DocumentError | None = None
    for number, line, outcome in () if document.emptied else rows:
        if number < document.first:
            continue  # of a document that failed when it was cut half
        if isinstance(outcome, Vector) and outcome.vector is not None:
            chunks.append(chunk_of(line))
            vectors.append(outcome.vector)
        else:
            error = error or _error(outcome)
        if number == document.first + document.chunks - 1:
            break
    if error is not None:
        return error
    return LoadDocument(
        document.id,
        document.uri,
        document.content_hash,
        page.number,
        document.metadata or {},
        chunks,
        _joined(vectors, dimension),
        document.origin,
    )


def _joined(vectors: Sequence[npt.NDArray[np.float32]], dimension: int) -> npt.NDArray[np.float32]:
    if len(vectors) == 1:  # as of most records
        return vectors[0][np.newaxis]
    return np.stack(vectors) if vectors else np.empty((0, dimension), np.float32)


def _error(outcome: Vector | TextError) -> DocumentError:
    error = (outcome.error or _NOT_EMBEDDED) if isinstance(outcome, Vector) else outcome
    return DocumentError(error.code, error.message, "embedding")


# The job.

Outcomes = Mapping[str, Sequence[LoadOutcome]]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedPage:
    """A page that is done: how many chunks were loaded, and how many documents took an earlier content's place.

    `emptied`: of these, those that have no text any more.
    """

    closed: ClosedPage
    chunks: int
    replaced: int
    emptied: int


def load_pages(context: JobContext, job: str, tools: Tools) -> bytes:
    """Loads the pages of a load.

    Raises:
        Invalid, ModelChanged, NotStored: the ingestion cannot go on.
        RedisUnavailable: it cannot be done now.
    """
    ingestion, number = find(context, job)
    pages = [page for page in ingestion.pages.values() if page.load == number] if ingestion else []
    pages = [page for page in pages if page.stage is PageStage.LOADING]
    if ingestion is None or not pages or ingestion.status is IngestionStatus.CANCELLING:
        return GONE
    return patiently(context, ingestion, "load", lambda: _load(context, ingestion, pages, tools))


def _load(context: JobContext, ingestion: Ingestion, pages: list[PageInFlight], tools: Tools) -> bytes:
    _forget_loaded(context, ingestion)
    loading = Loading(context, ingestion, pages)
    outcomes = _loaded(context, ingestion, loading, tools)
    writer = OutcomeWriter(context, ingestion, outcomes, loading.failures)
    return as_outcome(_closing(now(context, ingestion), pages, [writer.write(page) for page in pages]))


def _forget_loaded(context: JobContext, ingestion: Ingestion) -> None:
    """Forgets the tasks of the load before. Their objects stay until the ingestion has ended: Redis may go back."""
    if ingestion.loaded_pages:
        embedded = [ingestion.task_id("embed", page) for page in ingestion.loaded_pages]
        context.ledger.run(forget(ingestion.model, *embedded))


def _closing(ingestion: Ingestion, pages: Sequence[PageInFlight], loaded: Sequence[LoadedPage]) -> Move:
    closed = [page.closed for page in loaded]
    return Move(
        _LOADS,
        stages={page.number: PageStage.LOADING for page in pages},
        drop=[page.number for page in pages],
        close=closed,
        set={"loaded_pages": " ".join(str(page.number) for page in pages), "loaded_ms": ingestion.now_ms},
        add={
            "loaded": sum(page.loaded for page in closed),
            "unchanged": sum(page.unchanged for page in closed),
            "failed": sum(page.failed for page in closed),
            "replaced": sum(page.replaced for page in loaded),
            "emptied": sum(page.emptied for page in loaded),
            "chunks_loaded": 0 if ingestion.dry_run else sum(page.chunks for page in loaded),
            "bytes_done": sum(page.size_bytes for page in pages),
        },
    )


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

    def write(self, page: PageInFlight) -> LoadedPage:
        """Writes those of one page, and counts them."""
        name = self._ingestion.outcomes_name(page.number, self._context.fence)
        loaded = unchanged = failed = chunks = replaced = emptied = 0
        with self._context.storage.writing(name) as file:
            for at, (outcome, replaced_one) in enumerate(self._of(page)):
                if at % 64 == 0:
                    self._context.progress()
                file.write(outcome.to_line())
                match outcome.status:
                    case DocumentStatus.LOADED:
                        loaded, chunks, replaced = loaded + 1, chunks + outcome.chunks, replaced + replaced_one
                        emptied += outcome.code == "emptied"
                    case DocumentStatus.COUNTED:
                        loaded += 1
                    case DocumentStatus.UNCHANGED:
                        unchanged += 1
                    case _:
                        failed += 1
        return LoadedPage(ClosedPage(page.number, name, loaded, unchanged, failed), chunks, replaced, emptied)

    def _of(self, page: PageInFlight) -> Iterator[tuple[DocumentOutcome, bool]]:
        """What became of each document, and whether it took the place of an earlier content, if it was loaded."""
        if page.fault is not None:
            error = DocumentError(*page.fault, "parsing")
            for entry in read_manifest(self._context.storage, page.manifest):
                own = entry.error if isinstance(entry, ListedFault) else error
                ref = entry if isinstance(entry, DocumentRef) else None
                yield ParsedDocument.failed(entry, own).outcome(DocumentStatus.FAILED, own, ref), False
            return
        refs: Sequence[DocumentRef | None] = ()
        for at, document in enumerate(read_parsed(self._context.storage, page.parsed)):
            outcome, replaced = self._outcome(document, self._failures.get((page.number, at)))
            if isinstance(outcome, DocumentError):
                refs = refs or self._refs(page)
                yield document.outcome(DocumentStatus.FAILED, outcome, refs[at]), False
            else:
                yield outcome, replaced

    def _refs(self, page: PageInFlight) -> Sequence[DocumentRef | None]:
        """Where the documents of a page are, in the order in which they were parsed."""
        entries = in_order_of_parsing(read_manifest(self._context.storage, page.manifest))
        return [entry if isinstance(entry, DocumentRef) else None for entry in entries]

    def _outcome(
        self, document: ParsedDocument, failure: DocumentError | None
    ) -> tuple[DocumentOutcome | DocumentError, bool]:
        error = failure or document.error
        if error is not None:
            return error, False
        if document.status == "unchanged":
            return document.outcome(DocumentStatus.UNCHANGED), False
        if self._ingestion.dry_run:
            return document.outcome(DocumentStatus.COUNTED), False
        outcomes = self._outcomes[document.id]
        outcome = outcomes[0]
        if len(outcomes) > 1:  # several documents have this id
            outcome = outcomes[self._taken[document.id]]
            self._taken[document.id] += 1
        refused = _refused(document, outcome)
        if refused is not None:
            return refused, False
        if outcome is LoadOutcome.SUPERSEDED:  # the newer version stays as it is
            return document._replace(note="superseded").outcome(DocumentStatus.UNCHANGED), False
        # An earlier run of this job may have loaded it, and the sink says no more what was there before.
        return document.outcome(DocumentStatus.LOADED), outcome is LoadOutcome.REPLACED or document.replaces


def _refused(document: ParsedDocument, outcome: LoadOutcome) -> DocumentError | None:
    if outcome is LoadOutcome.DUPLICATE:
        return duplicate(None, "loading")
    return conflict("", document.origin, "loading") if outcome is LoadOutcome.CONFLICT else None
