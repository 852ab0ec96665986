"""The last job of an ingestion that keeps a sink equal to its source: it deletes what the source has no more."""

from collections.abc import Iterator
from contextlib import suppress

import orjson

from tasks.documents.context import JobContext, JobEnd
from tasks.documents.ingestions.fingerprint import stamp
from tasks.documents.ingestions.job_tasks import GONE, find, patiently
from tasks.documents.ingestions.tools import Tools
from tasks.errors import NotStored, SourceFailed
from tasks.records.document_outcomes import DocumentOutcome, read_listed, read_outcomes
from tasks.records.ingestion_operations import list_ingestions, read_closed, read_ingestions
from tasks.records.ingestions import Ingestion, IngestionStatus

_PAGES_AT_ONCE = 256
_INGESTIONS_AT_ONCE = 100
_LISTING = "listing"


def finish_ingestion(context: JobContext, job: str, tools: Tools) -> JobEnd:
    """The outcome as JSON: how many documents were `deleted`.

    Raises:
        SourceFailed: the listing left something out, so nobody knows what has vanished. Nothing was deleted.
        SinkRefused, NotStored: it cannot be done.
        RedisUnavailable: it cannot be done now.
    """
    ingestion, _ = find(context, job)
    if ingestion is None or ingestion.status is not IngestionStatus.FINALIZING:
        return GONE
    return patiently(context, ingestion, "finish", lambda: _finish(context, ingestion, tools))


def _finish(context: JobContext, ingestion: Ingestion, tools: Tools) -> JobEnd:
    _require_whole_listing(context, ingestion)
    sink = tools.sink(context, ingestion)
    try:
        deleted = sink.keep_only(lambda: _seen(context, ingestion), stamp(ingestion), context.progress)
    finally:
        sink.close()
    return JobEnd(orjson.dumps({"deleted": deleted}))


def _require_whole_listing(context: JobContext, ingestion: Ingestion) -> None:
    # An unreadable folder or record file is one failure, and hides as many documents as it likes.
    for outcome in _outcomes(context, ingestion):
        if outcome.stage == _LISTING:
            raise SourceFailed(
                f"A part of the source could not be listed ({outcome.code}), so it is not known which documents have "
                "vanished, and none was deleted. See the documents that failed in stage listing, mend or remove them, "
                "and run it again.",
                param="source",
            )


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
