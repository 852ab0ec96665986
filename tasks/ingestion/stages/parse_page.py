"""PARSE: turns the documents of a page into chunks, and says of each document what became of it."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tasks.chunk import Chunk
from tasks.datasets.loads import Receipt
from tasks.document_error import DocumentError, DocumentFailed, DocumentWarning, warnings_from_json
from tasks.errors import SourceFailed
from tasks.ingestion.context import StageContext
from tasks.ingestion.dry_run import counted
from tasks.ingestion.parsing.extracted import Extracted, Structure, check_chars
from tasks.ingestion.parsing.refusals import no_text
from tasks.ingestion.pipeline import make_chunker, open_dataset, open_sandbox, open_source, record_of, served_model
from tasks.ingestion.rows_writer import RowsWriter, writing_rows
from tasks.ingestion.skip_unchanged import row_options
from tasks.ingestion.sources.page import FULL_PAGE
from tasks.ingestion.sources.record import Range
from tasks.ingestion.sources.source import Fetched, alike, divided, holds
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.records.jobs import Counts, Page
from tasks.storage.rows_file import row_of

_EMPTY = DocumentError("empty_document", "The document has no text. Leave it out.", "chunking")
_NOTE = "The document has no text any more: its earlier chunks were deleted."
_PROGRESS_EVERY = 64
_TOGETHER_CHARS = 4 * 2**20
"""Of records that are in memory at once; one may have more."""


def parse_page(context: StageContext) -> dict[str, Any]:
    """The lines (`obj`) and chunks (`rows`, `pieces`) of a page; what its turn left over is the `rest`.

    A page of a dry run is done with that: its lines and its `counts`.

    Raises:
        ModelChanged: workers serve another revision than the one that its receipts would name.
        NotStored: its lines are gone.
        Unavailable: not now.
    """
    page, record = context.job.pages[context.number], record_of(context)
    queue, model = served_model(context)
    lines = list(read_documents(context.storage, page.src))
    todo = [line.as_listed() for line in lines if line.is_to_read]
    cuts, rows_name = make_chunker(context.storage, record, model), context.name("rows")
    with open_sandbox(context) as sandbox, writing_rows(context.storage, rows_name) as writer:
        rows = _Rows(None if record.dry_run else writer, row_options(record.request, model), queue.piece_cost)
        parsed, last = _in_turn(context, _Cutting(context, sandbox, cuts, rows), todo)
    if not writer.rows:
        context.storage.delete(rows_name)
    done = list(_merged(lines, parsed))
    read, left = _parts(lines, last) if last else (lines, ())
    made = _divided(context, page, read, left) if left else {}
    made["documents"] = sum(line.documents for line in done)
    if record.dry_run:
        return made | counted(context, done, made.get("bytes", page.size_bytes))
    obj = context.name("parsed")
    write_documents(context.storage, obj, done)
    return made | {
        "obj": obj,
        "rows": rows_name if writer.rows else "",
        "chunks": writer.rows,
        "chunk_tokens": sum(line.tokens for line in parsed),
        "pieces": writer.pieces,
    }


def _merged(lines: Sequence[Document], parsed: Sequence[Document]) -> Iterator[Document]:
    """All lines of the page, in order, without those that are left over: for a range of records all that were in it."""
    found = deque(parsed)
    for line in lines:
        if not line.is_to_read:
            yield line
        while line.is_to_read and found and holds(line, found[0]):
            yield found.popleft()


def _known(context: StageContext, ids: Sequence[str]) -> Mapping[str, Receipt]:
    if not ids:
        return {}
    with closing(open_dataset(context)) as store:
        return store.known(ids)


def _in_turn(
    context: StageContext, cutting: "_Cutting", todo: Sequence[Document]
) -> tuple[list[Document], Document | None]:
    """Documents as they are done, as many as there is time for; the last of them, if that was over before their end."""
    parsed, lines, began = list[Document](), deque(todo), time.monotonic()
    for document in cutting.each(todo):
        same_line = bool(parsed) and holds(lines[0], document)  # between two lines there may be what is done already
        while not holds(lines[0], document):
            lines.popleft()
        both = alike(parsed[-1], document) if same_line else None
        parsed[len(parsed) - bool(both) :] = [both or document]
        if time.monotonic() - began > context.pace.parsing_s:
            return parsed, document
    return parsed, None


def _parts(lines: Sequence[Document], last: Document) -> tuple[list[Document], list[Document]]:
    """Lines of what has been read, up to a document, and of what is not to be read; lines of what is left."""
    read, left, passed = list[Document](), list[Document](), False
    for line in lines:
        if not line.is_to_read:
            read.append(line)
        elif passed:
            left.append(line)
        elif passed := holds(line, last):
            parts: tuple[Document | None, Document | None] = (line, None)
            if last.record is not None:
                parts = divided(line, Range(*line.record).behind(Range(*last.record)))
            read += filter(None, parts[:1])
            left += filter(None, parts[1:])
        else:
            read.append(line)
    return read, left


def _divided(context: StageContext, page: Page, read: Sequence[Document], left: Sequence[Document]) -> dict[str, Any]:
    """The page is divided: what it has now, and the page of what is left. Both keep their lines as they were.

    `counts`: of the rest, where the page is done and tried again.
    """
    rest, src = context.name("rest"), context.name("listed")
    kept = {name: write_documents(context.storage, name, lines) for name, lines in ((rest, left), (src, read))}
    documents = sum(line.documents for line in left)
    counts = Counts(
        documents=documents,
        failed=documents,
        chunks=sum(line.chunks for line in left),
        chunk_tokens=sum(line.tokens for line in left),
        bytes=page.size_bytes * documents // sum(line.documents for line in (*read, *left)),
        kept=kept[rest],
    )
    return {
        "rest": {"obj": rest, "documents": documents, "bytes": counts.bytes, "counts": [*counts]},
        "src": src,
        "src_kept": kept[src],
        "bytes": page.size_bytes - counts.bytes,
    }


@dataclass
class _Rows:
    """Where chunks go; nowhere in a dry run, which only counts."""

    writer: RowsWriter | None
    options: Mapping[str, Any]
    piece_cost: int

    @property
    def number(self) -> int:
        return self.writer.rows if self.writer else 0

    def add(self, chunk: Chunk) -> None:
        if self.writer is not None:
            place = [
                chunk.index,
                chunk.start,
                chunk.end,
                chunk.page,
                chunk.headings,
                chunk.token_count,
                chunk.truncated,
            ]
            row = row_of(chunk.text, self.options, place=place)
            self.writer.add(row, max(1, chunk.token_count), self.piece_cost)


def _together(found: Iterable[Fetched]) -> Iterator[list[Fetched]]:
    """Records that are looked up at once; no more than one file, which may be large."""
    some, chars = list[Fetched](), 0
    for fetched in found:
        some.append(fetched)
        chars += len(fetched.text or "")
        if fetched.text is None or chars > _TOGETHER_CHARS or len(some) == FULL_PAGE.records:
            yield some
            some, chars = [], 0
    if some:
        yield some


@dataclass
class _Cutting:
    """What there is to decide on each document of a run."""

    context: StageContext
    sandbox: Any
    cuts: Any
    rows: _Rows
    known: Mapping[str, Receipt] = field(default_factory=dict)

    def each(self, todo: Sequence[Document]) -> Iterator[Document]:
        """Each document as it is done, in order."""
        try:
            source = open_source(self.context, self.sandbox) if todo else None
        except SourceFailed as failed:  # such as a root that is allowed no more
            error = DocumentError(failed.code, failed.detail, "reading")
            yield from (line.failed(error) for line in todo)
            return
        files = _known(self.context, [line.id for line in todo if line.record is None])
        for found in _together(source.read(todo) if source else ()):
            records = _known(self.context, [one.ref.id for one in found if one.ref.record is not None])
            self.known = {**files, **records}
            for fetched in found:
                self.context.progress()
                yield self._settled(fetched) or self._cut(fetched)

    def _settled(self, fetched: Fetched) -> Document | None:
        """A document that goes no further, for what can be told without its text; None: it is to be cut."""
        line, receipt, record = fetched.ref, self.known.get(fetched.ref.id), record_of(self.context)
        before = (receipt.content_hash, receipt.fingerprint) if receipt else None
        same = before == (fetched.content_hash, record.fingerprint)
        # What could not be read has no hash, and nor has the receipt of a document that failed.
        if receipt and fetched.content_hash and same and record.request.get("mode") != "upsert":
            unchanged = line._replace(status=DocumentStatus.UNCHANGED, content_hash=fetched.content_hash)
            return unchanged.warned(warnings_from_json(receipt.warnings))
        return line.failed(fetched.error) if fetched.error is not None else None

    def _cut(self, fetched: Fetched) -> Document:
        """Reads and cuts a document, chunk by chunk into the rows."""
        line, first = fetched.ref, self.rows.number
        chunks = tokens = 0
        try:
            text, structure, pages, warnings = self._text(fetched)
            for chunk in self.cuts.chunks(text, structure, pages):
                self.rows.add(chunk)
                chunks, tokens = chunks + 1, tokens + chunk.token_count
                if chunks % _PROGRESS_EVERY == 0:
                    self.context.progress()
        except DocumentFailed as failed:  # rows that it has already are nobody's
            if failed.error.code == _EMPTY.code:
                return self._empty(fetched, failed.error)
            return line.failed(failed.error, fetched.content_hash)
        if not chunks:
            if fetched.text is None:  # a reader has found text in it, and the chunker none: that empties no document
                return line.failed(no_text().error, fetched.content_hash)
            return self._empty(fetched, _EMPTY)
        cut = line._replace(status=DocumentStatus.PARSING, content_hash=fetched.content_hash)
        return cut._replace(first=first, chunks=chunks, tokens=tokens).warned(warnings)

    def _empty(self, fetched: Fetched, error: DocumentError) -> Document:
        """A document without text fails; where the dataset has an earlier version, it takes that one's place."""
        line = fetched.ref
        receipt = self.known.get(line.id)
        if receipt is None or not receipt.content_hash:
            return line.failed(error, fetched.content_hash)
        cut = line._replace(status=DocumentStatus.PARSING, content_hash=fetched.content_hash)
        return cut._replace(code="emptied", message=_NOTE)

    def _text(self, fetched: Fetched) -> tuple[str, Structure | None, Sequence[int], Sequence[DocumentWarning]]:
        """See `Extracted`. Of a record nobody knows the structure."""
        if fetched.text is not None:
            check_chars(len(fetched.text))  # cutting takes time and memory by the character, of whatever it is
            return fetched.text, None, (), ()
        read: Extracted = self.sandbox.read(fetched.data or b"", fetched.ref.name)
        return read.text, read.structure, read.pages, read.warnings
