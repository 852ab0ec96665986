"""The routes of batches: bodies, answers, pages, owners. What batches do is tested elsewhere."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from typing import Any

import httpx
import msgpack
import pytest

from tasks.ledger.client import Ledger
from tasks.records.batches import BatchStatus, counts_of_lines, read_batch
from tasks.records.jobs import JobError, JobStatus
from tests.integration.api.file_uploads import upload_with
from tests.integration.api.ingestions.requests import end
from tests.integration.api.served import ANN, BOB, KEYS, ServedApp
from tests.processes import RedisServer, wait_until

GOOD = {"input_file_id": "file-unknown", "endpoint": "/v1/embeddings", "completion_window": "24h"}


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    return Ledger.connect(redis_url)


def create(client: httpx.Client, **changed: Any) -> dict[str, Any]:
    answer = client.post("/v1/batches", json=GOOD | changed)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_new_batch_has_every_field(client: httpx.Client) -> None:
    batch = create(client, metadata={"job": "42"})
    assert batch["id"].startswith("batch_")
    assert batch["created_at"] + 24 * 3600 == batch["expires_at"]
    assert {name: value for name, value in batch.items() if name not in {"id", "created_at", "expires_at"}} == {
        "object": "batch",
        "endpoint": "/v1/embeddings",
        "errors": None,
        "input_file_id": "file-unknown",
        "completion_window": "24h",
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "failed_at": None,
        "in_progress_at": None,
        "finalizing_at": None,
        "completed_at": None,
        "expired_at": None,
        "cancelling_at": None,
        "cancelled_at": None,
        "counts": {"total": 0, "completed": 0, "failed": 0},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "usage": None,
        "metadata": {"job": "42"},
        "waiting": {
            "code": "no_documents_worker",
            "message": "No documents worker runs.",
            "seconds": None,
            "since": None,
            "next_try": None,
        },
    }
    assert client.get(f"/v1/batches/{batch['id']}").json() == batch


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("no file", {"input_file_id": None}, "missing_required_parameter", "input_file_id"),
    ("no endpoint", {"endpoint": None}, "missing_required_parameter", "endpoint"),
    ("no window", {"completion_window": None}, "missing_required_parameter", "completion_window"),
    ("chat", {"endpoint": "/v1/chat/completions"}, "invalid_value", "endpoint"),
    ("file a number", {"input_file_id": 5}, "invalid_type", "input_file_id"),
    ("file too long", {"input_file_id": "f" * 600}, "invalid_value", "input_file_id"),
    ("window in days", {"completion_window": "1d"}, "invalid_value", "completion_window"),
    ("window of nothing", {"completion_window": "0h"}, "invalid_value", "completion_window"),
    ("window of a year", {"completion_window": "8760h"}, "invalid_value", "completion_window"),
    ("negative window", {"completion_window": "-24h"}, "invalid_value", "completion_window"),
    ("metadata a list", {"metadata": []}, "invalid_type", "metadata"),
    ("metadata of numbers", {"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ("much metadata", {"metadata": {"k": "é" * 2048}}, "invalid_value", "metadata"),
    (
        "short output life",
        {"output_expires_after": {"anchor": "created_at", "seconds": 60}},
        "invalid_value",
        "output_expires_after.seconds",
    ),
    (
        "output anchor",
        {"output_expires_after": {"anchor": "now", "seconds": 3600}},
        "invalid_value",
        "output_expires_after.anchor",
    ),
]


@pytest.mark.parametrize(("changed", "code", "param"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_wrong_with_the_request_is_refused_at_once(
    client: httpx.Client, changed: dict[str, Any], code: str, param: str
) -> None:
    answer = client.post("/v1/batches", json=GOOD | changed)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"


def test_too_many_open_batches_are_429_and_say_when_to_come_back(serve: Callable[..., ServedApp]) -> None:
    client = serve(max_open_jobs=1).client
    first = create(client)
    answer = client.post("/v1/batches", json=GOOD)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (429, "too_many_batches", "rate_limit_error")
    assert answer.headers["retry-after"] == "60"
    assert "Wait for one to end, or cancel one" in error["message"]
    assert [batch["id"] for batch in client.get("/v1/batches").json()["data"]] == [first["id"]]


def test_a_full_redis_takes_no_new_batch(client: httpx.Client, ledger: Ledger) -> None:
    def refused() -> httpx.Response | None:
        ledger.client.set(
            "eq:memory", msgpack.packb({"used": 900, "limit": 1000}), px=60_000
        )  # the watchdog may look at the real one in between
        answer = client.post("/v1/batches", json=GOOD)
        return answer if answer.status_code != 200 else None

    answer = wait_until(refused, message="a refusal")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_full")
    assert int(answer.headers["retry-after"]) > 0


def test_the_endpoint_error_names_what_is_supported(client: httpx.Client) -> None:
    error = client.post("/v1/batches", json=GOOD | {"endpoint": "/v1/responses"}).json()["error"]
    assert "'/v1/embeddings'" in error["message"]


@pytest.mark.parametrize(
    "changed",
    [
        {"completion_window": "1h"},
        {"metadata": None},
        {"metadata": {"k": "é" * 2047, "l": ""}},
        {"unknown": 1},
        {"output_expires_after": {"anchor": "created_at", "seconds": 3600}},
    ],
)
def test_what_is_accepted(client: httpx.Client, changed: dict[str, Any]) -> None:
    create(client, **changed)


@pytest.mark.parametrize("prefix", ["/v1", ""])
@pytest.mark.parametrize("slash", ["", "/"])
def test_all_forms_of_the_paths(client: httpx.Client, prefix: str, slash: str) -> None:
    base = f"{prefix}/batches"
    batch_id = client.post(f"{base}{slash}", json=GOOD).json()["id"]
    assert client.get(f"{base}/{batch_id}{slash}").json()["id"] == batch_id
    assert [batch["id"] for batch in client.get(f"{base}{slash}").json()["data"]] == [batch_id]
    cancelled = client.post(f"{base}/{batch_id}/cancel{slash}", headers={"content-type": "application/json"})
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelling")


def test_cancelling_twice_is_fine(client: httpx.Client) -> None:
    batch_id = create(client)["id"]
    first = client.post(f"/v1/batches/{batch_id}/cancel").json()
    assert client.post(f"/v1/batches/{batch_id}/cancel").json() == first
    assert first["cancelling_at"] is not None


@pytest.mark.parametrize("status", [status for status in BatchStatus if status.terminal])
def test_a_batch_that_has_ended_cannot_be_cancelled(client: httpx.Client, ledger: Ledger, status: BatchStatus) -> None:
    batch_id = create(client)["id"]
    end(ledger, batch_id, JobStatus(status))
    answer = client.post(f"/v1/batches/{batch_id}/cancel")
    if status is BatchStatus.CANCELLED:
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        return
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (409, "batch_already_ended", "invalid_request_error")
    assert error["message"] == f"Cannot cancel a batch with status '{status}'."
    assert answer.headers["x-should-retry"] == "false"


def test_errors_and_usage_of_an_ended_batch(client: httpx.Client, ledger: Ledger) -> None:
    batch_id = create(client)["id"]
    errors = [JobError("invalid_json_line", "Not JSON.", None, 2)]
    end(ledger, batch_id, JobStatus.FAILED, counts=counts_of_lines(3, 1, 2, texts=9, tokens=5), errors=errors)
    batch = client.get(f"/v1/batches/{batch_id}").json()
    wrong = {"code": "invalid_json_line", "message": "Not JSON.", "param": None, "line": 2}
    assert batch["errors"] == {"object": "list", "data": [wrong]}
    assert batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert batch["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert batch["failed_at"] is not None


@pytest.mark.parametrize("method", ["GET /v1/batches/{id}", "POST /v1/batches/{id}/cancel"])
@pytest.mark.parametrize("batch_id", ["batch_1", "batch_" + "0" * 32, "x" * 3000, "batch_%2e%2e", "file-1"])
def test_an_unknown_batch_is_not_found(client: httpx.Client, method: str, batch_id: str) -> None:
    verb, _, path = method.partition(" ")
    answer = client.request(verb, path.format(id=batch_id))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "batch_not_found")
    assert error["message"].startswith("No batch found")


def test_pages(client: httpx.Client) -> None:
    ids = [create(client)["id"] for _ in range(5)][::-1]
    first = client.get("/v1/batches?limit=2").json()
    assert ([b["id"] for b in first["data"]], first["has_more"]) == (ids[:2], True)
    assert (first["first_id"], first["last_id"], first["object"]) == (ids[0], ids[1], "list")
    rest = client.get("/v1/batches", params={"after": ids[1]}).json()
    assert ([b["id"] for b in rest["data"]], rest["has_more"]) == (ids[2:], False)
    empty = client.get("/v1/batches", params={"after": ids[-1]}).json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize("limit", ["0", "-1", "101", "x", "1.5", "9" * 5000, "\u0662"])
def test_a_page_has_a_limit(client: httpx.Client, limit: str) -> None:
    answer = client.get("/v1/batches", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


def test_an_unknown_cursor(client: httpx.Client) -> None:
    answer = client.get("/v1/batches?after=nothing")
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "after")


def test_an_idempotency_key_gets_the_same_batch(client: httpx.Client) -> None:
    def send(**changed: Any) -> httpx.Response:
        return client.post("/v1/batches", json=GOOD | changed, headers={"Idempotency-Key": "k1"})

    first = send().json()["id"]
    assert send().json()["id"] == first
    other = send(completion_window="1h")
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "caf\xe9"])
def test_an_unusable_idempotency_key(client: httpx.Client, key: str) -> None:
    answer = client.post("/v1/batches", json=GOOD, headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    assert answer.json()["error"]["param"] == "Idempotency-Key"
    assert client.get("/v1/batches").json()["data"] == []


def test_lists_of_large_batches_do_not_fill_the_memory_of_redis(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url) as served, closing(Ledger.connect(private_redis.url)) as ledger:
        errors = [JobError("invalid_json_line", "Not JSON." * 20, None, n) for n in range(1000)]
        made = [create(served.client)["id"] for _ in range(30)]
        for batch_id in made:
            end(ledger, batch_id, JobStatus.FAILED, errors=errors)
        # Redis ends a connection for which more than this is waiting.
        ledger.client.config_set("client-output-buffer-limit", "normal 4mb 0 0")
        with ThreadPoolExecutor(3) as threads:
            answers = [*threads.map(lambda _: served.client.get("/v1/batches?limit=30"), range(3))]
        # A busy machine may be too slow for three of them at once. Where Redis ends a connection, the code is another.
        served_now = [answer.json() for answer in answers if answer.json().get("error", {}).get("code") != "overloaded"]
        assert served_now
        assert [[batch["id"] for batch in found["data"]] for found in served_now] == [made[::-1]] * len(served_now)


def test_owners_do_not_see_each_other(serve: Callable[..., ServedApp]) -> None:
    keys = ",".join(f"{name}:{sha256(name.encode()).hexdigest()}" for name in ("alice", "bob"))
    client = serve(api_keys=keys).client
    alice, bob = ({"Authorization": f"Bearer {name}"} for name in ("alice", "bob"))
    batch_id = client.post("/v1/batches", json=GOOD, headers=alice).json()["id"]
    assert client.get(f"/v1/batches/{batch_id}", headers=alice).status_code == 200
    assert client.get(f"/v1/batches/{batch_id}", headers=bob).status_code == 404
    assert client.post(f"/v1/batches/{batch_id}/cancel", headers=bob).status_code == 404
    assert client.get("/v1/batches", headers=bob).json()["data"] == []
    for method, path in (("POST", "/v1/batches"), ("GET", "/v1/batches"), ("GET", f"/v1/batches/{batch_id}")):
        assert client.request(method, path, json=GOOD).status_code == 401


def test_the_body_must_be_json(client: httpx.Client) -> None:
    assert client.post("/v1/batches", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.post("/v1/batches", content=b"{}").status_code == 415
    assert client.post("/v1/batches", json=[]).status_code == 400


def test_only_an_ended_batch_is_deleted_and_then_it_is_gone(client: httpx.Client, ledger: Ledger) -> None:
    batch_id, other = create(client)["id"], create(client)["id"]
    path = f"/v1/batches/{batch_id}"
    early = client.delete(path)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "batch_not_ended")
    assert "Cancel it" in early.json()["error"]["message"]
    end(ledger, batch_id, JobStatus.FAILED)

    assert client.delete(path).json() == {"id": batch_id, "object": "batch", "deleted": True}

    answers = [client.get(path), client.delete(path), client.post(f"{path}/cancel"), client.post(f"{path}/retry")]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in answers} == {(404, "batch_not_found")}
    for listing in ("/v1/batches", "/v1/jobs"):
        assert [found["id"] for found in client.get(listing).json()["data"]] == [other]


def uploaded(client: httpx.Client) -> str:
    return str(upload_with(client)().json()["id"])


def test_a_batch_is_tried_again_as_a_new_one(client: httpx.Client, ledger: Ledger) -> None:
    file_id, failed = uploaded(client), uploaded(client)
    first = create(client, input_file_id=file_id, metadata={"job": "42"}, completion_window="48h")
    path = f"/v1/batches/{first['id']}/retry"
    early = client.post(path)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "batch_not_ended")
    end(ledger, first["id"], JobStatus.EXPIRED, files={"error": failed})

    again = client.post(path).json()

    assert again["id"] != first["id"]
    assert again["metadata"] == {"job": "42", "retry_of": first["id"]}
    assert (again["input_file_id"], again["completion_window"], again["status"]) == (file_id, "48h", "validating")
    assert again["expires_at"] - again["created_at"] == 48 * 3600
    assert client.post(path).json()["id"] == again["id"], "the answer was lost"
    kept = ledger.run(read_batch(again["id"]))
    assert kept is not None
    assert kept.only_file_id == failed

    # That one fails as a whole: the next one has its requests, and the id of the one before.
    end(ledger, again["id"], JobStatus.FAILED)
    third = client.post(f"/v1/batches/{again['id']}/retry").json()
    kept = ledger.run(read_batch(third["id"]))
    assert kept is not None
    assert (kept.only_file_id, third["metadata"]["retry_of"]) == (failed, again["id"])

    # Without its error file nothing of it can be tried any more; what was made before is still found.
    client.delete(f"/v1/files/{failed}")
    assert client.post(path).json()["id"] == again["id"]
    end(ledger, third["id"], JobStatus.FAILED)
    gone = client.post(f"/v1/batches/{third['id']}/retry")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "file_not_found")
    assert "Nobody knows any more" in gone.json()["error"]["message"]


def test_a_batch_with_as_much_metadata_as_there_may_be_is_tried_again(client: httpx.Client, ledger: Ledger) -> None:
    metadata = {"k": "v" * 4095}
    full = create(client, input_file_id=uploaded(client), metadata=metadata)
    end(ledger, full["id"], JobStatus.FAILED)
    again = client.post(f"/v1/batches/{full['id']}/retry").json()
    assert again["metadata"] == metadata | {"retry_of": full["id"]}


def test_what_cannot_be_tried_again(client: httpx.Client, ledger: Ledger) -> None:
    done = create(client, input_file_id=uploaded(client))["id"]
    end(ledger, done, files={"output": "file-out"})
    answer = client.post(f"/v1/batches/{done}/retry")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "batch_already_ended")
    assert "nothing to try again" in answer.json()["error"]["message"]

    lost = create(client)["id"]
    end(ledger, lost, JobStatus.FAILED)
    answer = client.post(f"/v1/batches/{lost}/retry")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_not_found")


def test_nobody_deletes_or_retries_a_batch_of_somebody_else(serve: Callable[..., ServedApp], ledger: Ledger) -> None:
    client = serve(api_keys=KEYS).client
    hers = client.post("/v1/batches", json=GOOD, headers=ANN).json()["id"]
    end(ledger, hers, JobStatus.FAILED)
    assert client.delete(f"/v1/batches/{hers}", headers=BOB).status_code == 404
    assert client.post(f"/v1/batches/{hers}/retry", headers=BOB).status_code == 404
    assert client.get(f"/v1/batches/{hers}", headers=ANN).json()["status"] == "failed"
