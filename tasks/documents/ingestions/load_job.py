"""The job that puts the vectors of several pages into the sink, and writes down what became of each document."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from tasks.documents.context import JobContext
from tasks.documents.faults import DocumentError
from tasks.documents.ingestions.calls import GONE, find, patiently
from tasks.documents.ingestions.manifest import ParsedDocument, read_manifest, read_parsed
from tasks.documents.ingestions.page_vectors import Loading
from tasks.documents.ingestions.pipeline import conflict, stamp
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sinks.types import LoadOutcome
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.types import ListedFault
from tasks.ledger.ingestion_outcomes import DocumentOutcome, DocumentStatus
from tasks.ledger.ingestions import Ingestion, IngestionStatus, Page, PageStage

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


def _load(context: JobContext, ingestion: Ingestion, pages: list[Page], tools: Tools) -> bytes:
    for litter in ingestion.litter:  # of the load before: nothing needs it any more, also when this runs again
        context.progress()
        context.storage.delete(ingestion.page_folder(litter))
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

    def write(self, page: Page) -> list[Any]:
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

    def _of(self, page: Page) -> Iterator[tuple[DocumentOutcome, bool]]:
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
