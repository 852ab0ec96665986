"""What `embedq ingest` prints of an ingestion: its state in one line, its failures, and its end."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Any

from embedq.cli.exit_codes import ALL_FAILED, outcome
from embedq.cli.output import Output
from embedq.cli.progress import Progress, shown_rate
from embedq.ingestions import Ingestions
from embedq.transport import Job

SHOWN = 10
"""Documents that have failed, and as many with warnings."""
_NOTEWORTHY = ("unchanged", "replaced", "emptied", "warned", "failed", "cancelled", "deleted")
_Document = Mapping[str, Any]


def describe(ingestion: Job) -> str:
    """The state of an ingestion, in one line."""
    counts, chunks = ingestion["file_counts"], ingestion["chunks"]
    done = f"{counts['completed'] + counts['failed']:,}{_of_all(ingestion)}"
    parts = [f"{ingestion.id} {ingestion.status}: {done} documents"]
    words = {name: "with warnings" if name == "warned" else name for name in _NOTEWORTHY}
    parts += [f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]]
    if ingestion["dry_run"] or chunks["embedded"] >= chunks["total"]:
        parts += [f"{chunks['total']:,} chunks"]
    else:
        parts += [f"{chunks['embedded']:,} of {chunks['total']:,} chunks embedded"]
    eta_s, waiting = ingestion["eta_s"], _waiting(ingestion)
    parts += [f"about {eta_s:,.0f} s left"] if eta_s is not None and not ingestion.ended else []
    parts += [waiting] if waiting else []
    if ingestion["dry_run"] and ingestion["estimate_s"] is not None:
        parts += [f"{chunks['tokens']:,} tokens, about {ingestion['estimate_s']:,.0f} s to embed"]
    return ", ".join(parts)


def show(progress: Progress, ingestion: Job) -> None:
    """Shows how many chunks are embedded: a few documents may be most of the work."""
    counts, chunks, dry_run = ingestion["file_counts"], ingestion["chunks"], ingestion["dry_run"]
    rate, waiting = (ingestion["rate"] or {}).get("chunks_per_s", 0.0), _waiting(ingestion)
    through = counts["completed"] + counts["failed"] + counts["cancelled"]
    speed = waiting or (shown_rate(rate) if rate else "")
    progress.update(
        chunks["total"] if dry_run else chunks["embedded"],
        counts["failed"],
        total=None if dry_run else chunks["total"],
        text=f"{speed}{', ' if speed else ''}{through:,}{_of_all(ingestion)} documents",
        eta_s=None if ingestion.ended or waiting else ingestion["eta_s"],
        documents=counts["total"],
        documents_done=through,
        chunks_per_s=rate,
        waiting=ingestion["waiting"],
    )


def _of_all(ingestion: Job) -> str:
    return f"/{ingestion['file_counts']['total']:,}" if ingestion["listing_complete"] else ""


def _waiting(ingestion: Job) -> str | None:
    """Why it does not go on."""
    why = ingestion["waiting"]
    # Between two pages it is in line again and again.
    if not why or why["code"] == "working" or (why["code"] == "in_line" and ingestion["chunks"]["embedded"]):
        return None
    return str(why["message"]).rstrip(".")


async def list_faults(server: Ingestions, ingestion_id: str, output: Output) -> int:
    """Prints every document that has failed, and those that could not be read whole; how many have failed."""
    count = 0
    async for document in server.documents(ingestion_id, "failed"):
        error = document["last_error"]
        output.result(_fault(document), {"document": document["id"], **error, "stage": document["stage"]})
        count += 1
    async for document in server.documents(ingestion_id, "warned"):
        output.result(_fault(document), {"document": document["id"], "warnings": document["warnings"]})
    return count


def _fault(document: _Document) -> str:
    if error := document.get("last_error"):
        return f"{document['id']} failed: {error['code']}: {error['message']}"
    return f"{document['id']}: {' '.join(map(_warning, document['warnings']))}"


def _warning(warning: Mapping[str, Any]) -> str:
    pages = warning["pages"]
    where = f"{'page' if len(pages) == 1 else 'pages'} {_ranges(pages)}: " if pages else ""
    return f"{warning['code']}: {where}{warning['message']}"


def _ranges(numbers: Sequence[int]) -> str:
    """Such as 2-10, 14."""
    spans = [[*span] for _, span in groupby(enumerate(numbers), lambda at: at[1] - at[0])]
    return ", ".join("-".join(f"{number}" for number in sorted({span[0][1], span[-1][1]})) for span in spans)


async def report(server: Ingestions, ended: Job, output: Output) -> int:
    """Prints the first of the failures and of the warnings, and the end of the whole; returns the exit code."""
    counts = ended["file_counts"]
    for state, what in (("failed", "failed"), ("warned", "have warnings")):
        shown = 0
        async with aclosing(server.documents(ended.id, state)) as documents:
            while shown < min(SHOWN, counts[state]) and (document := await anext(documents, None)):
                output.note(_fault(document), document=document["id"])
                shown += 1
        if more := counts[state] - shown:
            output.note(f"{more:,} more documents {what}; all of them: embedq ingest --errors {ended.id}", more=more)
    for warning in _warnings(ended):
        output.note(warning)
    if ended["error"]:
        output.note(f"it failed: {ended['error']['code']}: {ended['error']['message']}", code=ended["error"]["code"])
    if ended["resumable"]:
        output.note(f"when that is mended it goes on where it was: embedq ingest --retry {ended.id}", id=ended.id)
    output.result(describe(ended), ended)
    if ended.status == "failed":
        return ALL_FAILED
    return outcome(counts["completed"], counts["failed"] + counts["cancelled"])


def _warnings(ended: Job) -> Iterator[str]:
    """What the server says, and what became of documents that somebody may not have expected."""
    counts = ended["file_counts"]
    yield from ended["warnings"]
    if ended["mode"] == "skip_unchanged" and (replaced := counts["replaced"]):
        yield f"{replaced:,} took the place of other content under the same id: changed, or of another folder"
    if emptied := counts["emptied"]:
        yield f"{emptied:,} have no text any more, and their chunks were deleted: is that what you meant?"
