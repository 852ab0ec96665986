"""The routes of batches: what is shown, and a second try. What batches do is tested elsewhere."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx

from tasks.ledger.client import Ledger
from tasks.records.batches import counts_of_lines, read_batch
from tasks.records.jobs import JobError, JobStatus
from tests.integration.api.file_uploads import Upload, ids, problem
from tests.integration.api.jobs import BATCH, create_batch, end
from tests.integration.api.served import ServedApp
from tests.processes import RedisServer

TIMES = ("failed_at", "in_progress_at", "finalizing_at", "completed_at", "expired_at", "cancelling_at", "cancelled_at")
NOT_YET = ("errors", "output_file_id", "error_file_id", "usage")


def test_a_batch_at_its_beginning_and_at_its_end(client: httpx.Client, ledger: Ledger) -> None:
    batch = create_batch(client, metadata={"job": "42"})
    path = f"/v1/batches/{batch['id']}"
    assert batch["created_at"] + 24 * 3600 == batch["expires_at"]
    assert {name: value for name, value in batch.items() if name not in {"id", "created_at", "expires_at"}} == {
        **BATCH,
        **dict.fromkeys((*TIMES, *NOT_YET)),
        "object": "batch",
        "status": "validating",
        "counts": {"total": 0, "completed": 0, "failed": 0},
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": {"job": "42"},
        "waiting": batch["waiting"],
    }
    assert batch["waiting"]["code"] == "no_documents_worker"
    assert client.get(path).json() == batch

    errors = [JobError("invalid_json_line", "Not JSON.", None, 2)]
    end(ledger, batch["id"], JobStatus.FAILED, counts=counts_of_lines(3, 1, 2, texts=9, tokens=5), errors=errors)
    ended = client.get(path).json()
    wrong = {"code": "invalid_json_line", "message": "Not JSON.", "param": None, "line": 2}
    assert ended["errors"] == {"object": "list", "data": [wrong]}
    assert ended["request_counts"] == {"total": 3, "completed": 1, "failed": 2}
    assert ended["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }
    assert ended["failed_at"] is not None


def test_lists_of_large_batches_do_not_fill_the_memory_of_redis(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url) as served, closing(Ledger.connect(private_redis.url)) as ledger:
        errors = [JobError("invalid_json_line", "Not JSON." * 200, None, n) for n in range(60)]
        made = [create_batch(served.client)["id"] for _ in range(20)]
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
    first = create_batch(client, input_file_id=file_id, metadata=full, completion_window="48h")
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
    problem(gone, 404, "file_not_found", gone.json()["error"]["param"])
    assert "Nobody knows any more" in gone.json()["detail"]

    done = create_batch(client, input_file_id=file_id)["id"]
    end(ledger, done, files={"output": "file-out"})
    answer = client.post(f"/v1/batches/{done}/retry")
    problem(answer, 409, "batch_already_ended")
    assert "nothing to try again" in answer.json()["detail"]
