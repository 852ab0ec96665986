"""The documents queue is watched, measured, and no model."""

import httpx

from tests.integration.documents.conftest import TRIAL, DocumentsClient
from tests.processes import Roles, wait_until


def test_the_documents_queue_is_no_model(roles: Roles, documents: DocumentsClient) -> None:
    api = roles.api()
    task = documents.submit_job("echo", "job")
    with api.client() as client:
        # No worker has ever lived: who looks after the queues in the web tier is who rings.
        wait_until(lambda: 'embedq_bells_total{model="@documents"}' in client.get("/metrics").text)
        roles.documents(module=TRIAL)
        assert documents.answer(task)["id"] == "job"
        wait_until(lambda: 'embedq_workers{model="@documents"} 1.0' in client.get("/metrics").text)
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [
            "sentence-transformers/all-MiniLM-L6-v2"
        ]
        refused = client.post("/v1/embeddings", json={"model": "@documents", "input": "a text"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (httpx.codes.NOT_FOUND, "model_not_found")
        ready = client.get("/health/ready")
        assert ready.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert ready.json()["error"]["param"] == "worker"
