"""LIST: writes the lines of the next pages of a source, ahead of parsing."""

import time
from contextlib import closing
from typing import Any

from tasks.ingestion.context import StageContext
from tasks.ingestion.pipeline import open_dataset, open_sandbox, open_source, record_of
from tasks.ingestion.skip_unchanged import stamp
from tasks.records.documents import write_documents


def list_documents(context: StageContext) -> dict[str, Any]:
    """The next `pages`; the `cursor` where the next LIST begins, None: there is no more; the `dataset_id`.

    Raises:
        SourceFailed: it can never be listed.
        Invalid: the dataset can never take what it holds.
        Unavailable: not now.
    """
    record = record_of(context)
    cursor, dataset_id = record.cursor, record.dataset_id
    if cursor is None and not record.dry_run:  # what is wrong with it should not show after the embedding
        with closing(open_dataset(context)) as store:
            dataset_id = store.prepare(stamp(context.job), context.progress)
    pages: list[dict[str, Any]] = []
    began = time.monotonic()
    with open_sandbox(context) as sandbox:
        source = open_source(context, sandbox)
        while True:
            context.progress()
            listed = source.page(cursor)
            cursor = dict(listed.cursor) if listed.cursor is not None else None
            if listed.lines:
                name = context.name(f"listed{len(pages)}")
                write_documents(context.storage, name, listed.lines)
                pages.append({"obj": name, "documents": listed.documents, "bytes": listed.size_bytes})
            enough = len(pages) >= context.pace.listing_pages or time.monotonic() - began > context.pace.listing_s
            if cursor is None or enough:
                return {"pages": pages, "cursor": cursor, "dataset_id": dataset_id}
