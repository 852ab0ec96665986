"""The last job of an ingestion that keeps a sink equal to its source: it deletes what the source has no more."""

from collections.abc import Iterator

import orjson

from tasks.documents.context import JobContext
from tasks.documents.ingestions.calls import GONE, find, saying_what_it_waits_for
from tasks.documents.ingestions.pipeline import stamp
from tasks.documents.ingestions.tools import Tools
from tasks.ledger.ingestion_operations import read_closed
from tasks.ledger.ingestion_outcomes import read_outcomes
from tasks.ledger.ingestions import Ingestion, IngestionStatus

_PAGES_AT_ONCE = 256


def finish_ingestion(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON: how many documents were `deleted`.

    Raises:
        SinkRefused, NotStored: it cannot be done.
        Unavailable: the sink or the storage is away.
    """
    ingestion, _ = find(context, job)
    if ingestion is None or ingestion.status is not IngestionStatus.FINALIZING:
        return GONE
    with saying_what_it_waits_for(context, ingestion):
        sink = tools.sink(context, ingestion)
        try:
            deleted = sink.keep_only(lambda: _seen(context, ingestion), stamp(ingestion), context.progress)
        finally:
            sink.close()
    return orjson.dumps({"deleted": deleted})


def _seen(context: JobContext, ingestion: Ingestion) -> Iterator[str]:
    # Failed ones too: the source has them, and their earlier version is better than none.
    for first in range(0, ingestion.next_page, _PAGES_AT_ONCE):
        for page in context.ledger.run(read_closed(ingestion.id, first, _PAGES_AT_ONCE)):
            context.progress()
            for outcome in read_outcomes(context.storage, page.stored):
                yield outcome.id
