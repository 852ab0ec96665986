"""The logs of a whole service, as JSON and with each request in them."""

import json
from typing import Any

from stack.testing import Process, wait_until
from tests.integration.observed.conftest import KEY, OWNER, Observed

TEXT = "words-that-nobody-may-log"
ALWAYS = {"time", "level", "logger", "message", "role", "pid"}


def lines(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log().splitlines()]


def access(observed: Observed, request_id: str) -> dict[str, Any]:
    """The line of the answer to a request."""

    def found() -> dict[str, Any] | None:
        ours = [line for line in lines(observed.api) if line.get("request_id") == request_id]
        return next((line for line in ours if line["logger"] == "api.access"), None)

    return wait_until(found, message=f"no line of {request_id}")


def test_a_request_is_one_line_with_its_task_and_its_owner(observed: Observed) -> None:
    answer = observed.client.post("/v1/embeddings", json={"input": TEXT}, headers={"x-request-id": "req-1"})
    assert answer.status_code == 200
    line = access(observed, "req-1")
    assert line.pop("seconds") > 0
    (task_id,) = line.pop("task_ids")
    assert task_id.startswith("task_")
    assert line["bytes"] == len(answer.content)
    told = {name: line[name] for name in ("method", "route", "status", "owner", "role")}
    assert told == {"method": "POST", "route": "/v1/embeddings", "status": 200, "owner": OWNER, "role": "api"}


def test_routes_are_templates_and_what_a_client_writes_is_left_out(observed: Observed) -> None:
    task_id = observed.client.post("/v1/tasks", json={"input": [TEXT]}).json()["id"]
    headers = {"x-request-id": "req-2"}
    observed.client.get(f"/v1/tasks/{task_id}", headers=headers, params={"x": TEXT})
    line = access(observed, "req-2")
    assert (line["route"], line["task_ids"]) == ("/v1/tasks/{task_id}", [task_id])
    observed.client.get(f"/v1/{TEXT}", headers={"x-request-id": "req-3", "authorization": f"Bearer wrong-{KEY}"})
    assert access(observed, "req-3")["route"] == "unmatched"
    observed.client.get(f"/v1/tasks/{TEXT}", headers={"x-request-id": "req-4"})
    assert "task_ids" not in access(observed, "req-4")


def test_a_worker_names_itself_and_the_tasks_of_a_claim_that_fails(observed: Observed) -> None:
    refused = observed.client.post(
        "/v1/embeddings", json={"input": f"{TEXT} !!fail!!"}, headers={"x-request-id": "req-5"}
    )
    assert refused.status_code == 422
    (task_id,) = access(observed, "req-5")["task_ids"]
    about = wait_until(lambda: [line for line in lines(observed.worker) if task_id in line.get("task_ids", ())])
    assert all(line["worker"] for line in about)
    assert about[0]["role"] == "worker"


def test_every_line_is_an_object_and_none_has_a_text_or_a_key(observed: Observed) -> None:
    body = {"sources": [], "input": TEXT}
    for path in ("/v1/embeddings", "/v1/tasks", "/v1/ingestions", "/v1/batches"):
        observed.client.post(path, json=body, params={"q": TEXT}, headers={"x-request-id": f"a text: {TEXT}"})
    observed.client.post("/v1/embeddings", content=TEXT.encode(), headers={"x-request-id": "req-6"})
    access(observed, "req-6")
    for process in observed.processes:
        assert all(line.keys() >= ALWAYS for line in lines(process))
        assert lines(process), process.name
        for secret in (TEXT, KEY):
            assert secret not in process.log()
