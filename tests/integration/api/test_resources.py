"""Tasks, files, batches, ingestions: what their routes have in common. `test_every_route.py` tests whose they are."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tasks.ledger.client import Ledger
from tasks.records.batches import BatchStatus, read_batch
from tasks.records.files import put_file
from tasks.records.ingestions import IngestionStatus
from tasks.records.jobs import JobError, JobStatus
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import Upload, ids, problem
from tests.integration.api.served import ANN, BOB, KEYS, Serve, ServedApp
from tests.integration.api.things import (
    ALL,
    BATCHES,
    EMPTY,
    GOOD,
    INGESTION,
    JOBS,
    KEYED,
    Resource,
    end,
)
from tests.made_datasets import document, load
from tests.made_files import made_file
from tests.processes import RedisServer

NO_LIMIT = ("0", "-1", "x", "1.5", "9" * 5000, "\u0662", "0" * 20, "0" * 8 + "1" + "0" * 5000)


def each_of(*kinds: Resource) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.path for kind in kinds])


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
    for limit in (*NO_LIMIT, f"{kind.max_limit + 1}"):
        problem(client.get(kind.path, params={"limit": limit}), 400, "invalid_value", "limit")
    for after in ("task_nonsense", "[", "../x"):
        problem(client.get(kind.path, params={"after": after}), *kind.cursor, "after")


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
    for key in (b"", b"x" * 256, b"tab\there", b"caf\xe9", "\u4e2d".encode()):
        unusable = client.post(kind.path, headers={b"idempotency-key": key}, **kind.body)
        told = problem(unusable, 400, "invalid_value", "Idempotency-Key")
        assert told == "Idempotency-Key must have 1 to 255 printable ASCII characters."


# ---- jobs: the end, and what follows ---------------------------------------------------------------------------------


@each_of(*JOBS)
def test_only_an_open_job_is_cancelled_and_only_an_ended_one_deleted(
    client: httpx.Client, ledger: Ledger, kind: Resource
) -> None:
    other, word = kind.make(client), kind.code.partition("_")[0]
    path = f"{kind.path}/{other}"
    first = client.post(f"{path}/cancel")
    assert (first.status_code, first.json()["status"]) == (200, "cancelling")
    assert client.post(f"{path}/cancel").json() == first.json()
    assert "Cancel it" in problem(client.delete(path), 409, f"{word}_not_ended")
    statuses: Iterable[BatchStatus | IngestionStatus] = BatchStatus if kind is BATCHES else IngestionStatus
    for status in (status for status in statuses if status.terminal):
        job_id = kind.make(client)
        path = f"{kind.path}/{job_id}"
        end(ledger, job_id, JobStatus(status))
        answer = client.post(f"{path}/cancel")
        if status == "cancelled":
            assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        else:
            told = problem(answer, 409, "batch_already_ended" if kind is BATCHES else "ingestion_ended")
            assert f"Cannot cancel a{'n' * (word[0] == 'i')} {word} with status '{status}'" in told
            assert answer.headers["x-should-retry"] == "false"
        assert client.delete(path).json() == {"id": job_id, "object": word, "deleted": True}
        answers = [client.get(path), client.delete(path), client.post(f"{path}/cancel"), client.post(f"{path}/retry")]
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(404, kind.code)}
    for listing in (kind.path, "/v1/jobs"):
        assert ids(client.get(listing)) == [other]


@pytest.mark.usefixtures("worker")
@each_of(*JOBS)
def test_too_many_open_jobs_are_429_and_nothing_is_stored(serve: Serve, storage: Storage, kind: Resource) -> None:
    name = kind.path.removeprefix("/v1/")
    client = serve(max_open_jobs=1).client
    first, before = kind.make(client), sorted(stored.name for stored in storage.stored(""))
    answer = client.post(kind.path, **kind.body)
    assert "Wait for one to end, or cancel one" in problem(answer, 429, f"too_many_{name}")
    assert (answer.headers["retry-after"], answer.json()["error"]["type"]) == ("60", "rate_limit_error")
    assert ids(client.get(kind.path)) == [first]
    assert sorted(stored.name for stored in storage.stored("")) == before


def test_an_owner_above_the_quota_starts_nothing(serve: Serve, ledger: Ledger, root: Path) -> None:
    keyed, keys = serve(api_keys=KEYS, file_quota_bytes=1000).client, {"idempotency-key": "k"}
    first = INGESTION.make(keyed, **ANN, **keys)
    load(root, document("a", *[[1.0, 2, 3, 4]] * 7), document("b"))  # datasets count
    refused = keyed.post("/v1/ingestions", json=GOOD, headers=ANN)
    assert "Your files, datasets and ingestions hold" in problem(refused, 403, "quota_exceeded")
    assert INGESTION.make(keyed, **ANN, **keys) == first
    INGESTION.make(keyed, **BOB)

    client = serve(file_quota_bytes=1000).client
    client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a", bytes(1000))})
    BATCHES.make(client)
    ledger.run(put_file(made_file(1)))  # an output
    for kind in JOBS:
        problem(client.post(kind.path, **kind.body), 403, "quota_exceeded")


# ---- batches: large lists, and a second try --------------------------------------------------------------------------


def test_lists_of_large_batches_do_not_fill_the_memory_of_redis(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url) as served, closing(Ledger.connect(private_redis.url)) as ledger:
        errors = [JobError("invalid_json_line", "Not JSON." * 200, None, n) for n in range(60)]
        made = [BATCHES.make(served.client) for _ in range(20)]
        for batch_id in made:
            end(ledger, batch_id, JobStatus.FAILED, errors=errors)
        # Redis ends a connection for which more than this is waiting.
        ledger.client.config_set("client-output-buffer-limit", "normal 1mb 0 0")
        with ThreadPoolExecutor(3) as threads:
            answers = [*threads.map(lambda _: served.client.get("/v1/batches?limit=20"), range(3))]
        # A busy machine may be too slow for three of them at once. Where Redis ends a connection, the code is another.
        served_now = [answer for answer in answers if answer.json().get("error", {}).get("code") != "overloaded"]
        assert served_now
        assert [ids(answer) for answer in served_now] == [made[::-1]] * len(served_now)


def test_a_batch_is_tried_again_as_a_new_one(client: httpx.Client, ledger: Ledger, upload: Upload) -> None:
    file_id, failed = (upload().json()["id"] for _ in range(2))
    full = {"job": "42", "k": "v" * 4090}
    first = BATCHES.create(client, input_file_id=file_id, metadata=full, completion_window="48h")
    path = f"/v1/batches/{first['id']}/retry"
    problem(client.post(path), 409, "batch_not_ended")
    end(ledger, first["id"], JobStatus.EXPIRED, files={"error": failed})

    def only_file_id(batch_id: str) -> str | None:
        kept = ledger.run(read_batch(batch_id))
        assert kept is not None
        return kept.only_file_id

    again = client.post(path).json()
    assert again["id"] != first["id"]
    assert again["metadata"] == full | {"retry_of": first["id"]}
    assert (again["input_file_id"], again["completion_window"], again["status"]) == (file_id, "48h", "validating")
    assert again["expires_at"] - again["created_at"] == 48 * 3600
    assert client.post(path).json()["id"] == again["id"], "the answer was lost"
    assert only_file_id(again["id"]) == failed

    # That one fails as a whole: the next one has its requests, and the id of the one before.
    end(ledger, again["id"], JobStatus.FAILED)
    third = client.post(f"/v1/batches/{again['id']}/retry").json()
    assert (only_file_id(third["id"]), third["metadata"]["retry_of"]) == (failed, again["id"])

    # Without its error file nothing of it can be tried any more; what was made before is still found.
    client.delete(f"/v1/files/{failed}")
    assert client.post(path).json()["id"] == again["id"]
    end(ledger, third["id"], JobStatus.FAILED)
    gone = client.post(f"/v1/batches/{third['id']}/retry")
    assert "Nobody knows any more" in problem(gone, 404, "file_not_found", gone.json()["error"]["param"])

    done = BATCHES.create(client, input_file_id=file_id)["id"]
    end(ledger, done, files={"output": "file-out"})
    told = problem(client.post(f"/v1/batches/{done}/retry"), 409, "batch_already_ended")
    assert "nothing to try again" in told
