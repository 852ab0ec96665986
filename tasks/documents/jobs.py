"""The jobs of the documents queue: `{"kind": …, "id": …}` as the payload of a piece, JSON as its outcome.

A job may be run more than once, by several workers and at the same time: it writes under names of its own
(`JobContext.fence`) and changes nothing that another run needs. What is to change of its ingestion, and what is to be
embedded, is its outcome, which only one run commits; a step takes it in. How it ends:

| raises | becomes of it |
|---|---|
| nothing | what it returned is committed |
| `Unavailable` (storage or Redis away, disk full) | run again after a pause, as long as it takes |
| another `EmbedqError` | fails with its code and detail |
| `Stopping`, out of `JobContext.progress` | given back |
| anything else | lost: run again alone, and failed with `worker_lost` after the third time |
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from tasks.documents.batches.assemble_job import assemble_batch
from tasks.documents.batches.validate_job import validate_batch
from tasks.documents.context import JobContext
from tasks.documents.ingestions.finish_job import finish_ingestion
from tasks.documents.ingestions.listing import list_pages
from tasks.documents.ingestions.loading import load_pages
from tasks.documents.ingestions.page_parsing import parse_page
from tasks.documents.ingestions.tools import TOOLS

Job: TypeAlias = Callable[[JobContext, str], bytes]
"""Gets its context and the id in its payload; returns its outcome."""

JOBS: dict[str, Job] = {
    "validate_batch": validate_batch,
    "assemble_batch": assemble_batch,
    "list_page": partial(list_pages, tools=TOOLS),
    "parse_page": partial(parse_page, tools=TOOLS),
    "load_pages": partial(load_pages, tools=TOOLS),
    "finish_ingestion": partial(finish_ingestion, tools=TOOLS),
}
"""Kind -> job."""
