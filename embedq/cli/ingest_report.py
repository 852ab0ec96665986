"""What `embedq ingest` prints of an ingestion: its state in one line, its failures, and its end."""

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, TypeVar

from embedq.cli.output import Output
from embedq.cli.progress import Details, shown_rate
from embedq.errors import EmbedqClientError
from embedq.ingestions import DocumentWarning, FailedDocument, Ingestion, Ingestions, WarnedDocument

T = TypeVar("T")

SHOWN_FAILURES = 10
"""And as many documents with warnings."""
_WAITS = {
    "disk_full": "room in the server's storage, which is full",
    "model": "a worker that has loaded the model",
    "sink": "the sink, which does not answer",
    "storage": "the server's storage, which does not answer",
    "worker": "another try, as its workers died",
}
"""`waiting_for` of a server that does not say it in words itself."""
_OPTIONS = {
    "source.fields.text": "--text-field",
    "source.fields.id": "--id-field",
    "source.fields.metadata": "--metadata-field",
    "chunking.static.max_chunk_size_tokens": "--chunk-tokens",
    "max_chunk_size_tokens": "--chunk-tokens",
    "chunking.static.chunk_overlap_tokens": "--overlap",
    "chunk_overlap_tokens": "--overlap",
    "sink.dataset": "--out",
    "sink.name": "the connection in --out",
    "sink.table": "the table in --out",
    "prompt_name": "--prompt-name",
    "on_conflict": "--on-conflict",
}
"""Fields of a request, and the options that set them: the user has typed options."""
_FIELD = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)" for name in _OPTIONS))


def as_options(text: str) -> str:
    """A message of the server, with options where it names fields."""
    return _FIELD.sub(lambda match: _OPTIONS[match[0]], text)


def in_options(error: EmbedqClientError) -> EmbedqClientError:
    """An error of the server, with options where it names fields; its `param` stays."""
    return error.reworded(as_options(error.message), error.param)


def describe(ingestion: Ingestion) -> str:
    """The state of an ingestion, in one line."""
    of_all = f"/{ingestion.total:,}" if ingestion.listing_complete else ""
    parts = [f"{ingestion.id} {ingestion.status}: {ingestion.done - ingestion.cancelled:,}{of_all} documents"]
    parts += [f"{ingestion.unchanged:,} unchanged"] if ingestion.unchanged else []
    replaced = ingestion.raw["file_counts"].get("replaced")
    parts += [f"{replaced:,} replaced"] if replaced else []
    emptied = ingestion.raw["file_counts"].get("emptied")
    parts += [f"{emptied:,} emptied"] if emptied else []
    parts += [f"{ingestion.warned:,} with warnings"] if ingestion.warned else []
    parts += [f"{ingestion.failed:,} failed"] if ingestion.failed else []
    parts += [f"{ingestion.cancelled:,} cancelled"] if ingestion.cancelled else []
    deleted = ingestion.raw["file_counts"].get("deleted")
    parts += [f"{deleted:,} deleted"] if deleted else []
    parts += [_chunks(ingestion)]
    parts += [f"about {ingestion.eta_s:,.0f} s left"] if ingestion.eta_s is not None and not ingestion.ended else []
    waiting = _waiting(ingestion)
    parts += [waiting] if waiting else []
    if ingestion.raw.get("dry_run") and ingestion.raw.get("estimate_s") is not None:
        parts += [f"{ingestion.tokens:,} tokens, about {ingestion.raw['estimate_s']:,.0f} s to embed"]
    return ", ".join(parts)


def progress_details(ingestion: Ingestion) -> Details:
    """What its progress shows besides documents. Only the server knows how far documents under way are."""
    waiting = _waiting(ingestion)
    fields = {
        "chunks": ingestion.chunks,
        "embedded": ingestion.embedded,
        "chunks_per_s": ingestion.chunks_per_s,
        "waiting_for": ingestion.raw.get("waiting_for") if waiting else None,
    }
    rate = f" at {shown_rate(ingestion.chunks_per_s)}" if ingestion.chunks_per_s else ""
    text = f"{waiting}, {_chunks(ingestion)}" if waiting else _chunks(ingestion) + rate
    return Details(text, fields, None if ingestion.ended or waiting else ingestion.eta_s)


def _waiting(ingestion: Ingestion) -> str | None:
    """Why it does not go on, where it continues by itself afterwards."""
    what, why = ingestion.raw.get("waiting_for"), ingestion.raw.get("waiting")
    if why:
        # Between two pages it is in line again and again.
        moves = why["code"] == "working" or (why["code"] == "in_line" and ingestion.embedded)
        return None if moves else str(why["message"]).rstrip(".")
    return f"waiting for {_WAITS.get(what, f'the {what}')}" if what and not ingestion.ended else None


def _chunks(ingestion: Ingestion) -> str:
    if ingestion.raw.get("dry_run") or ingestion.embedded >= ingestion.chunks:
        return f"{ingestion.chunks:,} chunks"
    return f"{ingestion.embedded:,} of {ingestion.chunks:,} chunks embedded"


async def list_failures(server: Ingestions, ingestion_id: str, output: Output) -> int:
    """Prints every document that has failed; returns how many there are."""
    count = 0
    async with aclosing(server.failed(ingestion_id)) as documents:
        async for document in documents:
            message = as_options(document.message)
            fields = {"document": document.id, "code": document.code, "message": message, "stage": document.stage}
            output.result(_failure(document), fields)
            count += 1
    return count


def _failure(document: FailedDocument) -> str:
    return f"{document.id} failed: {document.code}: {as_options(document.message)}"


async def list_warnings(server: Ingestions, ingestion_id: str, output: Output) -> None:
    """Prints every document that could not be read whole."""
    async with aclosing(server.warned(ingestion_id)) as documents:
        async for document in documents:
            output.result(_warned(document), _warned_fields(document))


def _warned_fields(document: WarnedDocument) -> dict[str, Any]:
    return {"document": document.id, "warnings": [asdict(warning) for warning in document.warnings]}


def _warned(document: WarnedDocument) -> str:
    return f"{document.id}: {' '.join(map(_warning, document.warnings))}"


def _warning(warning: DocumentWarning) -> str:
    pages = f"{'page' if len(warning.pages) == 1 else 'pages'} {_ranges(warning.pages)}: " if warning.pages else ""
    return f"{warning.code}: {pages}{warning.message}"


def _ranges(numbers: Sequence[int]) -> str:
    """Such as 2-10, 14."""
    spans = list[list[int]]()
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


async def report(
    server: Ingestions, ended: Ingestion, output: Output, *, not_sent: Sequence[FailedDocument] = ()
) -> None:
    """Prints the first of the failures and of the warnings, and the end of the whole.

    `not_sent`: documents that failed on this side, and that the server does not know of.
    """
    failed = [*not_sent[:SHOWN_FAILURES]]
    if ended.failed:
        failed += await _first(SHOWN_FAILURES - len(failed), server.failed(ended.id))
    for document in failed:
        output.note(_failure(document), document=document.id, code=document.code)
    more = ended.failed + len(not_sent) - len(failed)
    if more > 0:
        output.note(f"{more:,} more documents failed; all of them: embedq ingest --errors {ended.id}", more=more)
    await _report_warned(server, ended, output)
    for warning in _warnings(ended):
        output.note(warning)
    if ended.error:
        output.note(f"it failed: {ended.error[0]}: {as_options(ended.error[1])}", code=ended.error[0])
    if ended.resumable:
        output.note(f"when that is mended it goes on where it was: embedq ingest --retry {ended.id}", id=ended.id)
    unsent = f", and {len(not_sent):,} more not sent" if not_sent else ""
    output.result(describe(ended) + unsent, {**ended.raw, "not_sent": len(not_sent)})


async def _first(number: int, documents: AsyncGenerator[T, None]) -> list[T]:
    found = list[T]()
    async with aclosing(documents):
        while len(found) < number and (document := await anext(documents, None)) is not None:
            found.append(document)
    return found


async def _report_warned(server: Ingestions, ended: Ingestion, output: Output) -> None:
    warned = await _first(SHOWN_FAILURES, server.warned(ended.id)) if ended.warned else []
    for document in warned:
        output.note(_warned(document), **_warned_fields(document))
    if (more := ended.warned - len(warned)) > 0:
        output.note(f"{more:,} more documents have warnings; all of them: embedq ingest --errors {ended.id}", more=more)


def _warnings(ended: Ingestion) -> Iterator[str]:
    """What the server says, and what became of documents that somebody may not have expected."""
    counts = ended.raw["file_counts"]
    yield from map(str, ended.raw.get("warnings") or ())
    if ended.raw.get("mode") == "skip_unchanged" and (replaced := counts.get("replaced")):
        yield f"{replaced:,} took the place of other content under the same id: changed, or of another folder"
    if emptied := counts.get("emptied"):
        yield f"{emptied:,} have no text any more, and their chunks were deleted: is that what you meant?"
