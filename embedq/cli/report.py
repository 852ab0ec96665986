"""What is said about an ingestion: one line of where it is, and at its end what became of the documents."""

from collections.abc import Sequence
from contextlib import aclosing

from embedq.cli.output import Output
from embedq.cli.wording import as_options
from embedq.ingestion import FailedDocument, Ingestion
from embedq.ingestions import Ingestions
from embedq.progress import Beside, shown_rate

SHOWN_FAILURES = 10
_WAITS = {
    "disk_full": "room in the server's storage, which is full",
    "model": "a worker that has loaded the model",
    "sink": "the sink, which does not answer",
    "storage": "the server's storage, which does not answer",
    "worker": "another try, as its workers died",
}
"""What the server calls it, and what that means."""


def describe(found: Ingestion) -> str:
    """Where an ingestion is, in one line."""
    of_all = f"/{found.total:,}" if found.listing_complete else ""
    parts = [f"{found.id} {found.status}: {found.done - found.cancelled:,}{of_all} documents"]
    parts += [f"{found.unchanged:,} unchanged"] if found.unchanged else []
    replaced = found.raw["file_counts"].get("replaced")
    parts += [f"{replaced:,} replaced"] if replaced else []
    parts += [f"{found.failed:,} failed"] if found.failed else []
    parts += [f"{found.cancelled:,} cancelled"] if found.cancelled else []
    deleted = found.raw["file_counts"].get("deleted")
    parts += [f"{deleted:,} deleted"] if deleted else []
    parts += [_chunks(found)]
    parts += [f"about {found.eta_s:,.0f} s left"] if found.eta_s is not None and not found.ended else []
    waiting = _waiting(found)
    parts += [waiting] if waiting else []
    if found.raw.get("dry_run") and found.raw.get("estimate_s") is not None:
        parts += [f"{found.tokens:,} tokens, about {found.raw['estimate_s']:,.0f} s to embed"]
    return ", ".join(parts)


def beside(found: Ingestion) -> Beside:
    """What its progress says besides documents. Only the server knows how far the pages under way are."""
    waiting = _waiting(found)
    fields = {
        "chunks": found.chunks,
        "embedded": found.embedded,
        "chunks_per_s": found.chunks_per_s,
        "waiting_for": found.raw.get("waiting_for") if waiting else None,
    }
    rate = f" at {shown_rate(found.chunks_per_s)}" if found.chunks_per_s else ""
    text = f"{waiting}, {_chunks(found)}" if waiting else _chunks(found) + rate
    return Beside(text, fields, None if found.ended or waiting else found.eta_s)


def _waiting(found: Ingestion) -> str | None:
    """What it waits for, if it goes on by itself as soon as that is there."""
    what = found.raw.get("waiting_for")
    return f"waiting for {_WAITS.get(what, f'the {what}')}" if what and not found.ended else None


def _chunks(found: Ingestion) -> str:
    if found.raw.get("dry_run") or found.embedded >= found.chunks:
        return f"{found.chunks:,} chunks"
    return f"{found.embedded:,} of {found.chunks:,} chunks embedded"


async def list_failures(server: Ingestions, ingestion_id: str, output: Output) -> int:
    """Prints every document that has failed; how many there are."""
    count = 0
    async with aclosing(server.failed(ingestion_id)) as documents:
        async for one in documents:
            fields = {"document": one.id, "code": one.code, "message": as_options(one.message), "stage": one.stage}
            output.result(_failure(one), fields)
            count += 1
    return count


def _failure(document: FailedDocument) -> str:
    return f"{document.id} failed: {document.code}: {as_options(document.message)}"


async def report(
    server: Ingestions, ended: Ingestion, output: Output, *, not_sent: Sequence[FailedDocument] = ()
) -> None:
    """Prints the first of the failures, and what became of the whole.

    `not_sent`: documents that failed on this side, of which the server knows nothing.
    """
    failed = [*not_sent[:SHOWN_FAILURES]]
    if ended.failed and len(failed) < SHOWN_FAILURES:
        async with aclosing(server.failed(ended.id)) as documents:
            async for document in documents:
                failed.append(document)
                if len(failed) == SHOWN_FAILURES:
                    break
    for document in failed:
        output.note(_failure(document), document=document.id, code=document.code)
    more = ended.failed + len(not_sent) - len(failed)
    if more > 0:
        output.note(f"{more:,} more documents failed; all of them: embedq ingest --errors {ended.id}", more=more)
    for warning in ended.raw.get("warnings") or ():
        output.note(str(warning))
    if ended.raw.get("mode") == "skip_unchanged" and (replaced := ended.raw["file_counts"].get("replaced")):
        output.note(f"{replaced:,} took the place of other content under the same id: changed, or of another folder")
    if ended.error:
        output.note(f"it failed: {ended.error[0]}: {as_options(ended.error[1])}", code=ended.error[0])
    if ended.resumable:
        output.note(f"when that is mended it goes on where it was: embedq ingest --retry {ended.id}", id=ended.id)
    unsent = f", and {len(not_sent):,} more not sent" if not_sent else ""
    output.result(describe(ended) + unsent, {**ended.raw, "not_sent": len(not_sent)})
