"""The last job of an ingestion that keeps a sink equal to its source: it deletes what the source has no more."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

import orjson

from tasks.documents.context import JobContext
from tasks.documents.ingestions.fingerprint import stamp
from tasks.documents.ingestions.job_tasks import find, patiently
from tasks.documents.ingestions.outcomes import GONE
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sources.source import SourceRoot
from tasks.errors import NotStored, SourceFailed
from tasks.records.document_outcomes import DocumentOutcome, read_listed, read_outcomes
from tasks.records.ingestion_operations import list_ingestions, read_closed, read_ingestions
from tasks.records.ingestions import Ingestion, IngestionStatus

_PAGES_AT_ONCE = 256
_INGESTIONS_AT_ONCE = 100
_LISTING = "listing"


def finish_ingestion(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON: how many documents were `deleted`.

    Raises:
        SourceFailed: the listing left something out, so nobody knows what has vanished. Nothing was deleted.
        Invalid, NotStored: it cannot be done.
        RedisUnavailable: it cannot be done now.
    """
    ingestion, _ = find(context, job)
    if ingestion is None or ingestion.status is not IngestionStatus.FINALIZING:
        return GONE
    return patiently(context, ingestion, "finish", lambda: _finish(context, ingestion, tools))


def _finish(context: JobContext, ingestion: Ingestion, tools: Tools) -> bytes:
    roots = tools.source(context, ingestion).roots()
    listed = _require_whole_listing(context, ingestion, roots)

    def allow(doomed: Sequence[str]) -> None:
        _require_listed(doomed, roots, listed)

    sink = tools.sink(context, ingestion)
    try:
        deleted = sink.keep_only(lambda: _seen(context, ingestion), stamp(ingestion), context.progress, allow)
    finally:
        sink.close()
    return orjson.dumps({"deleted": deleted})


def _require_listed(doomed: Sequence[str], roots: Sequence[SourceRoot], listed: AbstractSet[SourceRoot]) -> None:
    """A root without a single document is more likely a disk that is not mounted than one that was cleared.

    What belongs to roots that have listed something may go, unless it belongs to the empty one too. What belongs to no
    root, such as a record with an id of its own, may have come from the empty one.

    Raises:
        SourceFailed: nothing is deleted.
    """
    empty = [root for root in roots if root not in listed]
    if not empty:
        return

    def holds(places: Iterable[SourceRoot], document_id: str) -> bool:
        return any(root.holds(root.document_id, document_id) for root in places)

    if any(holds(empty, document_id) or not holds(listed, document_id) for document_id in doomed):
        instead = "leave it out of the request" if listed else "delete the dataset or the documents"
        raise SourceFailed(
            f"{empty[0].param} lists nothing, and documents that may be from there are known, so none was deleted. Is "
            f"its disk mounted, and is its path right? If it is meant to be empty, {instead}.",
            param=empty[0].param,
        )


def _require_whole_listing(
    context: JobContext, ingestion: Ingestion, roots: Sequence[SourceRoot]
) -> AbstractSet[SourceRoot]:
    """The roots that have listed something."""
    listed, open_roots = set[SourceRoot](), list(roots)
    # An unreadable folder or record file is one failure, and hides as many documents as it likes.
    for outcome in _outcomes(context, ingestion):
        for root in [root for root in open_roots if root.holds(root.uri, outcome.uri)]:
            listed.add(root)
            open_roots.remove(root)
        if outcome.stage == _LISTING:
            raise SourceFailed(
                f"A part of the source could not be listed ({outcome.code}), so it is not known which documents have "
                "vanished, and none was deleted. See the documents that failed in stage listing, mend or remove them, "
                "and run it again.",
                param="source",
            )
    return listed


def _seen(context: JobContext, ingestion: Ingestion) -> Iterator[str]:
    # Failed ones too: the source has them, and their earlier version is better than none.
    for outcome in _outcomes(context, ingestion):
        yield outcome.id
    # A newer one may have found unchanged what this one has not seen: nobody would bring it again.
    for newer in _newer(context, ingestion):
        for page in newer.pages.values():
            with suppress(NotStored):  # loaded meanwhile: its receipts say that it is newer
                yield from (document_id for document_id, _ in read_listed(context.storage, page.manifest))
        for first in range(0, newer.next_page, _PAGES_AT_ONCE):
            for closed in context.ledger.run(read_closed(newer.id, first, _PAGES_AT_ONCE)):
                context.progress()
                with suppress(NotStored):  # closed once more, by another try
                    yield from (outcome.id for outcome in read_outcomes(context.storage, closed.stored))


def _newer(context: JobContext, ingestion: Ingestion) -> Iterator[Ingestion]:
    """Ingestions of this owner into this sink that were created after this one, as they are now."""
    after, more = None, bool(ingestion.spec["sink"].get("dataset") or ingestion.spec["sink"].get("table"))
    while more:
        context.progress()
        ids, more = context.ledger.run(list_ingestions(ingestion.owner, after=after, limit=_INGESTIONS_AT_ONCE))
        # To the end of the list: it is in the order of ids, and those are from the clocks of several hosts.
        newer = [one for one in context.ledger.run(read_ingestions(ids)) if one.order > ingestion.order]
        yield from (one for one in newer if one.spec["sink"] == ingestion.spec["sink"] and not one.dry_run)
        after = ids[-1] if ids else after


def _outcomes(context: JobContext, ingestion: Ingestion) -> Iterator[DocumentOutcome]:
    for first in range(0, ingestion.next_page, _PAGES_AT_ONCE):
        count = min(_PAGES_AT_ONCE, ingestion.next_page - first)
        pages = context.ledger.run(read_closed(ingestion.id, first, count))
        if len(pages) != count:
            raise NotStored("What became of some documents is no longer there.")
        for page in pages:
            context.progress()
            yield from read_outcomes(context.storage, page.stored)
