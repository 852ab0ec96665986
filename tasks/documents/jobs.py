"""The jobs of the documents queue: `{"kind": …, "id": …}` as the payload of a unit of one item, JSON as its result.

A job may be run more than once, by several workers and at the same time: it writes under names of its own
(`JobContext.fence`) and changes nothing that another run needs. How it ends:

| raises | becomes of it |
|---|---|
| nothing | what it returned is committed |
| `Unavailable` (storage or Redis away, disk full) | run again after a pause, as long as it takes |
| another `EmbedqError` | fails with its code and detail |
| `Stopping`, out of `JobContext.progress` | given back |
| anything else | lost: run again alone, and failed with `worker_lost` after the third time |
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeAlias

import orjson

from tasks.documents.batches.assemble_job import assemble_batch
from tasks.documents.batches.validate_job import validate_batch
from tasks.documents.context import JobContext
from tasks.documents.ingestions.finish_job import finish_ingestion
from tasks.documents.ingestions.list_job import list_page
from tasks.documents.ingestions.load_job import load_pages
from tasks.documents.ingestions.parse_job import parse_page
from tasks.documents.ingestions.tools import TOOLS
from tasks.ledger import NewUnit

Job: TypeAlias = Callable[[JobContext, str], bytes]
"""Gets its context and the id in its payload; returns JSON, not empty."""

JOBS: dict[str, Job] = {
    "validate_batch": validate_batch,
    "assemble_batch": assemble_batch,
    "list_page": partial(list_page, tools=TOOLS),
    "parse_page": partial(parse_page, tools=TOOLS),
    "load_pages": partial(load_pages, tools=TOOLS),
    "finish_ingestion": partial(finish_ingestion, tools=TOOLS),
}
"""Kind -> job."""

JOB_COST = 1
"""Of any job when it is claimed, in the unit of the ledger. Workers say that they do one in a second; what took
longer is charged to its owner when it has ended, so that owners take turns by time."""


@dataclass(frozen=True, slots=True)
class JobCall:
    """Which job, and for what."""

    kind: str
    id: str

    def to_unit(self) -> NewUnit:
        """The unit to submit to the documents queue; a task of it has one."""
        return NewUnit(items=1, cost=JOB_COST, payload=orjson.dumps(self))

    @classmethod
    def of_payload(cls, payload: bytes) -> Self:
        """Inverse of the payload of `to_unit`."""
        known = orjson.loads(payload)
        return cls(kind=known["kind"], id=known["id"])
