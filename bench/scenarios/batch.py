"""What a query feels while the rows of a batch, uploaded as a file, are encoded."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from bench.scenarios.bulk import ten_queries_a_second
from bench.scenarios.client import open_client
from bench.scenarios.observed import Observed, of_load
from bench.scenarios.passages import health_checks
from bench.scenarios.workload import Workload
from bench.sizes import Sizes
from stack.testing import wait_until

_START_TIMEOUT_S = 120.0
"""For the check of the whole file and the first rows."""
_END_TIMEOUT_S = 120.0
_ENDED = {"completed", "failed", "expired", "cancelled"}


def queries_beside(workload: Workload, sizes: Sizes) -> Observed:
    """Ten queries and ten health checks a second, and how many rows a second are done meanwhile."""
    with open_client(workload.server) as client, _running_batch(client, workload, sizes.batch_lines) as batch_id:
        done, began = _completed(client, batch_id), time.perf_counter()
        health = health_checks(workload, sizes.under_batch_s)
        try:
            queries, bodies = ten_queries_a_second(workload, sizes.under_batch_s)
            rows, elapsed = _completed(client, batch_id) - done, time.perf_counter() - began
            ended = _read(client, batch_id)["status"] != "in_progress"
        except BaseException:
            if health is not None:
                health.stop()
            raise
        values = {
            "under_batch_p50_ms": queries.p50_ms,
            "under_batch_p99_ms": queries.p99_ms,
            "under_batch_max_ms": queries.max_ms,
        }
        if health is not None:
            values["under_batch_health_p99_ms"] = health.result().p99_ms
    if not ended:  # or part of the time nothing was done
        values["under_batch_rows_per_s"] = rows / elapsed
    observed = of_load("beside a batch", queries, bodies, values)
    return Observed(observed.values, [*observed.notes, *(["the batch ended before the queries did"] if ended else [])])


def requests_file(model: str, passages: list[str]) -> bytes:
    """The input of a batch: one request per line, one passage each."""
    return b"".join(_line(number, model, text) for number, text in enumerate(passages))


def _line(number: int, model: str, text: str) -> bytes:
    body = {"model": model, "input": text, "encoding_format": "base64"}
    request = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/embeddings", "body": body}
    return json.dumps(request).encode() + b"\n"


@contextmanager
def _running_batch(client: httpx.Client, workload: Workload, lines: int) -> Iterator[str]:
    """The id of a batch of which the first rows are done; nothing of it is left behind."""
    data = requests_file(workload.server.model, workload.bulk(lines))
    upload = client.post("/files", data={"purpose": "batch"}, files={"file": ("rows.jsonl", data)})
    file_ids = [upload.raise_for_status().json()["id"]]
    try:
        body = {"input_file_id": file_ids[0], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        batch_id = client.post("/batches", json=body).raise_for_status().json()["id"]
        try:
            wait_until(
                lambda: _completed(client, batch_id) > 0, timeout_s=_START_TIMEOUT_S, message="the first rows were done"
            )
            yield batch_id
        finally:
            file_ids += _end(client, batch_id)
    finally:
        for file_id in file_ids:
            client.delete(f"/files/{file_id}").raise_for_status()


def _end(client: httpx.Client, batch_id: str) -> list[str]:
    """Cancels the batch if it still runs, and waits for its end; the ids of the files it has made."""
    if _read(client, batch_id)["status"] not in _ENDED:
        client.post(f"/batches/{batch_id}/cancel")  # refused when it has just ended
    wait_until(lambda: _read(client, batch_id)["status"] in _ENDED, timeout_s=_END_TIMEOUT_S, message="the batch ended")
    batch = _read(client, batch_id)
    return [batch[name] for name in ("output_file_id", "error_file_id") if batch[name]]


def _completed(client: httpx.Client, batch_id: str) -> int:
    batch = _read(client, batch_id)
    assert batch["status"] != "failed", batch["errors"]
    return int(batch["request_counts"]["completed"])


def _read(client: httpx.Client, batch_id: str) -> dict[str, Any]:
    batch: dict[str, Any] = client.get(f"/batches/{batch_id}").raise_for_status().json()
    return batch
