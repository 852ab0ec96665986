"""schemathesis reads the OpenAPI document and tries to prove it wrong, with requests that fit it and that do not."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, ServedApp

# Not positive_data_acceptance: which prompts, dimensions and ids exist is no matter of a document.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
)
SEED = 4
EXAMPLES = 15


@pytest.fixture
def address(redis_url: str) -> Iterator[str]:
    """Of a served app with a worker. Nobody waits longer than a second for anything."""
    with LedgerWorker(redis_url, MODEL) as worker, ServedApp(redis_url, max_wait_s=1) as served:
        worker.announce()
        with worker.serving():
            yield f"http://127.0.0.1:{served.port}"


def test_the_document_is_true(address: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES), "--seed", str(SEED)]
    command += ["--generation-deterministic", "--request-timeout", "10"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2000:]
