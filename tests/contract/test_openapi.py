"""schemathesis reads the OpenAPI document and tries to prove it wrong, with requests that fit it and that do not."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, MANAGED_KEYS, MODEL, ServedApp

# Not positive_data_acceptance: which prompts, dimensions and ids exist is no matter of a document.
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance",
    "use_after_free", "ensure_resource_availability",
)  # fmt: skip
EXAMPLES = 4
MUST_SUCCEED = {
    "POST /v1/embeddings", "POST /v1/tasks", "GET /v1/tasks/{task_id}", "POST /v1/files", "GET /v1/files/{file_id}",
    "POST /v1/batches", "POST /v1/ingestions", "GET /v1/models", "POST /embed",
}  # fmt: skip
"""Or the checks of their answers have looked at refusals only."""


@pytest.fixture
def client(redis_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """Of a served app with a worker. Nobody waits longer than a second for anything."""
    # With a key from the start: the first one that is made would close the service to all calls after it.
    keys = {"api_keys": MANAGED_KEYS}
    settings = {"max_wait_s": 1, "storage_url": str(tmp_path / "storage"), **keys}
    with LedgerWorker(redis_url, MODEL) as worker, ServedApp(redis_url, **settings) as served:
        worker.announce()
        with worker.serving():
            yield served.client


@pytest.mark.thorough
def test_the_document_is_true(client: httpx.Client, tmp_path: Path) -> None:
    document = str(client.base_url.join("/openapi.json"))
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)]
    command += ["--generation-deterministic", "--request-timeout", "10"]
    command += ["--header", f"Authorization: {ANN['authorization']}"]
    # A model id may hold slashes, and schemathesis throws away most of the paths that it makes for it.
    command += ["--suppress-health-check", "filter_too_much"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2000:]
    counted = r'^embedq_http_requests_total{method="(\w+)",route="(\S+)",status="2..?"}'
    found = re.findall(counted, client.get("/metrics").text, re.MULTILINE)
    assert {f"{method} {route}" for method, route in found} >= MUST_SUCCEED
