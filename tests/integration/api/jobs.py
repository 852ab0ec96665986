"""Batches and ingestions as tests of their routes make them, and jobs as the driver leaves them."""

from collections.abc import Sequence
from typing import Any

import httpx

from tasks.ledger.client import Ledger
from tasks.records.jobs import Counts, DonePage, JobError, JobStatus, Page
from tasks.records.moves import Move
from tests.integration.records.jobs import change

GOOD: dict[str, Any] = {"source": {"documents": [{"id": "a", "text": "Some text."}]}}
BATCH: dict[str, Any] = {
    "input_file_id": "file-unknown",
    "endpoint": "/v1/embeddings",
    "completion_window": "24h",
}
FAILED, LOADED = Counts(documents=1, failed=1), Counts(documents=1, loaded=1)
BEGUN = {"status": JobStatus.IN_PROGRESS, "revision": "r", "listed": True}


def create(client: httpx.Client, **changed: Any) -> dict[str, Any]:
    answer = client.post("/v1/ingestions", json=GOOD | changed)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/ingestions/{found['id']}"
    return found


def create_batch(client: httpx.Client, **changed: Any) -> dict[str, Any]:
    answer = client.post("/v1/batches", json=BATCH | changed)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def begin(ledger: Ledger, job_id: str, *pages: Page, done: Sequence[DonePage] = (), **head: Any) -> None:
    """A job runs, with pages that are open behind those that are done."""

    def begins(move: Move) -> None:
        move.set(**(BEGUN if job_id.startswith("ing_") else {"status": JobStatus.IN_PROGRESS}), **head)
        for number, page in enumerate(done, 1):
            move.pages[number] = Page()
            move.close(number, page)
        move.pages.update(enumerate(pages, len(done) + 1))
        move.set(next_page=len(done) + len(pages) + 1)

    assert change(ledger, job_id, begins)


def end(
    ledger: Ledger,
    job_id: str,
    status: JobStatus = JobStatus.COMPLETED,
    *,
    counts: Counts | None = None,
    errors: Sequence[JobError] = (),
    **head: Any,
) -> None:
    """A job ran and ends in this state. `counts`: of its only page, which is done."""
    begin(ledger, job_id, done=[] if counts is None else [DonePage("", counts)], **head)
    assert change(ledger, job_id, lambda move: move.stop(status, *errors), lambda move: move.end(status))
