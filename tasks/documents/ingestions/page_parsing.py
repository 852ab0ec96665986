"""Pages on their way from being listed to being ready for the sink: parsed, cut into chunks, embedded.

What PARSE leaves has the chunks embedded. The step begins pages as far as there is credit, and enqueues what came
to nothing once more.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tasks.documents import deaths
from tasks.documents.context import JobContext, StepContext
from tasks.documents.document_error import DocumentError, DocumentFailed
from tasks.documents.ingestions import ending
from tasks.documents.ingestions.fingerprint import conflict, require_revision, row_options, stamp
from tasks.documents.ingestions.job_tasks import (
    enqueue,
    enqueue_job,
    error_of,
    find,
    forget,
    lost,
    move_on,
    now,
    patiently,
    task_of,
    waits,
)
from tasks.documents.ingestions.manifest import (
    ChunkRows,
    ParsedDocument,
    in_order_of_parsing,
    read_manifest,
    write_manifest,
)
from tasks.documents.ingestions.outcomes import GONE, as_outcome
from tasks.documents.ingestions.tools import Cuts, Parses, Tools
from tasks.documents.parsing.parsed_document import Block, check_chars
from tasks.documents.parsing.refusals import no_text
from tasks.documents.sinks.sink import Receipt, Stamp, Verdict, judge, replaces
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.source import DocumentRef, Fetched, ListedFault
from tasks.documents.submitting import Rows
from tasks.errors import ModelChanged, NotReady, SourceFailed
from tasks.ledger.overview import overview
from tasks.model import Model
from tasks.records.ingestion_operations import Move, move_ingestion
from tasks.records.ingestions import Ingestion, IngestionStatus, PageInFlight, PageStage, WaitingPage
from tasks.storage.row_file import writing_rows

_IN_PROGRESS = (IngestionStatus.IN_PROGRESS,)
_FOR_ALL = {"sink_refused", "sink_dimension_mismatch", "dataset_deleted", ModelChanged.code}
"""What PARSE meets before it looks at a document: no other page would fare better."""
_EMPTY = DocumentError("empty_document", "The document has no text. Leave it out.", "chunking")


# The step.


def step(context: StepContext, ingestion: Ingestion) -> None:
    """Looks at pages whose task has ended or is lost, then begins others."""
    for page in ingestion.pages.values():
        if page.stage is PageStage.PARSE:
            _step_parsing(context, ingestion, page)
        elif page.stage is PageStage.EMBED and page.state is None:  # Redis has lost its task, by whatever hand
            again = PageInFlight(page.number, PageStage.PARSE, page.manifest, page.documents, page.size_bytes)
            move = Move(_IN_PROGRESS, stages={page.number: PageStage.EMBED}, put=[again], add=page.undone)
            move_on(context, ingestion, move)
    _ready(context, ingestion)
    _begin(context, ingestion)


def _step_parsing(context: StepContext, ingestion: Ingestion, page: PageInFlight) -> None:
    parsing = Move(_IN_PROGRESS, stages={page.number: PageStage.PARSE})
    if page.state is None:
        enqueue_job(context, ingestion, "parse", page.number, parsing)
    elif page.state.terminal:
        error = error_of(context, ingestion, "parse", page.number)
        if error is None:
            return
        if error.code in _FOR_ALL:
            ending.stop(context, ingestion, ending.fault_of(error))
        elif deaths.again(error, page.losses):
            tried = dataclasses.replace(page, losses=page.losses + 1)
            move = dataclasses.replace(parsing, put=[tried], set=lost(ingestion, "parse"))
            if context.ledger.run(move_ingestion(ingestion.id, move)).moved:
                forget(context, ingestion, "parse", page.number)
        else:
            failed = dataclasses.replace(page, stage=PageStage.READY, fault=(error.code, error.message))
            move_on(context, ingestion, dataclasses.replace(parsing, put=[failed], add={"pages_parsed": 1}))


def _ready(context: StepContext, ingestion: Ingestion) -> None:
    """Pages whose chunks are embedded are ready for the sink."""
    pages = [
        page
        for page in ingestion.pages.values()
        if page.stage is PageStage.EMBED and page.state is not None and page.state.terminal
    ]
    if pages:
        move = Move(
            _IN_PROGRESS,
            stages={page.number: PageStage.EMBED for page in pages},
            put=[dataclasses.replace(page, stage=PageStage.READY) for page in pages],
            add={
                "chunks_embedded": sum(page.embedded for page in pages),
                "tokens": sum(page.embedding_tokens for page in pages),
            },
        )
        move_on(context, ingestion, move)


def _begin(context: StepContext, ingestion: Ingestion) -> None:
    begun = affordable(ingestion, ingestion.begin_next, context)
    if begun:
        move = Move(
            _IN_PROGRESS,
            begin=begun,
            stages={page.number: None for page in begun},
            put=[begun_page(ingestion, page) for page in begun],
        )
        soon = not waits(ingestion, "parse")
        enqueue(context, ingestion, move, [task_of(ingestion, "parse", page.number) for page in begun] if soon else [])


def begun_page(ingestion: Ingestion, page: WaitingPage) -> PageInFlight:
    """A page whose parsing begins."""
    manifest = ingestion.manifest_name(page.number, page.fence)
    return PageInFlight(page.number, PageStage.PARSE, manifest, page.documents, page.size_bytes)


def affordable(
    ingestion: Ingestion, waiting: Sequence[WaitingPage], context: StepContext | JobContext
) -> list[WaitingPage]:
    """The first of the waiting pages, which may be begun now: chunks that are cut and not loaded take up room."""
    pages, pace = ingestion.pages.values(), context.pace
    worked_on = sum(page.stage in {PageStage.PARSE, PageStage.EMBED} for page in pages)
    parsing = [page for page in pages if page.stage is PageStage.PARSE]
    spent = sum(page.chunks for page in pages) + sum(_expected(ingestion, page.documents) for page in parsing)
    begun: list[WaitingPage] = []
    for page in waiting:
        spent += _expected(ingestion, page.documents)
        full = (
            worked_on + len(begun) >= pace.worked_on
            or len(pages) + len(begun) >= pace.in_flight
            or spent > context.settings.ingest_credit_chunks
        )
        if full and (pages or begun):
            break
        begun.append(page)
    return begun


def _expected(ingestion: Ingestion, documents: int) -> int:
    """Chunks of a page that is not parsed yet: as many per page as those before it had."""
    counts = ingestion.counts
    return -(-counts.chunks // counts.pages_parsed) if counts.pages_parsed else documents


# The job.


def parse_page(context: JobContext, job: str, tools: Tools) -> bytes:
    """Turns a page of documents into chunks, and says of each document what became of it.

    Raises:
        ModelChanged: workers serve another revision than the one that its receipts would name.
        NotStored: its manifest is gone.
        RedisUnavailable: it cannot be done now.
    """
    ingestion, number = find(context, job)
    page = ingestion.pages.get(number) if ingestion else None
    if ingestion is None or page is None or page.stage is not PageStage.PARSE:
        return GONE
    return patiently(context, ingestion, "parse", lambda: _parse(context, ingestion, page, tools))


@dataclass(frozen=True, slots=True)
class Documents:
    """One run of the job: what there is to decide on each document."""

    context: JobContext
    ingestion: Ingestion
    page: PageInFlight
    receipts: Mapping[str, Receipt]
    parser: Parses
    cuts: Cuts
    stamp: Stamp

    def settled(self, fetched: Fetched) -> ParsedDocument | None:
        """A document that goes no further, for what can be told without its text; None: it is to be cut."""
        ref, error = fetched.ref, fetched.error
        if error is not None:
            return ParsedDocument.failed(ref, error)
        receipt = self.receipts.get(ref.id)
        if receipt is None:
            return None
        # What the sink will say: what it refuses as it is now need not be cut and embedded.
        verdict = judge(receipt, self.page.number, fetched.content_hash, self.stamp, ref.origin)
        if verdict is Verdict.DUPLICATE:
            return ParsedDocument.failed(ref, duplicate(None, "loading"), fetched.content_hash)
        same = (receipt.content_hash, receipt.fingerprint) == (fetched.content_hash, self.ingestion.fingerprint)
        if same and receipt.ingestion != self.ingestion.id and self.ingestion.spec.get("mode") != "upsert":
            return ParsedDocument(ref.id, ref.uri, "unchanged", fetched.content_hash)
        if verdict is Verdict.CONFLICT:
            return ParsedDocument.failed(ref, conflict(receipt.origin, ref.origin, "reading"), fetched.content_hash)
        return None

    def replaces(self, fetched: Fetched) -> bool:
        """Whether an earlier ingestion has brought another content under this id."""
        return replaces(self.receipts.get(fetched.ref.id), fetched.content_hash, self.stamp)

    def cut(self, fetched: Fetched, rows: ChunkRows | None) -> ParsedDocument:
        """Parses and cuts a document, chunk by chunk into `rows`; None: it only counts."""
        ref, first = fetched.ref, rows.rows if rows else 0
        chunks = tokens = 0
        try:
            for chunk in self.cuts.chunks(*self._parsed(fetched)):
                if rows:
                    rows.add(chunk)
                chunks, tokens = chunks + 1, tokens + chunk.token_count
                if chunks % 64 == 0:
                    self.context.progress()
        except DocumentFailed as failed:  # rows that it has already are nobody's
            if failed.error.code == _EMPTY.code:
                return self._empty(fetched, failed.error)
            return ParsedDocument.failed(ref, failed.error, fetched.content_hash)
        if not chunks:
            if fetched.text is None:  # a parser has found text in it, and the chunker none: that empties no document
                return ParsedDocument.failed(ref, no_text().error, fetched.content_hash)
            return self._empty(fetched, _EMPTY)
        return self._chunked(fetched, first=first, chunks=chunks, tokens=tokens)

    def _empty(self, fetched: Fetched, error: DocumentError) -> ParsedDocument:
        """A document without text fails; where the sink has an earlier version, it takes that one's place."""
        ref = fetched.ref
        if ref.id not in self.receipts:
            return ParsedDocument.failed(ref, error, fetched.content_hash)
        return self._chunked(fetched, note="emptied")

    def _chunked(
        self, fetched: Fetched, *, first: int = 0, chunks: int = 0, tokens: int = 0, note: str | None = None
    ) -> ParsedDocument:
        ref, content_hash, replaced = fetched.ref, fetched.content_hash, self.replaces(fetched)
        metadata = dict(ref.metadata) if ref.metadata else None
        return ParsedDocument(
            ref.id, ref.uri, "chunked", content_hash, first, chunks, tokens, metadata, ref.origin, None, note, replaced
        )

    def _parsed(self, fetched: Fetched) -> tuple[str, Sequence[Block], Sequence[int]]:
        """The text, its blocks and its pages."""
        if fetched.text is not None:
            check_chars(len(fetched.text))  # cutting takes time and memory by the character, of whatever it is
            return fetched.text, (), ()
        parsed = self.parser.parse(fetched.data or b"", fetched.ref.name)
        return parsed.text, parsed.blocks, parsed.pages


def _parse(context: JobContext, ingestion: Ingestion, page: PageInFlight, tools: Tools) -> bytes:
    queue = context.ledger.run(overview(ingestion.model))[ingestion.model]
    if queue.model is None:
        raise NotReady("No worker has loaded this model yet.")
    require_revision(ingestion, queue.model.revision)
    entries = in_order_of_parsing(read_manifest(context.storage, page.manifest))
    cuts = tools.chunker(context, ingestion, queue.model)
    receipts = _receipts(context, ingestion, entries, tools)
    with tools.parser(context) as parser:
        documents = Documents(context, ingestion, page, receipts, parser, cuts, stamp(ingestion))
        parsed = _write(documents, entries, tools, queue.model, queue.piece_cost)
    return _parsed(documents, entries, parsed)


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What a job has written.

    Attributes:
        name: stored name of what it says of each document.
        rows: its chunks; None: there are none.
        chunks, tokens: of its documents, also where a dry run wrote no rows.
        emptied: documents that have no text any more.
        documents: so many of the page's entries are done.
    """

    name: str
    rows: Rows | None
    chunks: int
    tokens: int
    emptied: int
    documents: int


def _parsed(documents: Documents, entries: list[DocumentRef | ListedFault], parsed: ParsedPage) -> bytes:
    """The outcome of the job: the page is to be embedded, or ready, and its rest waits as another page."""
    page = documents.page
    move = Move(_IN_PROGRESS, stages={page.number: PageStage.PARSE})
    if parsed.documents < len(entries):
        page, move = _divided(documents, entries, parsed.documents, move)
    rows = parsed.rows
    after = dataclasses.replace(
        page,
        stage=PageStage.EMBED if rows else PageStage.READY,
        parsed=parsed.name,
        source=rows.source if rows else "",
        index=rows.index if rows else "",
        chunks=rows.count if rows else 0,
        cut=(parsed.chunks, parsed.tokens),
        emptied=parsed.emptied,
    )
    add = {"chunks": parsed.chunks, "chunk_tokens": parsed.tokens, "pages_parsed": 1}
    move = dataclasses.replace(move, put=[after], add=add)
    return as_outcome(move, page.number, rows)


def _divided(
    documents: Documents, entries: list[DocumentRef | ListedFault], done: int, move: Move
) -> tuple[PageInFlight, Move]:
    """The page with so many of its entries; the move in which the others become a page that waits behind all others."""
    context, ingestion, page = documents.context, documents.ingestion, documents.page
    size_bytes = page.size_bytes * done // len(entries)
    # Where a listing, or another divided page, takes this number before the step, the page is parsed once more.
    number = now(context, ingestion).next_page
    fence = f"{context.fence}p{page.number}"  # not that of a page that this run of the job may have listed
    first = ingestion.manifest_name(page.number, context.fence)
    write_manifest(context.storage, first, iter(entries[:done]))
    write_manifest(context.storage, ingestion.manifest_name(number, fence), iter(entries[done:]))
    rest = WaitingPage(number, fence, len(entries) - done, page.size_bytes - size_bytes)
    return (
        dataclasses.replace(page, manifest=first, documents=done, size_bytes=size_bytes),
        dataclasses.replace(move, equal={"next_page": number}, set={"next_page": number + 1}, wait=[rest]),
    )


def _write(
    documents: Documents,
    entries: list[DocumentRef | ListedFault],
    tools: Tools,
    model: Model,
    piece_cost: int,
) -> ParsedPage:
    context, ingestion = documents.context, documents.ingestion
    folder = ingestion.page_folder(documents.page.number)
    source, index, parsed = (f"{folder}{name}.{context.fence}" for name in ("source", "index", "parsed"))
    storage = context.storage
    with (
        writing_rows(storage, source, index) as lines,
        storage.writing(parsed) as lines_of_documents,
    ):
        rows = ChunkRows(
            lines,
            row_options(ingestion.spec, model),
            piece_cost,
        )
        chunks = tokens = emptied = number = 0
        began = time.monotonic()
        for document in _each(documents, entries, tools, None if ingestion.dry_run else rows):
            lines_of_documents.write(document.to_line())
            chunks, tokens = chunks + document.chunks, tokens + document.tokens
            emptied += document.emptied
            number += 1
            if time.monotonic() - began > context.pace.parsing_s:
                break
    if not rows.rows:
        storage.delete(source)
        storage.delete(index)
    written = Rows(source, index, rows.rows, rows.pieces) if rows.rows else None
    return ParsedPage(parsed, written, chunks, tokens, emptied, number)


def _each(
    documents: Documents, entries: list[DocumentRef | ListedFault], tools: Tools, rows: ChunkRows | None
) -> Iterator[ParsedDocument]:
    refs = [entry for entry in entries if isinstance(entry, DocumentRef)]
    faults = [entry for entry in entries if isinstance(entry, ListedFault)]
    try:
        source = tools.source(documents.context, documents.ingestion) if refs else None
    except SourceFailed as failed:  # such as a root that is allowed no more
        error = DocumentError(failed.code, failed.detail, "reading")
        yield from (ParsedDocument.failed(ref, error) for ref in refs)
        source = None
    if source is not None:
        for fetched in source.read(refs):
            documents.context.progress()
            yield documents.settled(fetched) or documents.cut(fetched, rows)
    yield from (ParsedDocument.failed(fault, fault.error) for fault in faults)


def _receipts(
    context: JobContext, ingestion: Ingestion, entries: list[DocumentRef | ListedFault], tools: Tools
) -> Mapping[str, Receipt]:
    ids = [entry.id for entry in entries if isinstance(entry, DocumentRef)]
    if not ids:
        return {}
    sink = tools.sink(context, ingestion)
    try:
        return sink.known(ids)
    finally:
        sink.close()
