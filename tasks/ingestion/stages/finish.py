"""FINISH: the end of a `sync` deletes what the source has no more."""

from contextlib import closing
from typing import Any

from tasks.ingestion.context import StageContext
from tasks.ingestion.pipeline import open_dataset, open_sandbox, open_source
from tasks.ingestion.skip_unchanged import stamp


def finish(context: StageContext) -> dict[str, Any]:
    """How many documents were `deleted`, in all tries; `empty_roots`: fields of the request whose places list nothing.

    Documents that are known from such a place are kept.

    Raises:
        SourceFailed: the source may not be read any more.
        Invalid: it cannot be done.
        Unavailable: not now.
    """
    with open_sandbox(context) as sandbox:
        roots = open_source(context, sandbox).roots()
    with closing(open_dataset(context)) as store:
        finished = store.finish(stamp(context.job), list(roots), context.progress)
    return {"deleted": finished.deleted, "empty_roots": [roots[root] for root in finished.empty]}
