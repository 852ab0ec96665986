"""What `embedq ingest` prints of an ingestion: its state in one line, its failures, and its end."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any

from embedq.cli.exit_codes import ALL_FAILED, outcome
from embedq.cli.output import Output
from embedq.cli.progress import Progress, shown_rate
from embedq.ingestions import Ingestions
from embedq.responses import Job

SHOWN_FAILURES = 10
"""And as many documents with warnings."""
_COUNTS = {"warned": "with warnings"}
_Document = Mapping[str, Any]


def describe(ingestion: Job) -> str:
    """The state of an ingestion, in one line."""
    counts, chunks = ingestion["file_counts"], ingestion["chunks"]
    of_all = f"/{counts['total']:,}" if ingestion["listing_complete"] else ""
    parts = [f"{ingestion.id} {ingestion.status}: {counts['completed'] + counts['failed']:,}{of_all} documents"]
    for name in ("unchanged", "replaced", "emptied", "warned", "failed", "cancelled", "deleted"):
        parts += [f"{counts[name]:,} {_COUNTS.get(name, name)}"] if counts[name] else []
    parts += [_chunks(ingestion)]
    eta_s, waiting = ingestion["eta_s"], _waiting(ingestion)
    parts += [f"about {eta_s:,.0f} s left"] if eta_s is not None and not ingestion.ended else []
    parts += [waiting] if waiting else []
    if ingestion["dry_run"] and ingestion["estimate_s"] is not None:
        parts += [f"{chunks['tokens']:,} tokens, about {ingestion['estimate_s']:,.0f} s to embed"]
    return ", ".join(parts)


def show(progress: Progress, ingestion: Job) -> None:
    """Shows how many chunks are embedded: a few documents may be most of the work."""
    counts, chunks = ingestion["file_counts"], ingestion["chunks"]
    rate, waiting = (ingestion["rate"] or {}).get("chunks_per_s", 0.0), _waiting(ingestion)
    of_all = f"/{counts['total']:,}" if ingestion["listing_complete"] else ""
    through = counts["completed"] + counts["failed"] + counts["cancelled"]
    texts = [waiting or (shown_rate(rate) if rate else ""), f"{through:,}{of_all} documents"]
    progress.update(
        chunks["total"] if ingestion["dry_run"] else chunks["embedded"],
        counts["failed"],
        total=None if ingestion["dry_run"] else chunks["total"],
        text=", ".join(text for text in texts if text),
        eta_s=None if ingestion.ended or waiting else ingestion["eta_s"],
        documents=counts["total"],
        documents_done=through,
        chunks_per_s=rate,
        waiting=ingestion["waiting"],
    )


def _waiting(ingestion: Job) -> str | None:
    """Why it does not go on."""
    why = ingestion["waiting"]
    # Between two pages it is in line again and again.
    if not why or why["code"] == "working" or (why["code"] == "in_line" and ingestion["chunks"]["embedded"]):
        return None
    return str(why["message"]).rstrip(".")


def _chunks(ingestion: Job) -> str:
    chunks = ingestion["chunks"]
    if ingestion["dry_run"] or chunks["embedded"] >= chunks["total"]:
        return f"{chunks['total']:,} chunks"
    return f"{chunks['embedded']:,} of {chunks['total']:,} chunks embedded"


async def list_faults(server: Ingestions, ingestion_id: str, output: Output) -> int:
    """Prints every document that has failed, and those that could not be read whole; how many have failed."""
    count = 0
    async for document in server.documents(ingestion_id, "failed"):
        error = document["last_error"]
        output.result(_failure(document), {"document": document["id"], **error, "stage": document["stage"]})
        count += 1
    async for document in server.documents(ingestion_id, "warned"):
        output.result(_warned(document), {"document": document["id"], "warnings": document["warnings"]})
    return count


def _failure(document: _Document) -> str:
    error = document["last_error"]
    return f"{document['id']} failed: {error['code']}: {error['message']}"


def _warned(document: _Document) -> str:
    return f"{document['id']}: {' '.join(map(_warning, document['warnings']))}"


def _warning(warning: Mapping[str, Any]) -> str:
    pages = warning["pages"]
    where = f"{'page' if len(pages) == 1 else 'pages'} {_ranges(pages)}: " if pages else ""
    return f"{warning['code']}: {where}{warning['message']}"


def _ranges(numbers: Sequence[int]) -> str:
    """Such as 2-10, 14."""
    spans = [
        [number for _, number in span] for _, span in groupby(enumerate(sorted(set(numbers))), lambda at: at[1] - at[0])
    ]
    return ", ".join(f"{span[0]}" if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


async def report(server: Ingestions, ended: Job, output: Output, not_sent: Sequence[_Document] = ()) -> int:
    """Prints the first of the failures and of the warnings, and the end of the whole; returns the exit code.

    `not_sent`: documents that failed on this side, and that the server does not know of.
    """
    counts = ended["file_counts"]
    failed = [*not_sent[:SHOWN_FAILURES]]
    failed += await _first(server, ended.id, "failed", SHOWN_FAILURES - len(failed)) if counts["failed"] else []
    for document in failed:
        output.note(_failure(document), document=document["id"], code=document["last_error"]["code"])
    warned = await _first(server, ended.id, "warned", SHOWN_FAILURES) if counts["warned"] else []
    for document in warned:
        output.note(_warned(document), document=document["id"], warnings=document["warnings"])
    for more, what in (
        (counts["failed"] + len(not_sent) - len(failed), "failed"),
        (counts["warned"] - len(warned), "have warnings"),
    ):
        if more > 0:
            output.note(f"{more:,} more documents {what}; all of them: embedq ingest --errors {ended.id}", more=more)
    for warning in _warnings(ended):
        output.note(warning)
    if ended["error"]:
        output.note(f"it failed: {ended['error']['code']}: {ended['error']['message']}", code=ended["error"]["code"])
    if ended["resumable"]:
        output.note(f"when that is mended it goes on where it was: embedq ingest --retry {ended.id}", id=ended.id)
    unsent = f", and {len(not_sent):,} more not sent" if not_sent else ""
    output.result(describe(ended) + unsent, {**ended, "not_sent": len(not_sent)})
    if ended.status == "failed":
        return ALL_FAILED
    return outcome(counts["completed"], counts["failed"] + counts["cancelled"] + len(not_sent))


async def _first(server: Ingestions, ingestion_id: str, state: str, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    documents: AsyncGenerator[dict[str, Any], None] = server.documents(ingestion_id, state)
    async with aclosing(documents):
        while len(found) < number and (document := await anext(documents, None)) is not None:
            found.append(document)
    return found


def _warnings(ended: Job) -> Iterator[str]:
    """What the server says, and what became of documents that somebody may not have expected."""
    counts = ended["file_counts"]
    yield from ended["warnings"]
    if ended["mode"] == "skip_unchanged" and (replaced := counts["replaced"]):
        yield f"{replaced:,} took the place of other content under the same id: changed, or of another folder"
    if emptied := counts["emptied"]:
        yield f"{emptied:,} have no text any more, and their chunks were deleted: is that what you meant?"
