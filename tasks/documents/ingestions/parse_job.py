"""The job that turns a page of documents into chunks."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tasks.documents.context import JobContext
from tasks.documents.document_error import DocumentError, DocumentFailed
from tasks.documents.ingestions.fingerprint import conflict, require_revision, row_options, stamp
from tasks.documents.ingestions.job_calls import GONE, find, patiently
from tasks.documents.ingestions.manifest import ChunkRows, ParsedDocument, read_manifest, write_manifest
from tasks.documents.ingestions.tools import Cuts, Parses, Tools
from tasks.documents.parsing.parsed_document import Parsed, check_chars
from tasks.documents.sinks.sink import Receipt, Stamp, Verdict, judge, replaces
from tasks.documents.sources.page import duplicate
from tasks.documents.sources.source import DocumentRef, Fetched, ListedFault
from tasks.errors import NotReady, SourceFailed
from tasks.ledger import ModelEntry, operations
from tasks.ledger.overview import ServedModel
from tasks.records.ingestions import Ingestion, PageInFlight, PageStage

ENOUGH_S = 30.0
"""After this time it hands the rest of its page back: other jobs wait, and each of 64 files may take a while."""
_EMPTY = DocumentError("empty_document", "The document has no text.", "chunking")


def parse_page(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON.

    It holds stored names of the `source` and `index` of its chunks ("" without any) and of what it says of each
    document (`parsed`), numbers of `rows`, `chunks`, `tokens` and `emptied` documents, and `units` as `ChunkRows` cut
    them. Where it stopped early, `done` is the manifest of what it has done, `rest` that of the others: stored name,
    number of documents and bytes of each.

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


def _parse(context: JobContext, ingestion: Ingestion, page: PageInFlight, tools: Tools) -> bytes:
    overview = context.ledger.run(operations.overview(ingestion.model)).get(ingestion.model)
    if overview is None or overview.entry is None:
        raise NotReady("No worker has loaded this model yet.")
    require_revision(ingestion, overview.entry.revision)
    # Documents first: that is the order in which they are done.
    entries = sorted(read_manifest(context.storage, page.manifest), key=lambda entry: isinstance(entry, ListedFault))
    cuts = tools.chunker(context, ingestion, overview.entry)
    receipts = _receipts(context, ingestion, entries, tools)
    with tools.parser(context) as parser:
        documents = Documents(context, ingestion, page, receipts, parser, cuts, stamp(ingestion))
        return _write(documents, entries, tools, overview.entry, ServedModel.from_overview(ingestion.model, overview))


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
            return ParsedDocument(ref.id, ref.uri, "unchanged", content_hash=fetched.content_hash)
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
            parsed = self._parsed(fetched)
            for chunk in self.cuts.chunks(parsed.text, parsed.blocks, parsed.pages):
                if chunks % 64 == 0:
                    self.context.progress()
                if rows:
                    rows.add(chunk)
                chunks, tokens = chunks + 1, tokens + chunk.token_count
        except DocumentFailed as failed:  # rows that it has already are nobody's
            if failed.error.code == _EMPTY.code:
                return self._empty(fetched, failed.error)
            return ParsedDocument.failed(ref, failed.error, fetched.content_hash)
        if not chunks:
            return self._empty(fetched, _EMPTY)
        return ParsedDocument(
            ref.id,
            ref.uri,
            "chunked",
            ref=ref.to_json(),
            content_hash=fetched.content_hash,
            first=first,
            chunks=chunks,
            tokens=tokens,
            replaces=self.replaces(fetched),
        )

    def _empty(self, fetched: Fetched, error: DocumentError) -> ParsedDocument:
        """A document without text fails; where the sink has an earlier version, it takes that one's place."""
        ref = fetched.ref
        if ref.id not in self.receipts:
            return ParsedDocument.failed(ref, error, fetched.content_hash)
        return ParsedDocument(
            ref.id,
            ref.uri,
            "chunked",
            ref=ref.to_json(),
            content_hash=fetched.content_hash,
            note="emptied",
            replaces=self.replaces(fetched),
        )

    def _parsed(self, fetched: Fetched) -> Parsed:
        if fetched.text is not None:
            check_chars(len(fetched.text))  # cutting takes time and memory by the character, of whatever it is
            return Parsed(fetched.text)
        return self.parser.parse(fetched.data or b"", fetched.ref.name)


def _write(
    documents: Documents,
    entries: list[DocumentRef | ListedFault],
    tools: Tools,
    entry: ModelEntry,
    served: ServedModel,
) -> bytes:
    context, ingestion, settings = documents.context, documents.ingestion, documents.context.settings
    folder = ingestion.page_folder(documents.page.number)
    source, index, parsed = (f"{folder}{name}.{context.fence}" for name in ("source", "index", "parsed"))
    storage = context.storage
    with storage.writing(source) as lines, storage.writing(index) as places, storage.writing(parsed) as said:
        rows = ChunkRows(
            lines,
            places,
            row_options(ingestion.spec, entry),
            max_items=settings.unit_max_items,
            max_cost=served.unit_cost(settings.unit_max_tokens, settings.unit_s),
        )
        chunks = tokens = emptied = number = 0
        began = time.monotonic()
        for document in _each(documents, entries, tools, None if ingestion.dry_run else rows):
            said.write(document.to_line())
            chunks, tokens = chunks + document.chunks, tokens + document.tokens
            emptied += document.emptied
            number += 1
            if time.monotonic() - began > ENOUGH_S:
                break
    if not rows.rows:
        storage.delete(source)
        storage.delete(index)
        source = index = ""
    return orjson.dumps(
        {
            "parsed": parsed,
            "source": source,
            "index": index,
            "rows": rows.rows,
            "chunks": chunks,
            "tokens": tokens,
            "units": rows.units,
            "emptied": emptied,
            **_divided(documents, entries, number),
        }
    )


def _divided(documents: Documents, entries: list[DocumentRef | ListedFault], number: int) -> dict[str, Any]:
    """The page as two, where only the first so many of its entries are done."""
    if number == len(entries):
        return {}
    context, ingestion, page = documents.context, documents.ingestion, documents.page
    done, rest = entries[:number], entries[number:]
    size_bytes = page.size_bytes * number // len(entries)
    names = (
        ingestion.manifest_name(page.number, context.fence),
        # The ending tells it from the rest of any other page: a step that is late may write both in the same place.
        f"{ingestion.page_folder(page.number)}rest.{context.fence}p{page.number}",
    )
    for name, some in zip(names, (done, rest), strict=True):
        write_manifest(context.storage, name, iter(some))
    return {
        "done": [names[0], len(done), size_bytes],
        "rest": [names[1], len(rest), page.size_bytes - size_bytes],
    }


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
