"""The job that lists the next pages of a source, or of what failed before, and writes their manifests."""

import time
from contextlib import closing
from itertools import chain

import orjson

from tasks.documents.context import JobContext
from tasks.documents.ingestions.calls import GONE, find, patiently
from tasks.documents.ingestions.listed_ids import ListedIds
from tasks.documents.ingestions.manifest import write_manifest
from tasks.documents.ingestions.pipeline import stamp
from tasks.documents.ingestions.relist import relist
from tasks.documents.ingestions.tools import Tools
from tasks.ledger.ingestions import Ingestion

PAGES = 16
"""Of one listing, at most."""
_ENOUGH_S = 2.0
"""After this time it leaves the rest to the next listing: parsing waits in the same queue."""


def list_page(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON: `fence`, `first`, `pages`, `cursor` and `ids`.

    `fence` is that of the manifests, `first` the number of the first page, `pages` are numbers of documents and bytes
    of each, `cursor` is null at the end, `ids` is the stored name of the ids listed so far, "" where no listing
    comes after this one.

    Raises:
        SourceFailed: it can never be listed.
        SinkRefused, SinkDimensionMismatch: the sink can never take what it holds.
        RedisUnavailable: it cannot be listed now.
    """
    ingestion, number = find(context, job)
    if ingestion is None or ingestion.list_number != number:
        return GONE
    return patiently(context, ingestion, "list", lambda: _list(context, ingestion, tools))


def _list(context: JobContext, ingestion: Ingestion, tools: Tools) -> bytes:
    if ingestion.cursor is not None and "retry" in ingestion.cursor:
        return relist(context, ingestion)
    source = tools.source(context, ingestion)
    if ingestion.cursor is None and not ingestion.dry_run:  # what is wrong with it should not show after the embedding
        with closing(tools.sink(context, ingestion)) as sink:
            sink.prepare(stamp(ingestion), context.progress)
    cursor = ingestion.cursor
    ids = ListedIds(context, ingestion)
    pages: list[list[int]] = []
    began = time.monotonic()
    while True:
        context.progress()
        listed = source.page(cursor)
        cursor = listed.cursor
        if listed.documents or listed.faults:
            number = ingestion.next_page + len(pages)
            entries = chain(ids.admitted(listed.documents, number), listed.faults)
            count = write_manifest(context.storage, ingestion.manifest_name(number, context.fence), entries)
            pages.append([count, listed.size_bytes])
        if cursor is None or len(pages) >= PAGES or time.monotonic() - began > _ENOUGH_S:
            known = ids.written() if cursor is not None else ""
            found = {"fence": context.fence, "first": ingestion.next_page, "pages": pages, "cursor": cursor}
            return orjson.dumps(found | {"ids": known})
