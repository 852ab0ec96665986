"""Resources as tests make them, jobs as the driver leaves them, tenants with one of everything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from tasks.ledger.client import Ledger
from tasks.records.jobs import Counts, DonePage, JobError, JobStatus, Page
from tasks.records.moves import Move
from tests.integration.api.file_uploads import LINES
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL
from tests.integration.records.jobs import change
from tests.made_datasets import document, load

GOOD: dict[str, Any] = {"source": {"documents": [{"id": "a", "text": "Some text."}]}}
BATCH: dict[str, Any] = {
    "input_file_id": "file-unknown",
    "endpoint": "/v1/embeddings",
    "completion_window": "24h",
}
FAILED, LOADED = Counts(documents=1, failed=1), Counts(documents=1, loaded=1)
BEGUN = {"status": JobStatus.IN_PROGRESS, "revision": "r", "listed": True}
SECRET = "hidden-word"
"""In all names, texts and metadata of Bob's."""
NAME = f"{SECRET}-{'b' * 8}"
"""Of a dataset."""
EMPTY: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
"""A list."""
OF_NOBODY = {"{model_id}", "{path}"}
"""Parts of paths that name nothing of a tenant's."""


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


@dataclass(frozen=True)
class Resource:
    """`body`: arguments of a request that makes one. `changed`: another one. `cursor`: the error of `after=x`."""

    path: str
    status: int
    body: Mapping[str, Any]
    code: str
    cursor: tuple[int, str]
    max_limit: int = 100
    changed: Mapping[str, Any] | None = None

    def create(self, client: httpx.Client, headers: Mapping[str, str] | None = None, **changed: Any) -> dict[str, Any]:
        """What a request makes, with some fields of its JSON `changed`."""
        body = {**self.body, "json": self.body["json"] | changed} if changed else self.body
        answer = client.post(self.path, headers=headers, **body)
        assert answer.status_code == self.status, answer.text
        found: dict[str, Any] = answer.json()
        assert self.status != 202 or answer.headers["location"] == f"{self.path}/{found['id']}"
        return found

    def make(self, client: httpx.Client, **headers: str) -> str:
        """The id of a new one."""
        return str(self.create(client, headers)["id"])


FORM = {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", LINES)}}
TASK = Resource(
    *("/v1/tasks", 202, {"json": {"input": "x"}}, "task_not_found", (400, "invalid_value")),
    changed={"json": {"input": "y"}},
)
FILE = Resource("/v1/files", 200, FORM, "file_not_found", (400, "invalid_value"), 10_000)
BATCHES = Resource(
    *("/v1/batches", 200, {"json": BATCH}, "batch_not_found", (404, "batch_not_found")),
    changed={"json": BATCH | {"completion_window": "1h"}},
)
INGESTION = Resource(
    *("/v1/ingestions", 202, {"json": GOOD}, "ingestion_not_found", (400, "invalid_value")),
    changed={"json": GOOD | {"mode": "sync"}},
)
ALL = [TASK, FILE, BATCHES, INGESTION]
JOBS = [BATCHES, INGESTION]
KEYED = [TASK, *JOBS]


@dataclass(frozen=True, slots=True)
class Things:
    """What a tenant has, by the part of a path that names it."""

    parts: Mapping[str, tuple[str, ...]]
    document: str = ""

    def addresses(self, path: str) -> list[str]:
        """A path of the document with each thing of the tenant that fits; the longest part that fits decides."""
        named = [part for part in self.parts if part in path]
        paths = [path]
        for part in [part for part in named if not any(part != other and part in other for other in named)]:
            paths = [one.replace(part, value) for one, value in product(paths, self.parts[part])]
        assert not any("{" in one for one in paths), f"{path}: a part of its path is not known here"
        return paths

    @property
    def ids(self) -> list[str]:
        """All that must never be told to others."""
        own = (values for part, values in self.parts.items() if "/" not in part and part not in OF_NOBODY)
        return [value for values in own for value in values]


def make_things(client: httpx.Client, worker: LedgerWorker, root: Path, owner: str) -> Things:
    """One of each kind. `client` has the tenant's key."""
    word = SECRET if owner == "bob" else "word"
    dataset = NAME if owner == "bob" else f"{'w' * (len(NAME) - 2)}.d"

    def post(path: str, *, named: bool = False, **content: Any) -> str:
        headers = {"idempotency-key": f"{path} of {owner}"} if named else {}
        answer = client.post(path, headers=headers, **content)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    ended = post("/v1/tasks", json={"input": f"{word} 1", "metadata": {"a": word}}, named=True)
    worker.work()
    waiting = post("/v1/tasks", json={"input": f"{word} 2"})
    form, file = {"purpose": "batch"}, {"file": (f"{word}.jsonl", f'{{"custom_id": "{word}"}}\n'.encode())}
    file_id = post("/v1/files", data=form, files=file)
    batch = BATCH | {"input_file_id": file_id}
    batch_id, failed = post("/v1/batches", json=batch, named=True), post("/v1/batches", json=batch)
    end(worker.ledger, failed, JobStatus.FAILED)
    source = {"documents": [{"id": f"{word} doc", "text": f"{word} text"}]}
    sink = {"type": "dataset", "dataset": dataset}
    running = post("/v1/ingestions", json={"source": source, "sink": sink}, named=True)
    ingested = post("/v1/ingestions", json={"source": source})
    end(worker.ledger, ingested, counts=FAILED)
    rows = document(f"{word} doc", [1, 2, 3, 4], metadata={word: word}, text=word)
    load(root, rows, owner=client.get("/v1/key").json()["owner"], name=dataset)
    parts = {
        "{task_id}": (ended, waiting),
        "{file_id}": (file_id,),
        "{batch_id}": (batch_id, failed),
        "{ingestion_id}": (running, ingested),
        "{ingestion_id}/output/{name}": (f"{running}/output/part-000000001-1.parquet",),
        "{name}": (dataset,),
        "{model_id}": (MODEL,),
        "{path}": ("console.css",),
    }
    return Things(parts, f"{word} doc")
