"""Tasks, files, batches and ingestions: what their routes have in common. `test_tenants.py` tests whose they are."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx
import pytest

from tasks.ledger.client import Ledger
from tasks.records.batches import BatchStatus
from tasks.records.files import put_file
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import JobStatus
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import LINES, ids, problem
from tests.integration.api.jobs import BATCH, GOOD, end
from tests.integration.api.served import ServedApp
from tests.made_files import made_file

EMPTY: dict[str, Any] = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
NO_LIMIT = ("0", "-1", "x", "1.5", "9" * 5000, "\u0662", "0" * 20, "0" * 8 + "1" + "0" * 5000)


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

    def make(self, client: httpx.Client, **headers: str) -> str:
        answer = client.post(self.path, headers=headers, **self.body)
        assert answer.status_code == self.status, answer.text
        return str(answer.json()["id"])


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


def name_of(value: object) -> str | None:
    return value.path if isinstance(value, Resource) else None


def each_of(*kinds: Resource) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=name_of)


@each_of(*ALL)
def test_pages(client: httpx.Client, kind: Resource) -> None:
    assert client.get(kind.path).json() == EMPTY
    made = [kind.make(client) for _ in range(5)][::-1]
    first = client.get(kind.path, params={"limit": 2})
    assert (ids(first), first.json()["has_more"]) == (made[:2], True)
    assert (first.json()["first_id"], first.json()["last_id"], first.json()["object"]) == (*made[:2], "list")
    assert first.json()["data"][0] == client.get(f"{kind.path}/{made[0]}").json()
    assert first.headers["cache-control"] == "no-store"
    newest = kind.make(client)  # meanwhile
    rest = client.get(kind.path, params={"after": made[1]})
    assert (ids(rest), rest.json()["has_more"]) == (made[2:], False)
    assert client.get(kind.path, params={"after": made[-1]}).json() == EMPTY
    assert ids(client.get(kind.path, params={"after": "", "limit": ""})) == [newest, *made]


@each_of(*ALL)
def test_queries_of_a_list_that_make_no_sense(client: httpx.Client, kind: Resource) -> None:
    for limit in (*NO_LIMIT, f"{kind.max_limit + 1}"):
        problem(client.get(kind.path, params={"limit": limit}), 400, "invalid_value", "limit")
    for after in ("task_nonsense", "[", "../x"):
        problem(client.get(kind.path, params={"after": after}), *kind.cursor, "after")


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (TASK, ("", "/result", "POST /cancel", "DELETE ")),
        (FILE, ("", "/content", "DELETE ")),
        (BATCHES, ("", "POST /cancel", "POST /retry", "DELETE ")),
        (INGESTION, ("", "/documents", "/output", "/output/a", "POST /cancel", "POST /retry", "DELETE ")),
    ],
    ids=name_of,
)
def test_an_unknown_id_is_not_found(client: httpx.Client, kind: Resource, paths: tuple[str, ...]) -> None:
    prefix = {"task": "task_", "file": "file-", "batc": "batch_", "inge": "ing_"}[kind.code[:4]]
    for unknown, path in product(("x", f"{prefix}1", prefix + "0" * 32, "x" * 3000, f"{prefix}%2e%2e"), paths):
        method, _, below = path.rpartition(" ")
        answer = client.request(method or "GET", f"{kind.path}/{unknown}{below}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, kind.code), (unknown, path)
        assert answer.json()["error"]["type"] == "invalid_request_error"


# ---- once and only once ----------------------------------------------------------------------------------------------


@each_of(*KEYED)
def test_the_same_idempotency_key_gets_the_same_one(client: httpx.Client, storage: Storage, kind: Resource) -> None:
    first, again = (kind.make(client, **{"idempotency-key": "k"}) for _ in range(2))
    assert first == again
    assert kind.changed is not None
    other = client.post(kind.path, headers={"idempotency-key": "k"}, **kind.changed)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert ids(client.get(kind.path)) == [first]
    assert [one.name for one in storage.stored("") if "ing_" in one.name and first not in one.name] == []


@each_of(*KEYED)
def test_an_unusable_idempotency_key(client: httpx.Client, kind: Resource) -> None:
    for key in (b"", b"x" * 256, b"tab\there", b"caf\xe9", "\u4e2d".encode()):
        answer = client.post(kind.path, headers={b"idempotency-key": key}, **kind.body)
        problem(answer, 400, "invalid_value", "Idempotency-Key")
        assert answer.json()["detail"] == "Idempotency-Key must have 1 to 255 printable ASCII characters."
    assert client.get(kind.path).json() == EMPTY


# ---- jobs: the end, and what follows ---------------------------------------------------------------------------------


@each_of(*JOBS)
def test_only_an_ended_job_is_deleted_and_then_it_is_gone(client: httpx.Client, ledger: Ledger, kind: Resource) -> None:
    job_id, other = kind.make(client), kind.make(client)
    path, word = f"{kind.path}/{job_id}", kind.code.partition("_")[0]
    early = client.delete(path)
    problem(early, 409, f"{word}_not_ended")
    assert "Cancel it" in early.json()["detail"]
    end(ledger, job_id, JobStatus.FAILED)

    assert client.delete(path).json() == {"id": job_id, "object": word, "deleted": True}

    answers = [client.get(path), client.delete(path), client.post(f"{path}/cancel"), client.post(f"{path}/retry")]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(404, kind.code)}
    for listing in (kind.path, "/v1/jobs"):
        assert ids(client.get(listing)) == [other]


@each_of(*JOBS)
def test_cancelling(client: httpx.Client, ledger: Ledger, kind: Resource) -> None:
    path, word = f"{kind.path}/{kind.make(client)}", kind.code.partition("_")[0]
    first = client.post(f"{path}/cancel")
    assert (first.status_code, first.json()["status"]) == (200, "cancelling")
    assert client.post(f"{path}/cancel").json() == first.json()
    statuses: Iterable[BatchStatus | IngestionStatus] = BatchStatus if kind is BATCHES else IngestionStatus
    for status in (status for status in statuses if status.terminal):
        job_id = kind.make(client)
        end(ledger, job_id, JobStatus(status))
        answer = client.post(f"{kind.path}/{job_id}/cancel")
        if status == "cancelled":
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
            continue
        problem(answer, 409, "batch_already_ended" if kind is BATCHES else "ingestion_ended")
        assert f"Cannot cancel a{'n' * (word[0] == 'i')} {word} with status '{status}'" in answer.json()["detail"]
        assert answer.headers["x-should-retry"] == "false"


@pytest.mark.usefixtures("worker")
@each_of(*JOBS)
def test_too_many_open_jobs_are_429_and_nothing_is_stored(
    serve: Callable[..., ServedApp], storage: Storage, kind: Resource
) -> None:
    name = kind.path.removeprefix("/v1/")
    client = serve(max_open_jobs=1).client
    first, before = kind.make(client), sorted(stored.name for stored in storage.stored(""))
    answer = client.post(kind.path, **kind.body)
    problem(answer, 429, f"too_many_{name}")
    assert (answer.headers["retry-after"], answer.json()["error"]["type"]) == ("60", "rate_limit_error")
    assert "Wait for one to end, or cancel one" in answer.json()["detail"]
    assert ids(client.get(kind.path)) == [first]
    assert sorted(stored.name for stored in storage.stored("")) == before


def test_an_owner_above_the_quota_starts_nothing(serve: Callable[..., ServedApp], ledger: Ledger) -> None:
    client = serve(file_quota_bytes=1000).client
    client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a", bytes(1000))})
    BATCHES.make(client)
    ledger.run(put_file(made_file(1)))  # an output
    for kind in JOBS:
        problem(client.post(kind.path, **kind.body), 403, "quota_exceeded")
