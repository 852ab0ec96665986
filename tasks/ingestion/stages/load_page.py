"""LOAD: puts a page into the dataset, in one transaction, and says what became of each document."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tasks.chunk import Chunk
from tasks.datasets.loads import DocumentLoad, DocumentState, LoadOutcome, UnreadPart, Verdict
from tasks.datasets.who_wins import StaleError
from tasks.document_error import DocumentError, warnings_to_json
from tasks.errors import ModelChanged
from tasks.ingestion.context import StageContext
from tasks.ingestion.dry_run import count_by_status, counted
from tasks.ingestion.embedded_rows import EmbeddedRow, EmbeddedRows
from tasks.ingestion.pipeline import open_dataset, record_of, require_revision
from tasks.ingestion.skip_unchanged import stamp
from tasks.ingestion.sources.page import duplicate
from tasks.item import TextError, Vector
from tasks.ledger.read import read_result
from tasks.ledger.task import Result
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.records.jobs import Counts, Page, Stage
from tasks.storage.vectors_file import VectorsReference

_NOT_EMBEDDED = TextError("not_embedded", "The document's chunks were not turned into vectors. Try it again.")
_SUPERSEDED = "A newer ingestion has loaded this document, and its version stays."
_AGAIN = {"again": True}


def load_page(context: StageContext) -> dict[str, Any]:
    """The lines (`obj`) and `counts` of a page that is done; or that it is to be parsed `again`.

    Of a dry run only what has failed as a whole comes here: its documents are said to have failed.

    Raises:
        Invalid: the dataset can never take it.
        ModelChanged: another revision than the one that its receipts would name made some of the vectors.
        NotStored: its lines, chunks or vectors are gone.
        Unavailable: not now.
    """
    page = context.job.pages[context.number]
    embedded = context.ledger.run(read_result(context.job.record.task_id(context.number, Stage.EMBED)))
    if page.chunks and embedded is None:
        return _AGAIN
    lines = _lines(context, page)
    if record_of(context).dry_run:
        return counted(context, lines, page.size_bytes)
    loading = _Loading(context, page, embedded)
    try:
        with closing(open_dataset(context)) as store:
            outcomes = store.load(loading.of(lines), stamp(context.job), context.progress)
    except StaleError:  # it has changed since PARSE found a document unchanged
        return _AGAIN
    return _loaded(context, page, lines, loading.failures, outcomes)


def _lines(context: StageContext, page: Page) -> list[Document]:
    """What PARSE says of each document; of a page that failed as a whole, the same of all."""
    lines = list(read_documents(context.storage, page.obj or page.src))
    if page.fault is None:
        return lines
    error = DocumentError(page.fault.code, page.fault.message, "parsing")
    return [line.failed(error) if line.is_to_read else line for line in lines]


class _Loading:
    """The documents of a page with their vectors, one document in memory at a time.

    `failures`: by position, the documents whose chunks are not all vectors; complete once all have been taken.
    """

    def __init__(self, context: StageContext, page: Page, embedded: Result | None) -> None:
        self._context, self._page, self._embedded = context, page, embedded
        self.failures: dict[int, DocumentError] = {}

    def of(self, lines: Sequence[Document]) -> Iterator[DocumentLoad | UnreadPart]:
        """What is loaded, in order; of what was loaded before nothing."""
        rows = iter(self._rows())
        for at, line in enumerate(lines):
            if line.ended:
                continue
            loaded = _load(line, rows, record_of(self._context).dimension or 0)
            if isinstance(loaded, DocumentError):
                self.failures[at] = loaded
                loaded = _failed(line)
            yield loaded

    def _rows(self) -> Iterator[EmbeddedRow]:
        context, page, embedded = self._context, self._page, self._embedded
        if not page.chunks or embedded is None:
            return iter(())
        if embedded.task.model_changed:
            raise ModelChanged("Workers came to serve another model while the page was embedded. Start it again.")
        for revision in {VectorsReference.from_json(piece.data).revision for piece in embedded.pieces}:
            if revision:
                require_revision(record_of(context), revision)
        return iter(EmbeddedRows(context.storage, page.rows, page.chunks, embedded, _NOT_EMBEDDED, context.progress))


def _load(line: Document, rows: Iterator[EmbeddedRow], dimension: int) -> DocumentLoad | UnreadPart | DocumentError:
    if line.part and line.status is DocumentStatus.FAILED:
        return UnreadPart(line.part)
    if line.status is DocumentStatus.FAILED:
        return _failed(line)
    same = (line.content_hash, line.origin)
    if line.status is DocumentStatus.UNCHANGED:
        return DocumentLoad(line.id, line.uri, DocumentState.UNCHANGED, *same)
    chunks: list[Chunk] = []
    vectors: list[npt.NDArray[np.float32]] = []
    error: DocumentError | None = None
    for number, row, outcome in () if line.emptied else rows:
        if number < line.first:
            continue  # of a document that failed when it was cut half
        if isinstance(outcome, Vector) and outcome.vector is not None:
            chunks.append(_chunk(row))
            vectors.append(outcome.vector)
        else:
            error = error or _error(outcome)
        if number == line.first + line.chunks - 1:
            break
    if error is not None:
        return error
    read = DocumentLoad(line.id, line.uri, DocumentState.NEW, *same, line.metadata, chunks, _joined(vectors, dimension))
    return read._replace(warnings=warnings_to_json(line.warnings))


def _failed(line: Document) -> DocumentLoad:
    return DocumentLoad(line.id, line.uri, DocumentState.FAILED, origin=line.origin)


def _chunk(row: bytes) -> Chunk:
    fields = orjson.loads(row)
    index, start, end, page, headings, tokens, truncated = fields["place"]
    return Chunk(index, fields["text"], start, end, page, tuple(headings), tokens, truncated)


def _joined(vectors: Sequence[npt.NDArray[np.float32]], dimension: int) -> npt.NDArray[np.float32]:
    if len(vectors) == 1:  # as of most records
        return vectors[0][np.newaxis]
    return np.stack(vectors) if vectors else np.empty((0, dimension), np.float32)


def _error(outcome: Vector | TextError) -> DocumentError:
    error = (outcome.error or _NOT_EMBEDDED) if isinstance(outcome, Vector) else outcome
    return DocumentError(error.code, error.message, "embedding")


# ---- what became of them ---------------------------------------------------------------------------------------------


def _loaded(
    context: StageContext,
    page: Page,
    lines: Sequence[Document],
    failures: Mapping[int, DocumentError],
    outcomes: Sequence[LoadOutcome],
) -> dict[str, Any]:
    obj, replaced, found = context.name("loaded"), 0, iter(outcomes)
    became = list[Document]()
    for at, line in enumerate(lines):
        if line.ended:
            became.append(line)
            continue
        outcome = next(found)
        replaced += outcome.verdict is Verdict.REPLACED and at not in failures
        became.append(_became(line, outcome, failures.get(at)))
    kept = write_documents(context.storage, obj, became)
    return {"obj": obj, "counts": [*_counts(page, became, replaced)._replace(kept=kept)]}


def _became(line: Document, outcome: LoadOutcome, failure: DocumentError | None) -> Document:
    if line.status is DocumentStatus.FAILED:
        return line._replace(ended=not line.is_to_read)
    error = failure or _refused(line, outcome)
    if error is not None:
        return line.failed(error)
    if outcome.verdict is Verdict.SUPERSEDED:  # the newer version stays as it is
        superseded = line._replace(code="superseded", message=_SUPERSEDED, warnings=())
        return superseded.done(DocumentStatus.UNCHANGED)
    if outcome.verdict is Verdict.UNCHANGED:
        return line.done(DocumentStatus.UNCHANGED)
    return line._replace(chunks=outcome.chunks).done(DocumentStatus.LOADED)


def _refused(line: Document, outcome: LoadOutcome) -> DocumentError | None:
    if outcome.verdict is Verdict.DUPLICATE:
        return duplicate(outcome.other, "loading")
    if outcome.verdict is not Verdict.CONFLICT:
        return None
    message = (
        f"The sink has a document with this id, of {outcome.other!r:.200}; this one is of {line.uri!r:.200}. "
        "Give each its own with source.fields.id, name another sink, or let it be replaced: "
        'on_conflict "replace", or the mode upsert or sync.'
    )
    return DocumentError("id_conflict", message, "loading")


def _counts(page: Page, lines: Sequence[Document], replaced: int) -> Counts:
    became = count_by_status(lines)
    loaded = [line for line in lines if line.status is DocumentStatus.LOADED]
    was = page.was.counts if page.was else Counts()
    return Counts(
        documents=became.total(),
        loaded=became[DocumentStatus.LOADED],
        unchanged=became[DocumentStatus.UNCHANGED],
        failed=became[DocumentStatus.FAILED],
        replaced=was.replaced + replaced,
        emptied=sum(line.code == "emptied" for line in loaded),
        warned=sum(bool(line.warnings) for line in lines),
        chunks=was.loaded_chunks + page.chunks,
        loaded_chunks=sum(line.chunks for line in loaded),
        tokens=was.tokens + page.tokens,
        chunk_tokens=sum(line.tokens for line in lines),
        bytes=page.size_bytes,
    )
